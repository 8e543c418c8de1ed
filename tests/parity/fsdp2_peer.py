#!/usr/bin/env python
"""PyTorch's own side of `crates/accelerate/tests/sharded/parity.rs`: one rank of a job over gloo.

    fsdp2_peer.py train FOLDER   trains the model in FOLDER/first with FSDP 2, and writes the losses of
                                 this rank and, on rank 0, the weights
    fsdp2_peer.py read FOLDER    reads the distributed checkpoint in FOLDER/state, and compares it with
                                 the weights in FOLDER/before
"""

import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

WORDS, WIDTH, HIDDEN, BLOCKS = 50, 32, 73, 3
STEPS = 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, HIDDEN)
        self.second = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(number, rank):
    """The same words as the Rust side's."""
    random, words = number * 64 + rank, []
    for _ in range(4 * 9):
        random = (random * 6364136223846793005 + 1442695040888963407) % 2**64
        words.append((random >> 40) % WORDS)
    return torch.tensor(words).view(4, 9)


def train(folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = Model()
    model.load_state_dict(load_file(f"{folder}/first/model.safetensors"))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    named = list(model.named_parameters())
    decays = [one for name, one in named if not name.endswith("bias")]
    others = [one for name, one in named if name.endswith("bias")]
    groups = [
        {"params": decays, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0, "lr": 2e-3},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    losses = []
    for step in range(STEPS):
        ids = batch(step, rank)
        logits = model(ids[:, :8])
        loss = F.cross_entropy(logits.reshape(-1, WORDS), ids[:, 1:].reshape(-1))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with open(f"{folder}/losses-{rank}.json", "w") as file:
        json.dump(losses, file)
    whole = {name: one.full_tensor().detach().contiguous() for name, one in model.named_parameters()}
    if rank == 0:
        os.makedirs(f"{folder}/theirs")
        save_file(whole, f"{folder}/theirs/model.safetensors", metadata={"format": "pt"})
    dist.barrier()
    dist.destroy_process_group()


def read(folder):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(f"{folder}/state/pytorch_model_fsdp_0", f"{folder}/model.pt")
    found = torch.load(f"{folder}/model.pt")["model"]
    expected = load_file(f"{folder}/before/model.safetensors")
    assert set(expected) <= set(found), set(expected) - set(found)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    dcp_to_torch_save(f"{folder}/state/optimizer_0", f"{folder}/optimizer.pt")
    optimizer = torch.load(f"{folder}/optimizer.pt")["optimizer"]
    trained = [name for group in optimizer["param_groups"] for name in group["params"]]
    for name in trained:
        state = optimizer["state"][name]
        assert state["step"].item() == 3, state["step"]
        assert state["exp_avg"].shape == expected[name].shape, name
        assert state["exp_avg_sq"].min() >= 0, name


if __name__ == "__main__":
    {"train": train, "read": read}[sys.argv[1]](sys.argv[2])
    print("PEER OK", flush=True)
