#!/usr/bin/env python
"""The Python side of the example `training_core`: the parts of a training loop one by one.

`loader` and `step` run on one process, `gather` and `accumulate` on two, started by `torchrun`.
Each rank writes what it measured to `PATH.rank{r}.json`: `measures` in seconds and bytes, and
`checks`, which must equal those of the other side, for only then both did the same work.
"""

import argparse
import itertools
import json
import statistics
import time
import warnings

import torch
from accelerate import Accelerator
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

clock = time.perf_counter


def main():
    parts = {"loader": loader_part, "step": step_part, "gather": gather_part, "accumulate": accumulate_part}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--bench-json", required=True, metavar="PATH")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    numbers = {"measures": {}, "checks": {}}
    parts[arguments.part](accelerator, numbers["measures"], numbers["checks"])
    with open(f"{arguments.bench_json}.rank{accelerator.process_index}.json", "w", encoding="utf-8") as file:
        json.dump(numbers, file)
    accelerator.wait_for_everyone()
    accelerator.end_training()


# The loader.

TEXTS, IMAGES, IMAGES_KEPT, BATCH, EPOCHS = 20_480, 10_240, 512, 32, 3


class Texts(Dataset):
    """Texts of 32 to 96 tokens as tensors, which is what pads fastest."""

    def __init__(self, samples):
        self.ids = [torch.arange(length) * 7 + index * 31 for index, length in enumerate(map(self.length, range(samples)))]
        self.ids = [ids % 30_000 + 1 for ids in self.ids]

    @staticmethod
    def length(index):
        return 32 + index * 37 % 65

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return self.ids[index], index % 2


def pad(rows):
    ids, labels = zip(*rows)
    lengths = torch.tensor([len(one) for one in ids])
    ids = pad_sequence(ids, batch_first=True)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor(labels)}


class Images(Dataset):
    """Images [3, 64, 64] with labels; some are kept, and longer epochs go through them again."""

    def __init__(self, samples):
        self.samples = samples
        pixels = torch.arange(IMAGES_KEPT * 3 * 64 * 64, dtype=torch.float32).remainder(251.0)
        self.kept = TensorDataset(pixels.view(IMAGES_KEPT, 3, 64, 64), torch.arange(IMAGES_KEPT).remainder(10))

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.kept[index % IMAGES_KEPT]


def loader_part(accelerator, measures, checks):
    for workers in (0, 2):
        options = {"batch_size": BATCH, "shuffle": True, "num_workers": workers}
        texts = accelerator.prepare(DataLoader(Texts(TEXTS), collate_fn=pad, **options))
        epochs(f"text_{workers}", texts, "input_ids", "labels", measures, checks)
        images = accelerator.prepare(DataLoader(Images(IMAGES), **options))
        epochs(f"image_{workers}", images, 0, 1, measures, checks)
    measures["image_copy_s"] = copy()


def copy():
    """What is left of loading an image where there is nothing but its copy into a batch that exists."""
    data, ready = Images(IMAGES), [None] * BATCH
    batch = torch.empty(BATCH, 3, 64, 64)
    following = itertools.count(37, 37)

    def before():
        ready[:] = [data[next(following) % IMAGES][0] for _ in range(BATCH)]

    return median_of(before, lambda: torch.stack(ready, out=batch)) / BATCH


def epochs(name, loader, values, labels, measures, checks):
    """The median over some epochs; one before warms up and adds up what it was handed."""
    total = 0.0
    for batch in loader:
        total += batch[values].sum(dtype=torch.float64).item() + batch[labels].sum(dtype=torch.float64).item()
    firsts, rests = [], []
    for _ in range(EPOCHS):
        begun = None
        samples = 0
        start = clock()
        for batch in loader:
            if begun is None:
                begun = last = clock()
                continue
            samples += len(batch[labels])
            last = clock()
        firsts.append(begun - start)
        rests.append((last - begun) / samples)
    measures[f"{name}_first_batch_s"] = statistics.median(firsts)
    measures[f"{name}_sample_s"] = statistics.median(rests)
    checks[f"{name}_sum"] = total


