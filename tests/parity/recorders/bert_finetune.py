"""Fine-tunes a tiny BERT on one process and on two and writes down every step.

The exact order of operations, for another implementation that wants the same bits
(transformers 5.24.0, `BertForSequenceClassification`, float32, `attn_implementation="sdpa"`):

Embeddings
  1. words     = embedding(word_embeddings, input_ids, padding_idx = pad_token_id = 0)
                 (the padding index matters in backward only: row 0 gets no gradient)
  2. x         = words + embedding(token_type_embeddings, token_type_ids)     [batch, seq, hidden]
  3. x         = x + embedding(position_embeddings, arange(seq) as [1, seq])  position ids are
                 never expanded over the batch; the add broadcasts, its backward sums over batch
  4. x         = layer_norm(x, [hidden], LayerNorm.weight, LayerNorm.bias, eps = 1e-12)
  5. dropout   with p = 0 returns its input

Mask (once per forward, shared by all layers)
  6. keep      = attention_mask as bool [batch, seq]
  7. if all of `keep` is true the mask is dropped: attention gets no mask at all
  8. else      mask = keep as bool [batch, 1, seq(query), seq(key)], materialised over the query
                 axis and not over the heads; true means "may be attended to". Padding queries are
                 not masked, only padding keys. It stays boolean up to the attention call, which
                 turns it into 0 and -inf. (The "eager" way adds the lowest float32 instead.)
                 The bits of this recording stay the same with a mask of [batch, 1, 1, seq], with
                 a float mask of 0 and the lowest float32, and without dropping it in point 7.

Each layer, in this order (the order fixes the order in which autograd sums gradients)
  9. query     = linear(x, query.weight, query.bias).view(batch, seq, heads, -1).transpose(1, 2)
 10. key       the same with key.*
 11. value     the same with value.*
 12. context   = scaled_dot_product_attention(query, key, value, mask, dropout_p = 0,
                 is_causal = false, scale = head_size ** -0.5); no `contiguous` on its inputs
 13. context   = context.transpose(1, 2).contiguous().reshape(batch, seq, hidden)
 14. a         = linear(context, attention.output.dense.*); dropout
 15. a         = layer_norm(a + x, attention.output.LayerNorm.*, eps)
 16. h         = gelu(linear(a, intermediate.dense.*))    the exact erf form, approximate = "none"
 17. o         = linear(h, output.dense.*); dropout
 18. x         = layer_norm(o + a, output.LayerNorm.*, eps)

Head
 19. pooled    = tanh(linear(x.select(1, 0), pooler.dense.*))    the slice is not made contiguous
 20. logits    = linear(dropout(pooled), classifier.*)
 21. loss      = cross_entropy(logits.view(-1, labels), labels): mean over the batch, no class
                 weights, ignore_index = -100, no label smoothing

`linear` is `torch.nn.functional.linear` (one `addmm` on the input viewed as two-dimensional).

Training step: forward, loss, backward (two processes: DistributedDataParallel with its defaults,
so each gradient is divided by the number of ranks and summed over them), the gradient norm is
only looked at (no clipping), AdamW with the fused kernel on all parameters in one group (biases
and norms are decayed too), schedule step, gradients set to none.
"""

import random

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

from . import ranks
from .fixture_file import floats, sha256, write

WEIGHTS = "bert_tiny.safetensors"
MODEL = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "num_labels": 2,
}
ATTENTION = "sdpa"
TRAINING = {
    "steps": 20,
    "warmup_steps": 4,
    "lr": 5e-4,
    "weight_decay": 0.01,
    "betas": [0.9, 0.999],
    "eps": 1e-8,
    "batch_size": 8,
}
RANKS = 2
#: At this step no sequence is padded, so the mask is dropped (point 7 above).
UNPADDED_STEP = 6


