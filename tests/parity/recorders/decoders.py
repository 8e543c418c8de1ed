"""Decoder models: logits, losses and the gradients of a first step, for weights by formula."""

import torch
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
# Llama's own turns whole heads only.
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb

from . import fixture_file
from .fixture_file import floats
from .formula_weights import fill, public_parameters

SPREAD = 0.3
CLASSES = {
    "GPT2LMHeadModel": (GPT2Config, GPT2LMHeadModel),
    "GPT2ForSequenceClassification": (GPT2Config, GPT2ForSequenceClassification),
    "LlamaForCausalLM": (LlamaConfig, LlamaForCausalLM),
    "MixtralForCausalLM": (MixtralConfig, MixtralForCausalLM),
}

GPT2 = {
    "vocab_size": 30, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}
LLAMA = {
    "vocab_size": 30, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12, "rope_theta": 100.0,
}
MIXTRAL = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}

IDS = [[3, 7, 1, 29, 12, 5, 7, 2], [8, 8, 0, 4, 21, 17, 9, 11]]
#: The second row is shorter.
RIGHT = [[1] * 8, [1] * 5 + [0] * 3]
LEFT = [[1] * 8, [0] * 3 + [1] * 5]
LABELS = [[-100, -100, 1, 29, 12, 5, 7, 2], [8, 8, 0, 4, 21, -100, -100, -100]]

CASES = [
    ("gpt2", "GPT2LMHeadModel", GPT2, {}),
    ("gpt2, padded on the right", "GPT2LMHeadModel", GPT2, {"mask": RIGHT, "labels": LABELS, "num_items": 7}),
    ("gpt2, padded on the left, not tied", "GPT2LMHeadModel",
     {**GPT2, "tie_word_embeddings": False, "n_inner": 20, "scale_attn_by_inverse_layer_idx": True,
      "activation_function": "relu"}, {"mask": LEFT}),
    ("gpt2, labels of sequences", "GPT2ForSequenceClassification",
     {**GPT2, "pad_token_id": 11, "num_labels": 3}, {"labels": [2, 0]}),
    ("llama", "LlamaForCausalLM", LLAMA, {}),
    ("llama, padded on the right", "LlamaForCausalLM", LLAMA, {"mask": RIGHT, "labels": LABELS}),
    ("llama, tied, with offsets and wide heads", "LlamaForCausalLM",
     {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 6,
      "pad_token_id": 8}, {"mask": LEFT, "num_items": 9}),
    ("llama, linear scaling", "LlamaForCausalLM",
     {**LLAMA, "rope_scaling": {"type": "linear", "factor": 3.0}}, {}),
    ("llama, dynamic scaling", "LlamaForCausalLM",
     {**LLAMA, "max_position_embeddings": 6, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, {}),
    ("llama, yarn", "LlamaForCausalLM",
     {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 6,
                                "beta_fast": 2.0, "beta_slow": 0.5}}, {}),
    ("llama, llama3 scaling", "LlamaForCausalLM",
     {**LLAMA, "head_dim": 8, "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}, {}),
    ("llama, longrope, short sequences", "LlamaForCausalLM",
     {**LLAMA, "head_dim": 8, "original_max_position_embeddings": 8,
      "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5],
                       "long_factor": [1.5, 2.0, 3.0, 5.0]}}, {}),
    ("llama, longrope, long sequences", "LlamaForCausalLM",
     {**LLAMA, "head_dim": 8,
      "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5],
                       "long_factor": [1.5, 2.0, 3.0, 5.0], "original_max_position_embeddings": 6,
                       "factor": 2.0}}, {"mask": LEFT}),
    ("llama, proportional", "LlamaForCausalLM",
     {**LLAMA, "head_dim": 8, "rope_parameters": {"rope_type": "proportional", "rope_theta": 100.0,
                                                   "partial_rotary_factor": 0.5, "factor": 2.0}}, {}),
    ("mixtral, padded on the right", "MixtralForCausalLM",
     {**MIXTRAL, "output_router_logits": True, "router_aux_loss_coef": 0.5}, {"mask": RIGHT, "labels": LABELS}),
    ("mixtral, all experts, with a window", "MixtralForCausalLM",
     {**MIXTRAL, "num_experts_per_tok": 3, "sliding_window": 3, "output_router_logits": True}, {}),
    ("mixtral, with a window, padded on the left", "MixtralForCausalLM",
     {**MIXTRAL, "sliding_window": 4}, {"mask": LEFT}),
]

