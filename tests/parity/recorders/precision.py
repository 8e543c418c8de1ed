"""Clipping, bf16 autocast on a CPU, and the gradient scaler, as PyTorch and the original do them."""

import random

import torch

from .fixture_file import floats, write

SHAPES = [(5,), (3, 7), (2,)]
NORM_TYPES = ["0.5", "1", "2", "3", "inf"]
MAX_NORMS = [0.25, 1.0, 1000.0]

SCALER = {"init_scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}
SCALER_STEPS = 40
SGD = {"lr": 0.1, "momentum": 0.9}


def record_clipping(out):
    """Writes `clipping.json`: norms of gradients and what is left of these."""
    draw = random.Random(3)
    gradients = [uniform(draw, shape, 2.0) for shape in SHAPES]
    cases = [clip(gradients, norm_type, max_norm) for norm_type in NORM_TYPES for max_norm in MAX_NORMS]
    write(out / "clipping.json", {"gradients": [floats(g) for g in gradients], "cases": cases})


def clip(gradients, norm_type, max_norm):
    parameters = [torch.zeros_like(gradient).requires_grad_() for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=float(norm_type))
    clipped = [floats(parameter.grad) for parameter in parameters]
    return {"norm_type": norm_type, "max_norm": max_norm, "norm": floats(norm), "clipped": clipped}


def record_autocast(out):
    """Writes `autocast_bf16.json`: outputs and gradients of a small model prepared with bf16 on a CPU."""
    from accelerate import Accelerator

    draw = random.Random(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(uniform(draw, tuple(parameter.shape), 1.0))
    inputs = uniform(draw, (6, 8), 1.0)
    labels = [draw.randrange(4) for _ in range(6)]
    initial = [floats(parameter) for parameter in model.parameters()]
    kinds = []
    model[0].register_forward_hook(lambda _module, _input, output: kinds.append(str(output.dtype)))
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    prepared = accelerator.prepare(model)
    logits = prepared(inputs)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    accelerator.backward(loss)
    content = {
        "inputs": floats(inputs),
        "labels": labels,
        "initial": initial,
        "inside": kinds[0],
        "outside": str(logits.dtype),
        "logits": floats(logits),
        "loss": floats(loss),
        "gradients": [floats(parameter.grad) for parameter in model.parameters()],
    }
    write(out / "autocast_bf16.json", content)


def record_scaler(out):
    """Writes `grad_scaler.json`: a trace of the scaler with gradients that are not finite put in."""
    draw = random.Random(9)
    parameters = [uniform(draw, shape, 1.0).requires_grad_() for shape in SHAPES]
    initial = [floats(parameter) for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, fused=True, **SGD)
    scaler = torch.amp.GradScaler("cpu", **SCALER)
    steps = []
    for number in range(SCALER_STEPS):
        gradients = [uniform(draw, shape, 1.0) for shape in SHAPES]
        bad = draw.choice(["inf", "-inf", "nan"]) if draw.random() < 0.25 else None
        scaler.scale(torch.zeros(()))
        scale = scaler.get_scale()
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient * scale
        if bad is not None:
            parameters[1].grad[number % 3, number % 7] = float(bad)
        before = [parameter.detach().clone() for parameter in parameters]
        if number % 2 == 0:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        stepped = any(not torch.equal(a, b) for a, b in zip(before, parameters))
        steps.append(
            {
                "gradients": [floats(gradient) for gradient in gradients],
                "bad": bad,
                "stepped": stepped,
                "scale": state["scale"],
                "tracker": state["_growth_tracker"],
                "parameters": [floats(parameter) for parameter in parameters],
            }
        )
    write(out / "grad_scaler.json", {"scaler": SCALER, "sgd": SGD, "initial": initial, "steps": steps})


def uniform(draw, shape, size):
    if len(shape) == 1:
        return torch.tensor([draw.uniform(-size, size) for _ in range(shape[0])])
    return torch.stack([uniform(draw, shape[1:], size) for _ in range(shape[0])])
