"""Folders that PyTorch's `fully_shard` (FSDP2) saves, and what training gives that goes on from there.

`sharded_checkpoint_N` is what `torch.distributed.checkpoint` writes on N ranks for a tiny Llama and
its AdamW after `STEPS_BEFORE` steps, under the names that the original's `save_state` uses. Rows of
some parameters cannot be shared evenly. From then on every rank trains on one batch, so that the
losses do not depend on the number of ranks that go on.

The files hold a number drawn at random, so their bytes differ each time; what is compared is what
training gives.
"""

import shutil

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from . import fixture_file, ranks
from .formula_weights import fill

CONFIG = {
    "vocab_size": 31, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12, "rope_theta": 100.0,
}
CLASS = "LlamaDecoderLayer"
SPREAD = 0.3
TRAINING = {"lr": 1e-2, "weight_decay": 0.1}
WORLDS = (2, 3)
STEPS_BEFORE, STEPS_AFTER = 3, 5
ROWS, TOKENS = 2, 8


def record(out):
    """Writes `sharded_checkpoints.json` and the folders."""
    out.mkdir(parents=True, exist_ok=True)
    checkpoints = []
    for world in WORLDS:
        folder = out / f"sharded_checkpoint_{world}"
        shutil.rmtree(folder, ignore_errors=True)
        answers = ranks.run(world, train_rank, str(folder))
        losses = answers[0]["losses_after"]
        if any(answer["losses_after"] != losses for answer in answers):
            raise AssertionError(f"ranks that train on one batch have different losses: {world} ranks")
        checkpoints.append({"folder": folder.name, "world_size": world, "losses": losses, "sums": answers[0]["sums"]})
    content = {
        "config": CONFIG,
        "class": CLASS,
        "training": TRAINING,
        "steps_before": STEPS_BEFORE,
        "batches": [token_ids(step, 0).tolist() for step in range(STEPS_BEFORE, STEPS_BEFORE + STEPS_AFTER)],
        "checkpoints": checkpoints,
    }
    fixture_file.write(out / "sharded_checkpoints.json", content)


def train_rank(rank, world_size, folder):
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world_size,))
    model = LlamaForCausalLM(LlamaConfig(**CONFIG, attn_implementation="sdpa")).train()
    fill(model, SPREAD)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=TRAINING["lr"], weight_decay=TRAINING["weight_decay"], fused=True
    )
    for number in range(STEPS_BEFORE):
        step(model, optimizer, token_ids(number, rank))
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights}, checkpoint_id=f"{folder}/pytorch_model_fsdp_0")
    dcp.save({"optimizer": moments}, checkpoint_id=f"{folder}/optimizer_0")
    whole = {name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()}
    after = range(STEPS_BEFORE, STEPS_BEFORE + STEPS_AFTER)
    return {
        "sums": {name: tensor.double().sum().item() for name, tensor in whole.items()},
        "losses_after": [step(model, optimizer, token_ids(number, 0)) for number in after],
    }


def step(model, optimizer, ids):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def token_ids(number, rank):
    """Words that follow each other by a rule, so that something can be learnt."""
    first = 5 * number + 11 * rank
    ids = [(first + 7 * row + 3 * token) % CONFIG["vocab_size"] for row in range(ROWS) for token in range(TOKENS)]
    return torch.tensor(ids).view(ROWS, TOKENS)
