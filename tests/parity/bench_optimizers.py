#!/usr/bin/env python
"""The Python side of the example `optimizer_step`: medians of 50 steps over 1,000 small tensors, in microseconds."""

import statistics
import time
import warnings

import torch
import transformers

TENSORS, STEPS = 1000, 50


def median(call):
    for _ in range(5):
        call()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parameters = [torch.ones(16, requires_grad=True) for _ in range(TENSORS)]
    sum(p.sum() for p in parameters).backward()
    optim = torch.optim
    for name, kind, options in [
        ("SGD", optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
        ("Adam", optim.Adam, {}),
        ("AdamW", optim.AdamW, {}),
        ("Adagrad", optim.Adagrad, {}),
        ("RMSprop", optim.RMSprop, {}),
    ]:
        columns = []
        for kernels in ({}, {"foreach": True}, {"fused": True}):
            try:
                columns.append(f"{median(kind(parameters, **options, **kernels).step):8.0f}")
            except TypeError:
                columns.append("       -")
        print(f"{name:<10} plain {columns[0]} foreach {columns[1]} fused {columns[2]}")
    print(f"{'Adafactor':<10} plain {median(transformers.Adafactor(parameters).step):8.0f}")
    optimizer = optim.SGD(parameters, lr=1e-3)
    schedule = transformers.get_scheduler("cosine", optimizer, 10, 10_000)
    print(f"{'cosine':<10} plain {median(schedule.step):8.2f}")


if __name__ == "__main__":
    main()
