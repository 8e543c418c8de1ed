"""Convolutions, batch normalisation and pooling, as PyTorch computes them.

Weights and inputs follow `formula.py`: a parameter has the salt of its name, an input that of its step.
"""

import torch
from torch import nn

from .fixture_file import floats, write
from .formula import filled, salt_of

#: name -> (layer, shape of the input, training steps before one pass in evaluation mode)
CASES = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), (2, 4, 11), 1),
    "conv1d_same": (lambda: nn.Conv1d(2, 3, 4, padding="same"), (2, 2, 7), 1),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=(2, 1), padding=(1, 0)), (2, 3, 6, 5), 1),
    "conv2d_same": (lambda: nn.Conv2d(2, 2, (2, 3), padding="same", dilation=(1, 2), bias=False), (1, 2, 5, 6), 1),
    "conv2d_depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), (1, 4, 4, 4), 1),
    "batch_norm1d": (lambda: nn.BatchNorm1d(5), (7, 5), 3),
    "batch_norm1d_length": (lambda: nn.BatchNorm1d(3, eps=1e-3, momentum=0.3), (4, 3, 6), 3),
    "batch_norm2d": (lambda: nn.BatchNorm2d(4), (3, 4, 3, 2), 3),
    "batch_norm2d_mean_of_all": (lambda: nn.BatchNorm2d(4, momentum=None), (3, 4, 3, 2), 3),
    "batch_norm2d_plain": (lambda: nn.BatchNorm2d(4, affine=False), (3, 4, 3, 2), 2),
    "batch_norm2d_untracked": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 3, 2), 2),
    "batch_norm2d_no_bias": (lambda: nn.BatchNorm2d(4, bias=False), (3, 4, 3, 2), 2),
    "max_pool2d": (lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 2, 7, 6), 1),
    "max_pool2d_ceil": (lambda: nn.MaxPool2d((2, 3), dilation=(2, 1), ceil_mode=True), (1, 2, 8, 8), 1),
    "avg_pool2d": (lambda: nn.AvgPool2d(3, stride=2, padding=1), (2, 2, 7, 6), 1),
    "avg_pool2d_no_pad": (
        lambda: nn.AvgPool2d((2, 3), padding=(1, 1), ceil_mode=True, count_include_pad=False),
        (1, 2, 6, 8),
        1,
    ),
    "avg_pool2d_divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), (1, 2, 4, 4), 1),
    "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d((3, None)), (2, 2, 7, 5), 1),
    "flatten": (nn.Flatten, (2, 3, 2, 2), 1),
    "flatten_inner": (lambda: nn.Flatten(1, 2), (2, 3, 2, 2), 1),
}
SEED = 7
#: Layers whose first values are recorded, drawn after `torch.manual_seed(SEED)`.
FRESH = {
    "conv1d": lambda: nn.Conv1d(4, 2, 3, groups=2),
    "conv2d": lambda: nn.Conv2d(2, 3, (2, 1)),
    "batch_norm2d": lambda: nn.BatchNorm2d(2),
}


def record(out):
    """Writes `vision_layers.json`."""
    cases = {name: run(*case) for name, case in CASES.items()}
    write(out / "vision_layers.json", {"cases": cases, "seed": SEED, "fresh": {k: fresh(v) for k, v in FRESH.items()}})


def run(make, shape, steps):
    layer = make()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            centre = 1.0 if parameter.dim() == 1 and name == "weight" else 0.0
            parameter.copy_(filled(parameter.shape, salt_of(name), centre))
    seen = {"class": type(layer).__name__, "shape": list(shape), "steps": []}
    for step in range(steps):
        inputs = filled(shape, step, 0.25 * step).requires_grad_()
        output = layer(inputs)
        layer.zero_grad()
        (output * filled(output.shape, 50)).sum().backward()
        seen["steps"].append({"output": flat(output), "input_grad": flat(inputs.grad)})
    seen["output_shape"] = list(output.shape)
    seen["grads"] = {name: flat(parameter.grad) for name, parameter in layer.named_parameters()}
    seen["buffers"] = {name: flat(buffer) for name, buffer in layer.named_buffers()}
    layer.eval()
    seen["evaluated"] = flat(layer(filled(shape, 9)))
    return seen


def fresh(make):
    torch.manual_seed(SEED)
    return {name: flat(value) for name, value in make().state_dict().items()}


def flat(tensor):
    return floats(tensor.reshape(-1))
