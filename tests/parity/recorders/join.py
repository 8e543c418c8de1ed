"""Weights after training with a different number of batches on each rank."""

import contextlib

import torch
import torch.distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from . import ranks
from .fixture_file import floats, write

#: name -> (batches of each rank, DDP options, ranks that use the spare weight, accumulation steps)
CASES = {
    "last_rank_longest": ([3, 5], {}, [0, 1], 1),
    "first_rank_longest": ([4, 1], {}, [0, 1], 1),
    "equal": ([3, 3], {}, [0, 1], 1),
    "first_rank_has_none": ([0, 3], {}, [0, 1], 1),
    "last_rank_has_none": ([3, 0], {}, [0, 1], 1),
    "three_ranks": ([2, 4, 3], {}, [0, 1, 2], 1),
    "three_ranks_tie": ([4, 2, 4], {}, [0, 1, 2], 1),
    "no_buffers": ([2, 4], {"broadcast_buffers": False}, [0, 1], 1),
    "bucket_views": ([2, 4], {"gradient_as_bucket_view": True}, [0, 1], 1),
    "never_used": ([2, 4], {"find_unused_parameters": True}, [], 1),
    "used_by_one": ([2, 4], {"find_unused_parameters": True}, [1], 1),
    "accumulated": ([2, 5], {}, [0, 1], 2),
}
LEARNING_RATE = 0.125


def record(out):
    """Writes `join.json`."""
    found = {}
    for world in (2, 3):
        names = [name for name, (batches, *_) in CASES.items() if len(batches) == world]
        on_ranks = ranks.run(world, train_all, names)
        found.update({name: [one[name] for one in on_ranks] for name in names})
    cases = [describe(name, found[name]) for name in CASES]
    write(out / "join.json", {"learning_rate": LEARNING_RATE, "cases": cases})


def describe(name, on_ranks):
    batches, options, spare, accumulate = CASES[name]
    settings = {"batches": batches, "options": options, "spare": spare, "accumulate": accumulate}
    return {"name": name, **settings, "ranks": on_ranks}


def train_all(rank, world_size, names):
    torch.distributed.init_process_group("gloo")
    return {name: train(rank, *CASES[name]) for name in names}


class Model(torch.nn.Module):
    """Two weights, one of which a rank may leave out, and a buffer that differs over ranks."""

    def __init__(self, rank):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        self.spare = torch.nn.Parameter(torch.tensor([0.25, -1.0, 2.0]))
        self.register_buffer("seen", torch.zeros(1))
        self.rank = rank

    def forward(self, x, with_spare):
        self.seen.add_(self.rank + 1)
        loss = (self.weight * x).sum() + (self.weight * self.weight).sum() / 2
        return loss + (self.spare * x[:3]).sum() if with_spare else loss


def batch(step, rank):
    index = torch.arange(4)
    return ((index * 5 + step * 7 + rank * 3) % 11 - 5).to(torch.float32) / 3


def train(rank, batches, options, spare, accumulate):
    parallel = DistributedDataParallel(Model(rank), **options)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=LEARNING_RATE)
    with Join([parallel]):
        for step in range(batches[rank]):
            syncs = (step + 1) % accumulate == 0
            with contextlib.nullcontext() if syncs else parallel.no_sync():
                parallel(batch(step, rank), rank in spare).backward()
            if syncs:
                optimizer.step()
                optimizer.zero_grad()
    model = parallel.module
    return {name: floats(getattr(model, name)) for name in ("weight", "spare", "seen")}
