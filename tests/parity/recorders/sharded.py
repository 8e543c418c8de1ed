"""Trains a tiny BERT in shards with PyTorch's `fully_shard` (FSDP2) and writes down every step.

Model, starting weights and batches are those of `bert_finetune.json`, so what is compared is the
sharding alone. Each `BertLayer` is a unit and the model is the last one. The loss of a batch is
divided by the number of batches that are accumulated; gradients are reduced with the last of them.
Dropping gathered parameters after the forward pass or keeping them must give the same bits, which
is checked here.

The gradient of a key's bias is zero but for rounding, and AdamW makes steps of such noise: these
parameters have no effect on any output, and their values are left out.
"""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from . import bert_finetune, ranks
from .fixture_file import sha256, write

CLASS = "BertLayer"
TRAINING = {"steps": 20, "lr": 5e-4, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-8}
WORLDS = (1, 2, 3)
#: Batches for each step of the optimizer, and the norm that gradients are clipped to.
CASES = [(1, None), (1, 1.0), (2, 1.0)]
NO_EFFECT = "attention.self.key.bias"


def record(out):
    """Writes `sharded.json`; leaves the weights of `bert_finetune` beside it, which it needs."""
    batches = bert_finetune.all_batches()
    weights = out / bert_finetune.WEIGHTS
    if not weights.exists():
        out.mkdir(parents=True, exist_ok=True)
        bert_finetune.save_file(bert_finetune.initial_weights(), weights, metadata={"format": "pt"})
    runs = [run for world in WORLDS for run in runs_of(world, str(weights), batches)]
    content = {
        "batches_of": "bert_finetune.json",
        "weights": bert_finetune.WEIGHTS,
        "class": CLASS,
        "training": TRAINING,
        "parameters": kept_names(bert_finetune.load_model(str(weights))),
        "runs": runs,
    }
    write(out / "sharded.json", content)


def runs_of(world_size, weights, batches):
    """One run for each case; each was made twice, with and without dropping after the forward pass."""
    answers = ranks.run(world_size, train_rank, weights, batches)
    for number, (accumulation, max_norm) in enumerate(CASES):
        dropped, kept = ([answer[reshard][number] for answer in answers] for reshard in ("dropped", "kept"))
        if dropped != kept:
            raise AssertionError(f"what is kept after the forward pass changes numbers: {world_size} ranks")
        first = dropped[0]
        yield {
            "world_size": world_size,
            "accumulation": accumulation,
            "max_norm": max_norm,
            "ranks": [{"losses": one["losses"]} for one in dropped],
            "grad_norms": first["grad_norms"],
            "params_sha256": first["params_sha256"],
            "norms": first["norms"],
            "first_values": first["first_values"],
        }


def train_rank(rank, world_size, weights, batches):
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world_size,))

    def all_cases(reshard):
        return [train(rank, mesh, weights, batches, case, reshard) for case in CASES]

    return {"dropped": all_cases(True), "kept": all_cases(False)}


def train(rank, mesh, weights, batches, case, reshard):
    """Trains as one of the ranks."""
    accumulation, max_norm = case
    model = bert_finetune.load_model(weights)
    for layer in model.bert.encoder.layer:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=TRAINING["lr"],
        betas=tuple(TRAINING["betas"]),
        eps=TRAINING["eps"],
        weight_decay=TRAINING["weight_decay"],
        fused=True,
    )
    losses, norms = [], []
    for number in range(TRAINING["steps"] * accumulation):
        is_last = (number + 1) % accumulation == 0
        model.set_requires_gradient_sync(is_last)
        loss = model(**bert_finetune.as_tensors(batch_of(batches, number, rank))).loss
        losses.append(loss.item())
        (loss / accumulation).backward()
        if not is_last:
            continue
        if max_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            norms.append(norm.full_tensor().item())
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "grad_norms": norms, **described(model)}


def batch_of(batches, number, rank):
    """Ranks behind the second read the batches of the first two, half a round later."""
    return batches[(number + 10 * (rank // bert_finetune.RANKS)) % len(batches)][rank % bert_finetune.RANKS]


def described(model):
    """The whole parameters: a checksum over all, norms and first values of those with an effect."""
    whole = {name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()}
    kept = [tensor for name, tensor in whole.items() if not name.endswith(NO_EFFECT)]
    return {
        "params_sha256": sha256(whole.values()),
        "norms": [tensor.double().norm().item() for tensor in kept],
        "first_values": [tensor.flatten()[0].item() for tensor in kept],
    }


def kept_names(model):
    return [name for name, _ in model.named_parameters() if not name.endswith(NO_EFFECT)]
