"""Steps of the schedule-free optimizers on fixed gradients, in both of their modes."""

import random

import schedulefree

from .fixture_file import floats, write
from .optimizers import KEPT_STEPS, RULE_SHAPES, STEPS, uniform

CASES = {
    "adamw_default": (schedulefree.AdamWScheduleFree, {}),
    "adamw_settings": (
        schedulefree.AdamWScheduleFree,
        {
            "lr": 0.01,
            "betas": (0.8, 0.95),
            "eps": 1e-6,
            "weight_decay": 0.1,
            "warmup_steps": 4,
            "r": 0.5,
            "weight_lr_power": 1.0,
        },
    ),
    "adamw_long_warmup": (schedulefree.AdamWScheduleFree, {"lr": 0.1, "warmup_steps": 100}),
    "adamw_zero_rate": (schedulefree.AdamWScheduleFree, {"lr": 0.0}),
    "sgd_default": (schedulefree.SGDScheduleFree, {"lr": 0.1}),
    "sgd_settings": (
        schedulefree.SGDScheduleFree,
        {"lr": 0.5, "momentum": 0.6, "weight_decay": 0.05, "warmup_steps": 3, "r": 1.0, "weight_lr_power": 0.5},
    ),
}


def record(out):
    """Writes `schedule_free.json`: parameters as they are trained and as they are evaluated."""
    draw = random.Random(13)
    initial = [uniform(draw, shape, 1.0) for shape in RULE_SHAPES]
    gradients = [[uniform(draw, shape, 10.0 ** -(step % 4)) for shape in RULE_SHAPES] for step in range(STEPS)]
    content = {
        "initial": [floats(tensor) for tensor in initial],
        "gradients": [[floats(tensor) for tensor in step] for step in gradients],
        "kept_steps": KEPT_STEPS,
        "cases": {name: run_case(*case, initial, gradients) for name, case in CASES.items()},
    }
    write(out / "schedule_free.json", content)


def run_case(kind, options, initial, gradients):
    parameters = [tensor.clone().requires_grad_() for tensor in initial]
    optimizer = kind(parameters, foreach=True, **options)
    optimizer.train()
    trained, evaluated = [], []
    for number, step in enumerate(gradients, start=1):
        for parameter, gradient in zip(parameters, step):
            # The optimizer works in the gradient's memory.
            parameter.grad = gradient.clone()
        optimizer.step()
        if number in KEPT_STEPS:
            trained.append([floats(parameter) for parameter in parameters])
            optimizer.eval()
            evaluated.append([floats(parameter) for parameter in parameters])
            optimizer.train()
    group = optimizer.param_groups[0]
    progress = ("k", "weight_sum", "lr_max", "scheduled_lr")
    left_out = ("params", "foreach", "train_mode", *progress)
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in group.items()
        if name not in left_out
    }
    return {
        "optimizer": kind.__name__,
        "options": settings,
        "trained": trained,
        "evaluated": evaluated,
        "progress": {name: group[name] for name in progress},
    }