FACTORS = {"short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0]}
#: Rotary positions alone, each kind with half of each head turned; `default` turns all all the same.
ROTARY = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6, "beta_fast": 2.0,
             "beta_slow": 0.25, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False},
    "yarn, told how loud": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6,
                            "attention_factor": 0.75},
    "longrope": {"rope_type": "longrope", **FACTORS, "original_max_position_embeddings": 6},
    "longrope, told how far": {"rope_type": "longrope", **FACTORS, "original_max_position_embeddings": 6,
                               "factor": 8.0},
    "longrope, told how loud": {"rope_type": "longrope", **FACTORS, "original_max_position_embeddings": 6,
                                "attention_factor": 1.25},
    "llama3": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "proportional": {"rope_type": "proportional", "factor": 2.0},
}
#: From one call to the next, so that what a layer remembers shows.
POSITIONS = [[0, 1, 5], [0, 6, 13], [2, 7, 9], [1, 3, 4]]


def record(out):
    fixture_file.write(
        out / "decoders.json",
        {
            "spread": SPREAD,
            "input_ids": IDS,
            "cases": [one_case(*case) for case in CASES],
            "rotary": [one_rotary(*case) for case in ROTARY.items()],
            "seeded": seeded(),
        },
    )


def one_rotary(name, parameters):
    """Cosines, sines and turned queries of one layer, call after call."""
    parameters = {"rope_theta": 100.0, "partial_rotary_factor": 0.5, **parameters}
    config = {**LLAMA, "hidden_size": 32, "rope_parameters": parameters}
    del config["rope_theta"]
    layer = LlamaRotaryEmbedding(LlamaConfig(**config))
    query = torch.linspace(-1, 1, 24).view(1, 1, 3, 8)
    calls = []
    for positions in POSITIONS:
        cosines, sines = layer(query, torch.tensor([positions]))
        turned, _ = apply_rotary_pos_emb(query, query, cosines, sines)
        calls.append({"positions": positions, "cosines": floats(cosines.flatten()), "sines": floats(sines.flatten()),
                      "turned": floats(turned.flatten())})
    return {"name": name, "config": config, "calls": calls}


def one_case(name, architecture, config, given):
    model = build(architecture, config, SPREAD)
    arguments = {"input_ids": torch.tensor(IDS), "labels": torch.tensor(given.get("labels", IDS))}
    if "mask" in given:
        arguments["attention_mask"] = torch.tensor(given["mask"])
    if "num_items" in given:
        arguments["num_items_in_batch"] = given["num_items"]
    output = model.train()(**arguments)
    output.loss.backward()
    gradients = public_parameters(model, gradients=True)
    content = {
        "name": name,
        "architecture": architecture,
        "config": config,
        "attention_mask": given.get("mask"),
        "labels": given.get("labels"),
        "num_items": given.get("num_items"),
        "parameters": {key: list(tensor.shape) for key, tensor in gradients.items()},
        "logits": floats(output.logits),
        "loss": output.loss.item(),
        "aux_loss": output.aux_loss.item() if getattr(output, "aux_loss", None) is not None else None,
        "first_grad_norms": {key: tensor.double().norm().item() for key, tensor in gradients.items()},
        "first_grads": {key: floats(tensor.flatten()[:3]) for key, tensor in list(gradients.items())[::3]},
    }
    return content


def build(architecture, config, spread):
    configuration, model = CLASSES[architecture]
    model = model(configuration(**config, attn_implementation="sdpa"))
    fill(model, spread)
    return model


def seeded():
    """Sums of new weights after a seed."""
    found = {}
    for architecture, config in (
        ("GPT2LMHeadModel", GPT2),
        ("LlamaForCausalLM", {**LLAMA, "pad_token_id": 3}),
        ("MixtralForCausalLM", {**MIXTRAL, "pad_token_id": 3}),
    ):
        torch.manual_seed(0)
        configuration, model = CLASSES[architecture]
        model = model(configuration(**config))
        sums = {name: tensor.double().sum().item() for name, tensor in public_parameters(model).items()}
        found[architecture] = {"config": {**config, **({"pad_token_id": 3} if "hidden_size" in config else {})}, "sums": sums}
    return found
