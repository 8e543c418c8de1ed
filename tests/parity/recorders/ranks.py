"""Runs a function on several local processes and brings their answers back."""

import json
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing


def run(world_size, function, *arguments):
    """Calls `function(rank, world_size, *arguments)` in `world_size` new processes.

    Each call's result must be plain JSON data. Answers are given back in rank order.
    The usual rendezvous variables are set, so `init_process_group` and `Accelerator` just work.
    """
    with tempfile.TemporaryDirectory() as folder:
        job = (world_size, free_port(), folder, function, arguments)
        torch.multiprocessing.spawn(_rank_main, args=job, nprocs=world_size)
        answers = [Path(folder, f"{rank}.json").read_text(encoding="utf-8") for rank in range(world_size)]
    return [json.loads(answer) for answer in answers]


def free_port():
    """A TCP port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _rank_main(rank, world_size, port, folder, function, arguments):
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    answer = function(rank, world_size, *arguments)
    Path(folder, f"{rank}.json").write_text(json.dumps(answer), encoding="utf-8")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
