"""Tensors whose values both sides can compute, so that no fixture has to hold them.

Value `i` of a tensor, in row-major order, is `centre + spread * (x % 2001 - 1000) / 1000` in float64, rounded to
float32, where `x` is a hash of `i` and a salt: 32-bit arithmetic in `hashed`.
"""

import zlib

import torch

MASK = 0xFFFFFFFF


def filled(shape, salt, centre=0.0, spread=1.0):
    """A float32 tensor of this shape."""
    numbers = hashed(torch.Size(shape).numel(), salt) % 2001 - 1000
    return (centre + spread * (numbers.to(torch.float64) / 1000)).to(torch.float32).reshape(shape)


def hashed(count, salt):
    x = (torch.arange(count, dtype=torch.int64) * 2654435761 + salt * 40503) & MASK
    x = ((x ^ (x >> 15)) * 739982445) & MASK
    return x ^ (x >> 12)


def salt_of(name):
    """The salt of a parameter or buffer: the CRC-32 of its name, modulo 65536."""
    return zlib.crc32(name.encode()) % 65536


def fill(module):
    """Gives every parameter and buffer of a model its values, such that activations keep their size."""
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(filled(tensor.shape, salt_of(name), *range_of(name, tensor)))


def range_of(name, tensor):
    """Centre and spread: scales and variances around 1, matrices and kernels by the size of their input."""
    if tensor.dim() > 1:
        return 0.0, (6 / tensor[0].numel()) ** 0.5
    if name.endswith("running_var"):
        return 1.0, 0.5
    return (1.0 if name.endswith("weight") else 0.0), 0.25
