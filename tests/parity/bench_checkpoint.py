#!/usr/bin/env python
"""The Python side of the example `training_core checkpoint`: saving and loading a training's state.

The original leaves what it writes to the system's cache, and ours waits for the disk, so the time
until the disk has everything is measured too.
"""

import argparse
import json
import os
import shutil
import statistics
import time

import torch
from accelerate import Accelerator

WIDTH, LAYER_BYTES, TIMES = 1024, 3 * 4 * 1024 * 1024, 3
clock = time.perf_counter


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench-json", required=True, metavar="PATH")
    parser.add_argument("--folder", required=True, help="is made, and removed")
    parser.add_argument("--megabytes", type=int, required=True, help="of weights and moments")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    layers = -(-arguments.megabytes * 1_000_000 // LAYER_BYTES)
    accelerator = Accelerator(cpu=True)
    model, optimizer = job(accelerator, layers)
    target = os.path.join(arguments.folder, "saved")
    saves = [save(accelerator, target) for _ in range(TIMES)]
    saved = mean(model)
    measures = {
        "save_s": statistics.median(time for time, _ in saves),
        "flushed_save_s": statistics.median(time for _, time in saves),
        "load_s": statistics.median(load(accelerator, target) for _ in range(TIMES)),
    }
    checks = {"layers": layers, "restored": float(mean(model) == saved)}
    with open(f"{arguments.bench_json}.rank0.json", "w", encoding="utf-8") as file:
        json.dump({"measures": measures, "checks": checks}, file)
    shutil.rmtree(arguments.folder)
    accelerator.end_training()


def job(accelerator, layers):
    """A model and an optimizer that has stepped once."""
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    with torch.no_grad():
        for number, layer in enumerate(model, start=1):
            layer.weight.fill_(number * 1e-3)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for parameter in model.parameters():
        accelerator.backward(parameter.mean())
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def save(accelerator, target):
    """Seconds until the call returns, and until the disk has it."""
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    start = clock()
    accelerator.save_state(target)
    returned = clock() - start
    for name in os.listdir(target):
        with open(os.path.join(target, name), "rb") as file:
            os.fsync(file.fileno())
    return returned, clock() - start


def load(accelerator, target):
    start = clock()
    accelerator.load_state(target)
    return clock() - start


def mean(model):
    return torch.stack([parameter.detach().mean(dtype=torch.float64) for parameter in model.parameters()]).mean().item()


if __name__ == "__main__":
    main()
