"""The linear schedule, and optimizer steps on fixed gradients with the kernels that we use too."""

import random

import torch
from transformers import Adafactor, get_linear_schedule_with_warmup

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

#: For the optimizers below also a stack of matrices, which Adafactor factors.
RULE_SHAPES = [*SHAPES, (2, 3, 4)]
FUSED = {"fused": True}
FOREACH = {"foreach": True}
RULES = {
    "adam_default": (torch.optim.Adam, FUSED, {"lr": 1e-3}),
    "adam_settings": (
        torch.optim.Adam,
        FUSED,
        {"lr": 3e-3, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
    ),
    "adam_amsgrad": (torch.optim.Adam, FUSED, {"lr": 1e-3, "amsgrad": True}),
    "adam_maximize": (torch.optim.Adam, FUSED, {"lr": 1e-3, "maximize": True}),
    "adagrad_default": (torch.optim.Adagrad, FUSED, {"lr": 1e-2}),
    "adagrad_settings": (
        torch.optim.Adagrad,
        FUSED,
        {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1, "eps": 1e-8},
    ),
    "adagrad_maximize": (torch.optim.Adagrad, FUSED, {"lr": 1e-2, "maximize": True}),
    "rmsprop_default": (torch.optim.RMSprop, FOREACH, {"lr": 1e-2}),
    "rmsprop_decay": (torch.optim.RMSprop, FOREACH, {"lr": 1e-2, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1}),
    "rmsprop_centered": (torch.optim.RMSprop, FOREACH, {"lr": 1e-2, "centered": True}),
    "rmsprop_momentum": (torch.optim.RMSprop, FOREACH, {"lr": 1e-2, "momentum": 0.9}),
    "rmsprop_all": (
        torch.optim.RMSprop,
        FOREACH,
        {"lr": 1e-2, "momentum": 0.5, "centered": True, "weight_decay": 0.01, "maximize": True},
    ),
    "adafactor_default": (Adafactor, {}, {}),
    "adafactor_fixed": (
        Adafactor,
        {},
        {"lr": 1e-2, "relative_step": False, "scale_parameter": False, "weight_decay": 0.1, "clip_threshold": 0.5},
    ),
    "adafactor_average": (
        Adafactor,
        {},
        {"beta1": 0.9, "warmup_init": True, "weight_decay": 0.01, "decay_rate": -0.5, "eps": (1e-20, 1e-2)},
    ),
    "lamb_default": (None, {}, {"lr": 1e-2}),
    "lamb_settings": (
        None,
        {},
        {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.3, "min_trust": 0.9, "max_trust": 1.5},
    ),
}


class Lamb:
    """Algorithm 2 of arXiv:1904.00962 in float64, with bias correction and bounds for the trust ratio.

    No library that has this optimizer is installed, so this is the paper's formula written out.
    """

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=1e-2, **bounds):
        bounds = {"min_trust": 0.0, "max_trust": 1e9, **bounds}
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": False, **bounds}
        self.param_groups = [settings]
        self.parameters = parameters
        self.moments = [[torch.zeros_like(p, dtype=torch.float64) for _ in range(2)] for p in parameters]
        self.exact = [p.detach().to(torch.float64) for p in parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        beta1, beta2 = group["betas"]
        self.steps += 1
        for parameter, weight, (first, second) in zip(self.parameters, self.exact, self.moments):
            gradient = parameter.grad.to(torch.float64)
            first.mul_(beta1).add_(gradient, alpha=1 - beta1)
            second.mul_(beta2).add_(gradient**2, alpha=1 - beta2)
            root = (second / (1 - beta2**self.steps)).sqrt() + group["eps"]
            update = first / (1 - beta1**self.steps) / root + group["weight_decay"] * weight
            trust = (weight.norm() / update.norm()).clamp(group["min_trust"], group["max_trust"])
            weight.sub_(group["lr"] * trust * update)
            parameter.copy_(weight)


def record_rules(out):
    """Writes `optimizer_rules.json`: as `adamw_sgd.json`, for the other optimizers."""
    draw = random.Random(11)
    initial = [uniform(draw, shape, 1.0) for shape in RULE_SHAPES]
    gradients = [[uniform(draw, shape, 10.0 ** -(step % 4)) for shape in RULE_SHAPES] for step in range(STEPS)]
    cases = {}
    for name, (kind, kernels, options) in RULES.items():
        cases[name] = run_case(kind or Lamb, options, initial, gradients, kernels)
    content = {
        "initial": [floats(tensor) for tensor in initial],
        "gradients": [[floats(tensor) for tensor in step] for step in gradients],
        "kept_steps": KEPT_STEPS,
        "cases": cases,
    }
    write(out / "optimizer_rules.json", content)


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


def run_case(kind, options, initial, gradients, kernels=FUSED):
    parameters = [tensor.clone().requires_grad_() for tensor in initial]
    optimizer = kind(parameters, **kernels, **options)
    after = []
    for number, step in enumerate(gradients, start=1):
        for parameter, gradient in zip(parameters, step):
            parameter.grad = gradient.clone()
        optimizer.step()
        if number in KEPT_STEPS:
            after.append([floats(parameter) for parameter in parameters])
    group = optimizer.param_groups[0]
    # Every setting in full, so that a reader needs no defaults of PyTorch.
    left_out = ("params", "fused", "foreach", "capturable", "differentiable", "decoupled_weight_decay")
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in group.items()
        if name not in left_out
    }
    return {"optimizer": kind.__name__, "options": settings, "params": after}


def uniform(draw, shape, size):
    """Numbers in (-size, size) from Python's generator, which is the same on every machine."""
    count = torch.Size(shape).numel()
    values = [draw.uniform(-size, size) for _ in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)
