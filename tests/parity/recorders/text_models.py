"""BERT's heads and T5 as transformers computes them: logits, loss, gradients, first values, text.

The weights come from `seeded.py`; dropout is 0. `first_values` are the sums of each parameter that
`torch.manual_seed(0)` and the model's constructor give.
"""

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from . import seeded
from .fixture_file import floats, write

SPREAD = 0.25
#: More, where text is written: it is less monotonous then.
GREEDY_SPREAD = 0.6
BERT = {
    "vocab_size": 24,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 12,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
T5 = {
    "vocab_size": 24,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    # As many as the decoder at least: the original's own cache has a place for each of these.
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
#: Two texts of 7 and 5 tokens.
INPUT_IDS = [[2, 5, 17, 9, 11, 23, 3], [2, 14, 8, 20, 3, 0, 0]]
ATTENTION_MASK = [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]
TOKEN_TYPES = [[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]]
MASKED = [[-100, 7, -100, -100, 12, -100, -100], [-100, -100, 8, -100, -100, -100, -100]]
TAGS = [[0, 2, 1, 1, 0, 2, -100], [1, 1, 0, 2, 0, -100, -100]]
#: A target longer than a bucket reaches, and a short one.
TARGETS = [
    [6, 9, 13, 21, 5, 17, 8, 8, 19, 22, 4, 10, 15, 7, 1],
    [12, 3, 1] + [-100] * 12,
]


def record(out):
    """Writes `text_models.json`."""
    text = {"input_ids": INPUT_IDS, "attention_mask": ATTENTION_MASK}
    bert = {**text, "token_type_ids": TOKEN_TYPES}
    gated = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    silu = {**T5, "feed_forward_proj": "gated-silu", "num_decoder_layers": 3}
    tags = {**BERT, "num_labels": 3}
    cases = {
        "BertForSequenceClassification": bert_case(
            BertForSequenceClassification, tags, bert | {"labels": [2, 0]}
        ),
        "BertForPreTraining": bert_case(
            BertForPreTraining, BERT, bert | {"labels": MASKED, "next_sentence_label": [1, 0]}
        ),
        "BertForMaskedLM": bert_case(BertForMaskedLM, BERT, bert | {"labels": MASKED}),
        "BertForMaskedLM untied": bert_case(
            BertForMaskedLM, {**BERT, "tie_word_embeddings": False}, bert | {"labels": MASKED}
        ),
        "BertForTokenClassification": bert_case(BertForTokenClassification, tags, bert | {"labels": TAGS}),
        "T5ForConditionalGeneration": t5_case(T5, text | {"labels": TARGETS}),
        "T5ForConditionalGeneration gated": t5_case(gated, text | {"labels": TARGETS}),
        "T5ForConditionalGeneration silu": t5_case(silu, text | {"labels": TARGETS}),
        "T5EncoderModel": encoder_case(T5, text),
    }
    write(out / "text_models.json", {"spread": SPREAD, "greedy_spread": GREEDY_SPREAD, "cases": cases})


def bert_case(kind, config, inputs):
    """A BERT with a head."""
    return case(kind, BertConfig(**config, attn_implementation="sdpa"), config, inputs)


def t5_case(config, inputs):
    """A whole T5, and the texts that it writes greedily."""
    recorded = case(T5ForConditionalGeneration, T5Config(**config, attn_implementation="sdpa"), config, inputs)
    model = filled_t5(config).eval()
    texts = {name: torch.tensor(inputs[name]) for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 12, "do_sample": False, "num_beams": 1}
    # No end token is given: an untrained model would stop at once, or never.
    written = model.generate(**texts, **options, eos_token_id=None)
    end = end_token(written.tolist())
    ended = model.generate(**texts, **options, eos_token_id=end)
    return recorded | {
        "greedy": written.tolist(),
        "greedy_ended": {"eos_token_id": end, "ids": ended.tolist()},
    }


def end_token(rows):
    """A token that ends the two texts at places as different as can be."""

    def first(row, token):
        return row.index(token, 1) if token in row[1:] else len(row)

    tokens = sorted({token for row in rows for token in row[1:]})
    return max(tokens, key=lambda token: abs(first(rows[0], token) - first(rows[1], token)))


def filled_t5(config):
    """The model with its weights; the output layer has its own where the configuration says so."""
    model = T5ForConditionalGeneration(T5Config(**config, attn_implementation="sdpa"))
    untie(model, config)
    seeded.fill(model, GREEDY_SPREAD)
    return model


def untie(model, config):
    """transformers ties a new model whatever the configuration says."""
    if isinstance(model, T5ForConditionalGeneration) and config.get("tie_word_embeddings") is False:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))


def encoder_case(config, inputs):
    """The encoder alone: its states, and the gradients of their mean square."""
    model = T5EncoderModel(T5Config(**config, attn_implementation="sdpa"))
    seeded.fill(model, SPREAD)
    states = model(**tensors(inputs)).last_hidden_state
    loss = states.square().mean()
    loss.backward()
    return {
        "config": config,
        "inputs": inputs,
        "parameters": shapes(model),
        "first_values": first_values(T5EncoderModel, T5Config(**config)),
        "states": floats(states),
        "loss": loss.item(),
        "gradients": gradients(model),
    }


def case(kind, settings, config, inputs):
    """Everything that is recorded of a model with a loss."""
    model = kind(settings)
    untie(model, config)
    seeded.fill(model, SPREAD)
    output = model(**tensors(inputs))
    output.loss.backward()
    logits = output.prediction_logits if hasattr(output, "prediction_logits") else output.logits
    recorded = {
        "config": config,
        "inputs": inputs,
        "parameters": shapes(model),
        "first_values": first_values(kind, type(settings)(**config)),
        "logits": floats(logits),
        "loss": output.loss.item(),
        "gradients": gradients(model),
    }
    if hasattr(output, "seq_relationship_logits"):
        recorded["seq_relationship_logits"] = floats(output.seq_relationship_logits)
    return recorded


def first_values(kind, settings):
    """The sum of each parameter of a new model."""
    torch.manual_seed(0)
    return {name: p.detach().double().sum().item() for name, p in kind(settings).named_parameters()}


def shapes(model):
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def gradients(model):
    """Norm and probe of each gradient; null where a parameter takes no part."""
    return {
        name: None if p.grad is None else seeded.probe(name, p.grad) for name, p in model.named_parameters()
    }


def tensors(inputs):
    return {name: torch.tensor(values, dtype=torch.int64) for name, values in inputs.items()}