# The step.

TENSORS, ROUNDS, WARM_UP = 1_000, 200, 10


def step_part(accelerator, measures, checks):
    measures["kernel_s"] = kernel()
    for name, kernels in (("step", {}), ("fused_step", {"fused": True})):
        measures[f"{name}_s"], schedule = one_step(accelerator, kernels, checks)
        measures[f"{name}_overhead_s"] = measures[f"{name}_s"] - measures["kernel_s"]
        measures["schedule_s"] = median_of(lambda: None, schedule.step)


def one_step(accelerator, kernels, checks):
    from transformers import get_scheduler

    parameters, gradients = small_parameters()
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, **kernels)
    schedule = get_scheduler("cosine", optimizer, 10, 100_000)
    optimizer, schedule = accelerator.prepare(optimizer, schedule)

    def before():
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient

    def step():
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    median = median_of(before, step)
    checks["weight"] = parameters[0][0].item()
    return median, schedule


def kernel():
    """The fused kernel over lists that are ready."""
    parameters, gradients = small_parameters()
    averages, squares = ([torch.zeros(16) for _ in gradients] for _ in range(2))
    steps = list(torch.ones(TENSORS).unbind())
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 1e-2, "eps": 1e-8, "amsgrad": False, "maximize": False}

    @torch.no_grad()
    def call():
        torch._fused_adamw_(parameters, gradients, averages, squares, [], steps, **numbers)

    return median_of(lambda: None, call)


def small_parameters():
    return [torch.ones(16, requires_grad=True) for _ in range(TENSORS)], [torch.full((16,), 0.5) for _ in range(TENSORS)]


def median_of(before, work):
    times = []
    for number in range(WARM_UP + ROUNDS):
        before()
        start = clock()
        work()
        if number >= WARM_UP:
            times.append(clock() - start)
    return statistics.median(times)


# Metrics.

GATHER_BATCH, GATHER_STEPS, LEFT = 64, 400, 7


def gather_part(accelerator, measures, checks):
    samples = GATHER_STEPS * accelerator.num_processes * GATHER_BATCH + LEFT
    loader = accelerator.prepare(DataLoader(list(range(samples)), batch_size=GATHER_BATCH))
    label_times, score_times = [], []
    total = rows = 0
    for labels in loader:
        scores = labels.unsqueeze(1).float().repeat(1, 128)
        start = clock()
        labels = accelerator.gather_for_metrics(labels)
        label_times.append(clock() - start)
        start = clock()
        scores = accelerator.gather_for_metrics(scores)
        score_times.append(clock() - start)
        total += labels.sum().item()
        rows += len(scores)
    measures["gather_labels_s"] = statistics.median(label_times)
    measures["gather_scores_s"] = statistics.median(score_times)
    checks["gathered_sum"], checks["gathered_rows"] = total, rows


# Accumulation.

WIDTH, LAYERS, ACCUMULATED, BATCHES = 256, 4, 4, 400
ACCUMULATE_WARM_UP = 5 * ACCUMULATED


def accumulate_part(accelerator, measures, checks):
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.gradient_accumulation_steps = ACCUMULATED
    data = torch.full((BATCH, WIDTH), 0.5)
    kinds = {"local": ([], []), "exchanged": ([], [])}
    for number in range(ACCUMULATE_WARM_UP + BATCHES):
        sent = written()
        start = clock()
        with accelerator.accumulate(model):
            loss = model(data).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        duration = clock() - start
        if number >= ACCUMULATE_WARM_UP:
            times, sizes = kinds["exchanged" if accelerator.sync_gradients else "local"]
            times.append(duration)
            sizes.append(written() - sent)
    for name, (times, sizes) in kinds.items():
        checks[f"{name}_batches"] = len(times)
        measures[f"{name}_bytes"] = sum(sizes) // len(sizes)
        measures[f"{name}_s"] = statistics.median(times)


def written():
    """How many bytes this process has written: to connections, for it writes nothing else here."""
    with open("/proc/self/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar:"))


if __name__ == "__main__":
    main()
