#!/usr/bin/env python
"""The original's side of merging and converting weights.

`weight_files.py make DIR` writes into DIR what PyTorch and the original make:
- `pytorch_model_fsdp_0` and `optimizer_0`: distributed checkpoints of two processes
- `merged`, `merged_bin`, `merged_optimizer`: what the original's merging makes of them
- `state.bin`: a file of `torch.save` with tied, transposed and nested tensors
`weight_files.py check DIR` reads what ours made of these and compares, value by value:
- `ours_bin/pytorch_model.bin`, `ours_optimizer/pytorch_model.bin`: merged
- `ours_dcp`, `ours_shards_dcp`: `merged` as distributed checkpoints
- `ours_torch`: `merged` as shards of `torch.save`
- `ours_state.pt`: the part `model` of `state.bin`
- `ours_half.safetensors`: `merged` as float16
- `ours_tied_dcp`: the part `model` of `state.bin` as a distributed checkpoint
`weight_files.py large DIR BYTES` writes a distributed checkpoint of about so many bytes to
`DIR/checkpoint`: twelve layers that two processes hold by rows.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def main():
    command, folder, *rest = sys.argv[1:]
    folder = Path(folder)
    if command == "--rank":
        save_as_rank(folder, [int(size) for size in rest])
    elif command == "make":
        make(folder)
    elif command == "check":
        check(folder)
    elif command == "large":
        large(folder, int(rest[0]))
    else:
        sys.exit(__doc__)


def model():
    torch.manual_seed(3)
    return {
        "embed.weight": torch.randn(37, 16),
        "layers.0.weight": torch.randn(16, 24).bfloat16(),
        "layers.0.bias": torch.randn(24).half(),
        "layers.1.scale": torch.tensor(0.25, dtype=torch.float64),
        "position": torch.arange(12),
        "mask": torch.tensor([True, False, True]),
        "small": torch.randn(1, 3),
    }


def optimizer(weights):
    state = {
        name: {"step": torch.tensor(7.0), "exp_avg": torch.full_like(value, 0.5), "exp_avg_sq": value * value}
        for name, value in weights.items()
        if value.is_floating_point() and value.dim() > 0
    }
    groups = [{"lr": 0.01, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None, "params": list(state)}]
    return {"state": state, "param_groups": groups}


def start_ranks(folder, *sizes):
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [sys.executable, __file__, "--rank", str(folder), *map(str, sizes)]
        ranks.append(subprocess.Popen(words, env=env))
    if any([process.wait() for process in ranks]):
        sys.exit("a rank failed")


def make(folder):
    start_ranks(folder)
    from accelerate.utils import merge_fsdp_weights

    merge_fsdp_weights(str(folder / "pytorch_model_fsdp_0"), str(folder / "merged"))
    merge_fsdp_weights(str(folder / "pytorch_model_fsdp_0"), str(folder / "merged_bin"), safe_serialization=False)
    merge_fsdp_weights(str(folder / "optimizer_0"), str(folder / "merged_optimizer"), safe_serialization=False)
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    weights = {"base": base, "turned": base.t(), "tied": base, "row": base[2], "parameter": torch.nn.Parameter(base * 2)}
    torch.save({"model": weights, "epoch": 3}, folder / "state.bin")


def save_as_rank(folder, sizes):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))

    def cut(value):
        if isinstance(value, dict):
            return {key: cut(inner) for key, inner in value.items()}
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.is_floating_point():
            return distribute_tensor(value, mesh, [Shard(1 if value.shape[0] == 1 else 0)])
        return value

    if sizes:
        rows = max(2, sizes[0] // (12 * 1024 * 4))
        torch.manual_seed(0)
        weights = {f"layers.{index}.weight": cut(torch.rand(rows, 1024)) for index in range(12)}
        dcp.save({"model": weights}, checkpoint_id=str(folder / "checkpoint"))
    else:
        weights = model()
        dcp.save({"model": cut(weights)}, checkpoint_id=str(folder / "pytorch_model_fsdp_0"))
        dcp.save({"optimizer": cut(optimizer(weights))}, checkpoint_id=str(folder / "optimizer_0"))
    dist.barrier()
    dist.destroy_process_group()


def same(ours, theirs, name=""):
    """Demands equal types, shapes, bits and values, however deep."""
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
        assert torch.equal(ours, theirs), name
    elif isinstance(theirs, dict):
        assert sorted(ours) == sorted(theirs), (name, sorted(ours), sorted(theirs))
        for key, value in theirs.items():
            same(ours[key], value, f"{name}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs), name
        for index, value in enumerate(theirs):
            same(ours[index], value, f"{name}.{index}")
    else:
        assert ours == theirs and type(ours) is type(theirs), (name, ours, theirs)


def check(folder):
    from safetensors.torch import load_file

    merged = load_file(folder / "merged/model.safetensors")
    same(torch.load(folder / "ours_bin/pytorch_model.bin", weights_only=True), merged)
    theirs = torch.load(folder / "merged_optimizer/pytorch_model.bin", weights_only=True)
    same(torch.load(folder / "ours_optimizer/pytorch_model.bin", weights_only=True), theirs)

    for name in ("ours_dcp", "ours_shards_dcp"):
        loaded = {"model": {key: torch.zeros_like(value) for key, value in merged.items()}}
        dcp.load(loaded, checkpoint_id=str(folder / name))
        same(loaded["model"], merged)

    index = json.loads((folder / "ours_torch/pytorch_model.bin.index.json").read_text())
    joined = {}
    for file in sorted(set(index["weight_map"].values())):
        part = torch.load(folder / "ours_torch" / file, weights_only=True)
        assert all(index["weight_map"][key] == file for key in part)
        joined.update(part)
    same(joined, merged)
    model = torch.nn.Module()
    model.small = torch.nn.Parameter(torch.zeros(1, 3))
    from accelerate import load_checkpoint_in_model

    load_checkpoint_in_model(model, str(folder / "ours_torch"))
    same(model.small.data, merged["small"])

    state = torch.load(folder / "ours_state.pt", weights_only=True)
    theirs = torch.load(folder / "state.bin", weights_only=True)["model"]
    same(state, {key: value.detach() for key, value in theirs.items()})
    assert state["tied"].data_ptr() == state["base"].data_ptr()

    half = load_file(folder / "ours_half.safetensors")
    same(half, {key: value.half() if value.is_floating_point() else value for key, value in merged.items()})
    tied = {"model": {"base": torch.zeros(4, 6), "tied": torch.zeros(4, 6)}}
    dcp.load(tied, checkpoint_id=str(folder / "ours_tied_dcp"))
    same(tied["model"], {"base": theirs["base"], "tied": theirs["base"]})


def large(folder, size):
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    start_ranks(folder, size)


if __name__ == "__main__":
    main()