def record(out):
    """Writes `bert_finetune.json` and the starting weights `bert_tiny.safetensors`."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(initial_weights(), out / WEIGHTS, metadata={"format": "pt"})
    (out / WEIGHTS).chmod(0o644)
    batches = all_batches()
    weights = str(out / WEIGHTS)
    model = load_model(weights)
    content = {
        "model": MODEL,
        "attention": ATTENTION,
        "training": TRAINING,
        "weights": WEIGHTS,
        "parameters": {name: list(parameter.shape) for name, parameter in model.named_parameters()},
        "initial_params_sha256": sha256(model.parameters()),
        "first_grad_norms": first_gradient_norms(model, batches[0][0]),
        "runs": [run(1, weights, batches), run(RANKS, weights, batches)],
        "batches": batches,
    }
    write(out / "bert_finetune.json", content)


def run(world_size, weights, batches):
    answers = ranks.run(world_size, train_rank, weights, batches)
    return {"world_size": world_size, "ranks": answers}


def train_rank(rank, world_size, weights, batches):
    """Trains as one of the ranks; the answer holds one entry for each step."""
    model = load_model(weights)
    trained = model
    if world_size > 1:
        torch.distributed.init_process_group("gloo")
        trained = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=TRAINING["lr"],
        betas=tuple(TRAINING["betas"]),
        eps=TRAINING["eps"],
        weight_decay=TRAINING["weight_decay"],
        fused=True,
    )
    scheduler = get_linear_schedule_with_warmup(optimizer, TRAINING["warmup_steps"], TRAINING["steps"])
    seen = {"lr": [], "losses": [], "grad_norms": [], "params_sha256": []}
    for step in range(TRAINING["steps"]):
        output = trained(**as_tensors(batches[step][rank]))
        output.loss.backward()
        seen["lr"].append(optimizer.param_groups[0]["lr"])
        seen["losses"].append(output.loss.item())
        seen["grad_norms"].append(total_norm(model))
        if step == 0:
            seen["first_logits"] = floats(output.logits)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        seen["params_sha256"].append(sha256(model.parameters()))
    return seen


def load_model(weights):
    """The model in training mode with the recorded weights."""
    model = BertForSequenceClassification(BertConfig(**MODEL, attn_implementation=ATTENTION))
    model.load_state_dict(load_file(weights), strict=True)
    return model.train()


def as_tensors(batch):
    return {name: torch.tensor(values, dtype=torch.int64) for name, values in batch.items()}


def total_norm(model):
    """The 2-norm over all gradients, as gradient clipping would measure it."""
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()


def first_gradient_norms(model, batch):
    """Per parameter: the gradient's norm in the very first step; finds a wrong layer quickly."""
    model(**as_tensors(batch)).loss.backward()
    norms = {name: p.grad.double().norm().item() for name, p in model.named_parameters()}
    model.zero_grad()
    return norms


def initial_weights():
    """Weights from Python's generator (the same on every machine), in `named_parameters` order.

    Biases and norms are not left at 0 and 1, so that a swapped pair cannot go unnoticed.
    """
    draw = random.Random(20)
    shapes = BertForSequenceClassification(BertConfig(**MODEL)).named_parameters()
    return {name: initial_tensor(draw, name, parameter.shape) for name, parameter in shapes}


def initial_tensor(draw, name, shape):
    centre = 1.0 if name.endswith("LayerNorm.weight") else 0.0
    # Larger than BERT's own 0.02, as this model is small: the losses should tell steps apart.
    spread = 0.05 if len(shape) == 1 else 0.15
    values = [draw.uniform(centre - spread, centre + spread) for _ in range(shape.numel())]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def all_batches():
    """`batches[step][rank]`, made so that something can be learnt from them."""
    draw = random.Random(21)
    return [[one_batch(draw, step) for _ in range(RANKS)] for step in range(TRAINING["steps"])]


def one_batch(draw, step):
    longest = draw.randint(16, 24)
    padded = step != UNPADDED_STEP
    lengths = [draw.randint(6, longest) if padded else longest for _ in range(TRAINING["batch_size"])]
    # One row always fills the batch, as it does when padding to the longest.
    lengths[draw.randrange(len(lengths))] = longest
    batch = {"input_ids": [], "attention_mask": [], "token_type_ids": [], "labels": []}
    for length in lengths:
        label = draw.randint(0, 1)
        tokens = [one_token(draw, label) for _ in range(length - 2)]
        padding = [0] * (longest - length)
        second = length // 3
        batch["input_ids"].append([1, *tokens, 2, *padding])
        batch["attention_mask"].append([1] * length + padding)
        batch["token_type_ids"].append([0] * (length - second) + [1] * second + padding)
        batch["labels"].append(label)
    return batch


def one_token(draw, label):
    """Ids 0, 1 and 2 are padding, start and end; label 1 prefers the upper half of the rest."""
    half = MODEL["vocab_size"] // 2
    upper = (draw.random() < 0.7) == bool(label)
    return draw.randrange(half, 2 * half) if upper else draw.randrange(3, half)
