"""First values of parameters as `torch.nn.init` draws them."""

import torch
from torch.nn import init

from .fixture_file import floats, sha256, write

SEED = 7
#: name -> (shape, function that fills). Shapes above 16 values take the vector path of the generator.
CASES = {
    "uniform": ([5, 7], lambda t: init.uniform_(t, -2.0, 3.0)),
    "normal": ([5, 7], lambda t: init.normal_(t, 1.0, 0.5)),
    "normal_small": ([3, 3], lambda t: init.normal_(t, 0.0, 0.02)),
    "trunc_normal": ([5, 7], lambda t: init.trunc_normal_(t)),
    "trunc_normal_std": ([6, 8], lambda t: init.trunc_normal_(t, mean=0.1, std=0.02, a=-0.04, b=0.1)),
    # So little of the distribution is inside that values are rejected by height.
    "trunc_normal_tail": ([6, 8], lambda t: init.trunc_normal_(t, mean=0.0, std=1.0, a=1.0, b=1.5)),
    "constant": ([2, 3], lambda t: init.constant_(t, 0.3)),
    "ones": ([2, 3], init.ones_),
    "zeros": ([2, 3], init.zeros_),
    "eye": ([3, 5], init.eye_),
    "dirac_1d": ([4, 2, 3], init.dirac_),
    "dirac_2d_groups": ([4, 2, 3, 2], lambda t: init.dirac_(t, groups=2)),
    "dirac_3d": ([2, 3, 1, 2, 3], init.dirac_),
    "xavier_uniform": ([5, 7], init.xavier_uniform_),
    "xavier_uniform_gain": ([4, 3, 2, 2], lambda t: init.xavier_uniform_(t, init.calculate_gain("relu"))),
    "xavier_normal": ([5, 7], lambda t: init.xavier_normal_(t, init.calculate_gain("tanh"))),
    "kaiming_uniform": ([5, 7], init.kaiming_uniform_),
    "kaiming_uniform_out_relu": ([4, 3, 2, 2], lambda t: init.kaiming_uniform_(t, mode="fan_out", nonlinearity="relu")),
    "kaiming_normal": ([5, 7], lambda t: init.kaiming_normal_(t, a=0.2)),
    "kaiming_normal_out_selu": ([5, 7], lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="selu")),
    "orthogonal_wide": ([3, 7], init.orthogonal_),
    "orthogonal_tall": ([7, 3], lambda t: init.orthogonal_(t, gain=2.0)),
    "orthogonal_kernel": ([4, 2, 3], init.orthogonal_),
    "sparse": ([6, 4], lambda t: init.sparse_(t, sparsity=0.4, std=0.5)),
}
NONLINEARITIES = [("linear", None), ("sigmoid", None), ("tanh", None), ("relu", None), ("leaky_relu", 0.2), ("selu", None)]


def record(out):
    """Writes `initialisers.json`."""
    content = {
        "seed": SEED,
        "gains": {name: float(init.calculate_gain(name, param)) for name, param in NONLINEARITIES},
        "cases": [case(name, *CASES[name]) for name in CASES],
    }
    write(out / "initialisers.json", content)


def case(name, shape, fill):
    tensor = torch.empty(shape)
    torch.manual_seed(SEED)
    fill(tensor)
    # What the generator gives next shows that as many numbers were drawn.
    following = torch.rand(1).item()
    return {
        "name": name,
        "shape": shape,
        "drawn": floats(tensor.flatten()),
        "next": following,
        "drawn_sha256": sha256([tensor]),
    }
