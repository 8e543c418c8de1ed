#!/usr/bin/env python
"""One plain `torch.distributed` rank (gloo) for a group that mixes Python and Rust processes.

Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; at least 2 ranks. Every rank must make the
same calls in this order; README.md lists them with their values. With the argument `ddp` only
those of data parallel and what follows them are made, `differ` gives this rank another model. Ends with `MIXED OK <sum>`
and exit code 0, or names the first wrong result and exits with 1.
"""

import datetime
import os
import sys
import warnings

# One thread: two ranks share a small machine, and sums come out in one order.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# The newest PyTorch renames two of these collectives; older ones know the old names only.
warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")

TIMEOUT = datetime.timedelta(seconds=60)
LEARNING_RATE = 0.1
#: Two, because the reducer rebuilds its buckets after the first backward pass.
TRAINING_STEPS = 2


def main():
    dist.init_process_group("gloo", init_method="env://", timeout=TIMEOUT)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if not sys.argv[1:]:
        collectives(rank, world_size)
        subgroup(rank)
        one_tensor_collectives(rank, world_size)
    total = data_parallel(rank, world_size, hidden=17 if "differ" in sys.argv[1:] else 16)
    print(f"MIXED OK {total:.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def check(what, found, expected):
    """Ends this rank with exit code 1 where a result is not exactly the expected one."""
    expected = torch.tensor(expected, dtype=torch.float32)
    if not torch.equal(found, expected):
        sys.exit(f"rank {dist.get_rank()}: {what}: expected {expected.tolist()}, found {found.tolist()}")


def collectives(rank, world_size):
    """All-reduce, broadcast, all-gather."""
    total = torch.tensor([2.0, 10.0]) * (rank + 1)
    dist.all_reduce(total)
    factor = world_size * (world_size + 1) / 2
    check("all_reduce", total, [2 * factor, 10 * factor])

    shared = torch.arange(5, dtype=torch.float32) if rank == 0 else torch.full((5,), -1.0)
    dist.broadcast(shared, src=0)
    check("broadcast", shared, [0, 1, 2, 3, 4])

    mine = torch.tensor([rank, rank + 0.5], dtype=torch.float32)
    everyone = [torch.empty(2) for _ in range(world_size)]
    dist.all_gather(everyone, mine)
    check("all_gather", torch.stack(everyone), [[r, r + 0.5] for r in range(world_size)])


def subgroup(rank):
    """A group of ranks 0 and 1. All ranks must create it, its members alone use it."""
    pair = dist.new_group([0, 1], timeout=TIMEOUT)
    if rank < 2:
        value = torch.tensor([rank + 1.0])
        dist.all_reduce(value, group=pair)
        check("all_reduce in the sub-group", value, [3])


def one_tensor_collectives(rank, world_size):
    """All-gather into one tensor, reduce-scatter of one tensor."""
    mine = torch.tensor([rank + 1.0, rank + 1.25, rank + 1.5])
    gathered = torch.empty(3 * world_size)
    dist.all_gather_into_tensor(gathered, mine)
    check("all_gather_into_tensor", gathered, [r + 1 + part for r in range(world_size) for part in (0, 0.25, 0.5)])

    # Element i of rank r is i + 10 r; the sum of a column is n i + 10 (0 + 1 + .. + n-1).
    everything = torch.arange(2 * world_size, dtype=torch.float32) + 10 * rank
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, everything)
    tens = 10 * world_size * (world_size - 1) / 2
    check("reduce_scatter_tensor", part, [world_size * i + tens for i in (2 * rank, 2 * rank + 1)])


def data_parallel(rank, world_size, hidden):
    """Two training steps; then all ranks must hold the same bits. Gives the parameters' sum."""
    # The seed differs by rank on purpose: the wrapper must broadcast rank 0's values.
    torch.manual_seed(rank)
    network = torch.nn.Sequential(torch.nn.Linear(8, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 4))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, fused=True)
    inputs = torch.arange(32, dtype=torch.float32).reshape(4, 8) / 32 + rank
    losses = []
    for _ in range(TRAINING_STEPS):
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if not losses[-1] < losses[0]:
        sys.exit(f"rank {rank}: data parallel: the loss did not fall: {losses}")

    flat = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(world_size)]
    dist.all_gather(everyone, flat)
    for other, parameters in enumerate(everyone):
        if not torch.equal(parameters, flat):
            gap = (parameters - flat).abs().max().item()
            sys.exit(f"rank {rank}: data parallel: parameters differ from those of rank {other} by up to {gap}")
    return flat.double().sum().item()


if __name__ == "__main__":
    main()
