"""Learning rate schedules, and optimizer steps on fixed gradients with the fused kernels."""

import random

import torch
from transformers import get_linear_schedule_with_warmup

from .fixture_file import floats, write

#: (base learning rate, warm-up steps, total steps)
SCHEDULES = [(5e-4, 4, 20), (1e-3, 0, 10), (1.0, 10, 10), (2e-5, 3, 7), (0.1, 5, 3), (1.0, 0, 0)]

STEPS = 10
#: The parameters are kept after these steps only, to keep the file small.
KEPT_STEPS = [1, 2, 3, STEPS]

#: 5 elements stay in a kernel's scalar tail; 21 fill vector lanes and leave a tail too.
SHAPES = [(5,), (3, 7)]

ADAMW = {
    "adamw_default": {"lr": 1e-3},
    "adamw_settings": {"lr": 3e-3, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
    "adamw_no_decay": {"lr": 1e-2, "weight_decay": 0.0},
    "adamw_amsgrad": {"lr": 1e-3, "amsgrad": True},
    "adamw_maximize": {"lr": 1e-3, "maximize": True},
}
SGD = {
    "sgd_plain": {"lr": 0.1},
    "sgd_momentum": {"lr": 0.1, "momentum": 0.9},
    "sgd_dampening": {"lr": 0.1, "momentum": 0.9, "dampening": 0.1},
    "sgd_nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "sgd_decay": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01},
    "sgd_maximize": {"lr": 0.1, "maximize": True},
}


def record_schedules(out):
    """Writes `linear_schedule.json`: the rate in force at each step, three steps past the end."""
    write(out / "linear_schedule.json", {"schedules": [schedule_case(*case) for case in SCHEDULES]})


def schedule_case(base_lr, warmup, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base_lr)
    scheduler = get_linear_schedule_with_warmup(optimizer, warmup, total)
    rates = []
    for _ in range(total + 3):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"base_lr": base_lr, "warmup_steps": warmup, "total_steps": total, "lr": rates}


def record_optimizers(out):
    """Writes `adamw_sgd.json`: starting values, gradients, and the parameters after some steps."""
    draw = random.Random(7)
    initial = [uniform(draw, shape, 1.0) for shape in SHAPES]
    # Sizes from 1 to a thousandth, so that the second moment and `eps` both matter.
    gradients = [[uniform(draw, shape, 10.0 ** -(step % 4)) for shape in SHAPES] for step in range(STEPS)]
    cases = {name: run_case(torch.optim.AdamW, options, initial, gradients) for name, options in ADAMW.items()}
    cases |= {name: run_case(torch.optim.SGD, options, initial, gradients) for name, options in SGD.items()}
    content = {
        "initial": [floats(tensor) for tensor in initial],
        "gradients": [[floats(tensor) for tensor in step] for step in gradients],
        "kept_steps": KEPT_STEPS,
        "cases": cases,
    }
    write(out / "adamw_sgd.json", content)


def run_case(kind, options, initial, gradients):
    parameters = [tensor.clone().requires_grad_() for tensor in initial]
    optimizer = kind(parameters, fused=True, **options)
    after = []
    for number, step in enumerate(gradients, start=1):
        for parameter, gradient in zip(parameters, step):
            parameter.grad = gradient.clone()
        optimizer.step()
        if number in KEPT_STEPS:
            after.append([floats(parameter) for parameter in parameters])
    group = optimizer.param_groups[0]
    # Every setting in full, so that a reader needs no defaults of PyTorch.
    names = ("lr", "betas", "eps", "weight_decay", "amsgrad", "momentum", "dampening", "nesterov", "maximize")
    settings = {name: list(group[name]) if name == "betas" else group[name] for name in names if name in group}
    return {"optimizer": kind.__name__, "options": settings, "params": after}


def uniform(draw, shape, size):
    """Numbers in (-size, size) from Python's generator, which is the same on every machine."""
    count = torch.Size(shape).numel()
    values = [draw.uniform(-size, size) for _ in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)
