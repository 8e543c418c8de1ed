"""Gradients after PyTorch's own communication hooks, over 20 steps on two ranks."""

import numpy
import torch
import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from . import ranks
from .fixture_file import floats, write

WORLD = 2
STEPS = 20
SHAPES = [[12, 10], [12], [16, 6], [12, 10], [3], [4, 5, 6]]

#: name -> (hook, wrapper, options of the state)
CASES = {
    "no": ("no", "no", {}),
    "fp16": ("fp16", "no", {}),
    "bf16": ("bf16", "no", {}),
    "power_sgd": ("power_sgd", "no", {}),
    "late_start": ("power_sgd", "no", {"start_powerSGD_iter": 5}),
    "rank_2": ("power_sgd", "no", {"matrix_approximation_rank": 2, "min_compression_rate": 1}),
    "rank_3": ("power_sgd", "no", {"matrix_approximation_rank": 3, "min_compression_rate": 1}),
    "cold_start": ("power_sgd", "no", {"warm_start": False}),
    "no_feedback": ("power_sgd", "no", {"use_error_feedback": False}),
    "from_the_first_step": (
        "power_sgd",
        "no",
        {"use_error_feedback": False, "warm_start": False, "start_powerSGD_iter": 0},
    ),
    "epsilon": ("power_sgd", "no", {"orthogonalization_epsilon": 1e-2}),
    "seed_7": ("power_sgd", "no", {"random_seed": 7}),
    "same_shapes_together": ("power_sgd", "no", {"batch_tensors_with_same_shape": True}),
    "power_sgd_fp16": ("power_sgd", "fp16", {}),
    "power_sgd_bf16": ("power_sgd", "bf16", {}),
    "batched": ("batched_power_sgd", "no", {}),
    "batched_rank_3": ("batched_power_sgd", "no", {"matrix_approximation_rank": 3}),
}

HOOKS = {
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "power_sgd": powerSGD_hook.powerSGD_hook,
    "batched_power_sgd": powerSGD_hook.batched_powerSGD_hook,
}
WRAPPERS = {
    "no": lambda hook: hook,
    "fp16": default_hooks.fp16_compress_wrapper,
    "bf16": default_hooks.bf16_compress_wrapper,
}


def record(out):
    """Writes `comm_hooks.json`."""
    on_ranks = ranks.run(WORLD, run_all)
    assert on_ranks[0] == on_ranks[1], "gradients differ over ranks"
    cases = [describe(name, on_ranks[0][name]) for name in CASES]
    write(out / "comm_hooks.json", {"world": WORLD, "shapes": SHAPES, "cases": cases})


def describe(name, steps):
    hook, wrapper, options = CASES[name]
    return {"name": name, "hook": hook, "wrapper": wrapper, "options": options, **steps}


class Parameters(torch.nn.Module):
    """The loss is linear, so that the gradients are the numbers that it is called with."""

    def __init__(self):
        super().__init__()
        self.values = torch.nn.ParameterList(torch.zeros(shape) for shape in SHAPES)

    def forward(self, weights):
        return sum((value * weight).sum() for value, weight in zip(self.values, weights))


def gradient(shape, parameter, step, rank):
    """Sixteenths that differ over everything; float16 holds them, bfloat16 nearly."""
    index = torch.arange(torch.Size(shape).numel())
    mixed = (index * index * 5 + index * (7 + rank) + step * 11 + parameter * 3 + rank * 5) % 61
    return ((mixed - 30).to(torch.float32) / 16).reshape(shape)


def run_all(rank, world_size):
    torch.distributed.init_process_group("gloo")
    accept_single_matrices()
    return {name: run(rank, *CASES[name]) for name in CASES}


def accept_single_matrices():
    """The batched hook hands single matrices to a function that takes stacks of them."""
    of_stacks = powerSGD_hook._orthogonalize

    def of_any(matrices, epsilon=0):
        of_stacks(matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon)

    powerSGD_hook._orthogonalize = of_any


def run(rank, hook, wrapper, options):
    model = Parameters()
    parallel = DistributedDataParallel(model)
    if "power_sgd" in hook:
        options = {"start_powerSGD_iter": 2, **options}
        state = powerSGD_hook.PowerSGDState(process_group=None, **options)
        parallel.register_comm_hook(state, WRAPPERS[wrapper](HOOKS[hook]))
    elif hook != "no":
        parallel.register_comm_hook(None, WRAPPERS[wrapper](HOOKS[hook]))
    checksums, sums, squares = [], [], []
    for step in range(STEPS):
        parallel.zero_grad()
        parallel([gradient(shape, n, step, rank) for n, shape in enumerate(SHAPES)]).backward()
        found = torch.cat([value.grad.reshape(-1) for value in model.values])
        checksums.append(f"{checksum(found):016x}")
        sums.append(found.double().sum().item())
        squares.append(found.double().square().sum().item())
    return {"checksums": checksums, "sums": sums, "squares": squares, "last": floats(found)}


def checksum(tensor):
    """FNV-1a over the bytes of the float32 values."""
    state = 0xCBF29CE484222325
    for byte in tensor.detach().numpy().astype(numpy.float32).tobytes():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state
