#!/usr/bin/env python
"""The Python side of the example `model_pace` where it trains on several ranks: PyTorch alone.

    torchrun --nproc_per_node 2 bench_sharded.py full_shard --size small --bench-json PATH

`full_shard` is `fully_shard` (FSDP2) that drops parameters after the forward pass, `shard_grad_op`
the same without, `ddp` is `DistributedDataParallel`. Each `LlamaDecoderLayer` is a unit. Sizes are
in `bench_sharded.json`, which both sides read. Writes `PATH.rank{r}.json` with objects `measures`
(seconds and bytes) and `checks`, which must equal those of the other side.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

clock = time.perf_counter

SIZES = Path(__file__).with_name("bench_sharded.json")
PARTS = ("ddp", "shard_grad_op", "full_shard")
LEARNING_RATE = 1e-4
#: So many losses are compared with the other side's.
COMPARED = 3


def main():
    arguments = parse_arguments()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    numbers = measured(arguments.part, json.loads(SIZES.read_text())[arguments.size])
    with open(f"{arguments.bench_json}.rank{dist.get_rank()}.json", "w", encoding="utf-8") as file:
        json.dump(numbers, file)
    dist.barrier()
    dist.destroy_process_group()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--bench-json", required=True, metavar="PATH")
    parser.add_argument("--size", required=True, choices=json.loads(SIZES.read_text()))
    return parser.parse_args()


def measured(part, setting):
    import torch
    import torch.distributed as dist

    plain = model_of(setting["config"])
    count = sum(one.numel() for one in plain.parameters())
    model = on_several_ranks(part, plain)
    # The fused kernel is not the default on a CPU, and the faster one.
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    ids = token_ids(setting, dist.get_rank())
    losses, times, sent = [], [], []
    for number in range(setting["warm_up"] + setting["steps"]):
        before, start = written(), clock()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if number >= setting["warm_up"]:
            times.append(clock() - start)
            sent.append(written() - before)
    checks = {f"{part}_parameters": float(count)}
    for number, loss in enumerate(losses[:COMPARED], start=1):
        checks[f"{part}_loss_{number}"] = float(round(loss * 100))
    return {
        "measures": {
            f"{part}_step_s": statistics.median(times),
            f"{part}_peak_bytes": peak_memory(),
            f"{part}_sent_bytes": statistics.median(sent),
        },
        "checks": checks,
    }


def model_of(config):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**config, attn_implementation="sdpa")).train()


def on_several_ranks(part, model):
    import torch
    import torch.distributed as dist

    if part == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    drops = part == "full_shard"
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=drops)
    # As by default: what the root has is kept until the backward pass.
    fully_shard(model, mesh=mesh, reshard_after_forward=None if drops else False)
    return model


def token_ids(setting, rank):
    """Ids that differ from row to row and from rank to rank."""
    import torch

    count = setting["rows"] * setting["tokens"]
    ids = (torch.arange(count) + count * rank) * 7 % (setting["config"]["vocab_size"] - 3) + 2
    return ids.view(setting["rows"], setting["tokens"])


def written():
    """How many bytes this process has written: to connections, for it writes nothing else here."""
    with open("/proc/self/io", encoding="ascii") as file:
        for line in file:
            if line.startswith("wchar:"):
                return int(line.split()[1])
    sys.exit("no `wchar` in `/proc/self/io`")


def peak_memory():
    """The most memory that this process held, in bytes.

    `ru_maxrss` would count what the launcher had when it started this process.
    """
    with open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    sys.exit("no `VmHWM` in `/proc/self/status`")


if __name__ == "__main__":
    main()
