"""Weights by a formula, so that no fixture has to hold them.

A model's parameters are taken under the names of its public checkpoints and sorted by name; value
`i` of parameter `p` comes from the whole number

    x = (i * 2654435761 + p * 40503 + 12345) mod 2^32
    x = x xor (x >> 15);  x = x * 2246822519 mod 2^32;  x = x xor (x >> 13)

as `centre + spread * (2 * x / 2^32 - 1)` in float64, rounded to float32. `centre` is 1 for weights
of normalisation layers and else 0; `spread` is 0.05 for one dimension and the model's own for more.
"""

import torch


def public_parameters(model, gradients=False):
    """Public name -> parameter or its gradient; a tied one under its first name.

    Experts, which transformers fuses, are views on the fused tensors.
    """
    found = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.grad if gradients else parameter.data
        if ".mlp.experts." in name:
            found.update(expert_views(name, tensor))
        else:
            found[name.replace(".mlp.gate.", ".block_sparse_moe.gate.")] = tensor
    return found


def expert_views(name, tensor):
    start, member = name.split(".mlp.experts.")
    prefix = f"{start}.block_sparse_moe.experts"
    views = {}
    for expert in range(tensor.shape[0]):
        if member == "down_proj":
            views[f"{prefix}.{expert}.w2.weight"] = tensor[expert]
        else:
            gate, up = tensor[expert].chunk(2)
            views[f"{prefix}.{expert}.w1.weight"] = gate
            views[f"{prefix}.{expert}.w3.weight"] = up
    return views


def fill(model, spread):
    """Gives every parameter its values."""
    parameters = public_parameters(model)
    for number, name in enumerate(sorted(parameters)):
        parameters[name].copy_(values(number, name, parameters[name].shape, spread))


def values(number, name, shape, spread):
    norm = any(part in name for part in ("norm", ".ln_"))
    centre = 1.0 if norm and name.endswith("weight") else 0.0
    x = (torch.arange(shape.numel(), dtype=torch.int64) * 2654435761 + number * 40503 + 12345) % 2**32
    x = x ^ (x >> 15)
    # In two halves: the product does not fit into 64 bits with a sign.
    x = ((x >> 16) * 2246822519 % 2**32 * 2**16 + (x & 0xFFFF) * 2246822519) % 2**32
    x = x ^ (x >> 13)
    spread = 0.05 if len(shape) == 1 else spread
    return (centre + spread * (2 * (x.double() / 2**32) - 1)).float().reshape(shape)
