"""Gradient accumulation with the original on one process and on two: weights after every batch."""

import random

import torch

from . import ranks
from .fixture_file import floats, write

STEPS = [1, 2, 4, 5]
RANKS = [1, 2]
#: 11 batches for one process and 6 for each of two, so that every count of steps leaves a tail.
SAMPLES = 22
BATCH_SIZE = 2
EPOCHS = 2
OPTIMIZER = {"lr": 0.05, "momentum": 0.9}
WIDTHS = [3, 4, 1]


def record(out):
    """Writes `accumulation.json`."""
    draw = random.Random(11)
    inputs = [[draw.uniform(-1, 1) for _ in range(WIDTHS[0])] for _ in range(SAMPLES)]
    inputs = torch.tensor(inputs)
    targets = torch.sin(inputs.sum(1, keepdim=True) * 2)
    initial = [torch.tensor(draw_weights(draw, shape)) for shape in shapes()]
    cases = []
    for world_size in RANKS:
        for steps in STEPS:
            answers = ranks.run(world_size, train, steps, inputs.tolist(), targets.tolist(), [floats(w) for w in initial])
            assert all(answer == answers[0] for answer in answers), "ranks disagree"
            cases.append({"ranks": world_size, "steps": steps, **answers[0]})
    content = {
        "batch_size": BATCH_SIZE,
        "epochs": EPOCHS,
        "optimizer": OPTIMIZER,
        "inputs": floats(inputs),
        "targets": floats(targets),
        "initial": [floats(weight) for weight in initial],
        "cases": cases,
    }
    write(out / "accumulation.json", content)


def shapes():
    first, hidden, last = WIDTHS
    return [(hidden, first), (hidden,), (last, hidden), (last,)]


def draw_weights(draw, shape):
    if len(shape) == 1:
        return [draw.uniform(-0.5, 0.5) for _ in range(shape[0])]
    return [draw_weights(draw, shape[1:]) for _ in range(shape[0])]


def train(rank, world_size, steps, inputs, targets, initial):
    """Trains as one of the ranks; weights and the synchronisation flag after every batch."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
    assert accelerator.num_processes == world_size
    first, hidden, last = WIDTHS
    model = torch.nn.Sequential(torch.nn.Linear(first, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, last))
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), initial):
            parameter.copy_(torch.tensor(values))
    optimizer = torch.optim.SGD(model.parameters(), fused=True, **OPTIMIZER)
    loader = DataLoader(TensorDataset(torch.tensor(inputs), torch.tensor(targets)), batch_size=BATCH_SIZE)
    plain = model
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    weights, syncs = [], []
    for _ in range(EPOCHS):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            syncs.append(accelerator.sync_gradients)
            weights.append([value for parameter in plain.parameters() for value in floats(parameter.flatten())])
    return {"syncs": syncs, "weights": weights}
