"""Weights that both sides compute from the parameter's name, so that no file has to hold them.

A 64-bit linear congruential generator (Knuth's MMIX constants), started from the FNV-1a hash of
the name; the upper 24 bits of each state are a number in 0..1. Norm weights are spread around 1,
all else around 0.
"""

import torch

MASK = (1 << 64) - 1


def numbers(name, count, centre, spread):
    """`count` numbers within `centre - spread .. centre + spread`, always the same for a name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    values = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        values.append(centre + spread * (2.0 * (state >> 40) / (1 << 24) - 1.0))
    return values


def tensor(name, shape, spread):
    """The first values of the parameter `name`."""
    centre = 1.0 if name.endswith(("LayerNorm.weight", "layer_norm.weight")) else 0.0
    values = numbers(name, torch.Size(shape).numel(), centre, spread if len(shape) > 1 else spread / 3)
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def fill(model, spread):
    """Gives every parameter its values; a tied one those of its first name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensor(name, parameter.shape, spread))


def probe(name, gradient):
    """The norm of a gradient, and its product with numbers that depend on the place."""
    weights = torch.tensor(numbers(name + ".probe", gradient.numel(), 0.0, 1.0), dtype=torch.float64)
    flat = gradient.double().flatten()
    return [flat.norm().item(), (flat * weights).sum().item()]
