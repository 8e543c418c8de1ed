"""MiniLM with its public weights: tokenizer, hidden states and a few fine-tuning steps.

Skipped, saying so, where the model folder is absent: it is 90 MB and is never committed.
The folder is `.data/minilm` in the repository root, or what PARITY_MINILM names.
"""

import os
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import BertForSequenceClassification, BertModel, get_linear_schedule_with_warmup

from .fixture_file import floats, write

DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / ".data" / "minilm"
MAX_LENGTH = 128
SENTENCES = [
    "A quiet, funny film that earns every one of its tears.",
    "Two hours of my life went by and nothing happened.",
    "Well.",
]
ODD_TEXTS = [
    "",
    "   \t\n ",
    "Crème brûlée, Ærø — naïve façade… 9½ weeks’ “worth”",
    "映画は最高だった! 🎬👍🏽 100%",
    "it's un-be-liev-able!!! (really?) http://a.b/c?d=e&f=g [SEP] [MASK]",
    "word " * 300,
    "x" * 120,
]
#: (text, label); five batches of four.
REVIEWS = [
    ("a warm and clever comedy with a heart", 1),
    ("the plot collapses long before the end does", 0),
    ("she gives the performance of the year", 1),
    ("dull, loud and endlessly pleased with itself", 0),
    ("every frame is a painting", 1),
    ("i kept looking at my watch, and so did my neighbours", 0),
    ("sharp dialogue, sharper editing", 1),
    ("not even the dog can save this one", 0),
    ("an adventure that children and grandparents will both enjoy", 1),
    ("lazy", 0),
    ("it lingers in the mind for days", 1),
    ("the jokes were old when cinema was young", 0),
    ("tender without ever turning sweet", 1),
    ("a film made by a committee that never met", 0),
    ("i laughed until it hurt", 1),
    ("so much money, so little to show for it", 0),
    ("a small miracle of patience and light", 1),
    ("the sequel nobody asked for, and now we know why", 0),
    ("bold, strange and quite beautiful", 1),
    ("it has a beginning, a middle and no point", 0),
]
BATCH_SIZE = 4
LR = 5e-5


def record(out):
    """Writes `minilm_forward.json`."""
    folder = Path(os.environ.get("PARITY_MINILM", DEFAULT_FOLDER))
    if not (folder / "model.safetensors").is_file():
        print(f"  skipped: no model in `{folder}`; `cargo xtask setup` fetches it")
        return
    tokenizer = load_tokenizer(folder)
    content = {
        "max_length": MAX_LENGTH,
        "tokenizer": [tokenized(tokenizer, text) for text in ODD_TEXTS],
        "forward": forward(folder, tokenizer),
        "embeddings": embeddings(folder, tokenizer),
        "finetune": finetune(folder, tokenizer),
    }
    write(out / "minilm_forward.json", content)


def load_tokenizer(folder):
    """The model's tokenizer; its file asks for padding to 128 tokens, which we turn off."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_LENGTH)
    return tokenizer


def tokenized(tokenizer, text):
    return {"text": text, "input_ids": tokenizer.encode(text).ids}


def padded(tokenizer, texts):
    """A batch padded with id 0 on the right, up to its longest text."""
    rows = [tokenizer.encode(text).ids for text in texts]
    longest = max(len(row) for row in rows)
    return {
        "input_ids": [row + [0] * (longest - len(row)) for row in rows],
        "attention_mask": [[1] * len(row) + [0] * (longest - len(row)) for row in rows],
    }


def as_tensors(batch):
    return {name: torch.tensor(values, dtype=torch.int64) for name, values in batch.items()}


def forward(folder, tokenizer):
    """Hidden states of three sentences in one padded batch, in evaluation mode."""
    model = BertModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()
    batch = padded(tokenizer, SENTENCES)
    with torch.no_grad():
        output = model(**as_tensors(batch))
    kept = torch.tensor(batch["attention_mask"], dtype=torch.bool)
    results = []
    for row, text in enumerate(SENTENCES):
        hidden = output.last_hidden_state[row][kept[row]]
        results.append(
            {
                "text": text,
                "input_ids": batch["input_ids"][row],
                "attention_mask": batch["attention_mask"][row],
                # The first token's first values; the sum runs over all tokens that are not padding.
                "hidden_first_16": floats(hidden[0, :16]),
                "hidden_sum": hidden.double().sum().item(),
                "pooled_first_16": floats(output.pooler_output[row, :16]),
                "pooled_sum": output.pooler_output[row].double().sum().item(),
            }
        )
    return results


def embeddings(folder, tokenizer):
    """One vector for each sentence, as `sentence-transformers` makes them with this model: the mean
    over the tokens that are not padding, divided by its length."""
    model = BertModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()
    batch = as_tensors(padded(tokenizer, SENTENCES))
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    weight = batch["attention_mask"].unsqueeze(-1).expand(hidden.size()).float()
    mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    vectors = torch.nn.functional.normalize(mean, p=2, dim=1)
    return {"vectors": floats(vectors), "similarity": floats(vectors @ vectors.T)}


def finetune(folder, tokenizer):
    """Five steps on one process: dropout 0, AdamW (fused), linear schedule without warm-up."""
    model = BertForSequenceClassification.from_pretrained(
        folder,
        attn_implementation="sdpa",
        dtype=torch.float32,
        num_labels=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ).train()
    set_head(model)
    steps = len(REVIEWS) // BATCH_SIZE
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01, fused=True)
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, steps)
    batches, rates, losses, norms = [], [], [], []
    for step in range(steps):
        chosen = REVIEWS[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        batch = padded(tokenizer, [text for text, _ in chosen]) | {"labels": [label for _, label in chosen]}
        loss = model(**as_tensors(batch)).loss
        loss.backward()
        batches.append(batch)
        rates.append(optimizer.param_groups[0]["lr"])
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    settings = {"lr": LR, "warmup_steps": 0, "steps": steps, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-8}
    return {"training": settings, "lr": rates, "losses": losses, "grad_norms": norms, "batches": batches}


def set_head(model):
    """A head anyone can build: weight[i][j] = ((384 i + j) mod 7 - 3) / 100, bias 0."""
    with torch.no_grad():
        count = model.classifier.weight.numel()
        values = [(index % 7 - 3) / 100 for index in range(count)]
        model.classifier.weight.copy_(torch.tensor(values, dtype=torch.float32).reshape_as(model.classifier.weight))
        model.classifier.bias.zero_()
