"""Full backward hooks of modules: in which order they run, with which gradients, and what is left.

Each case is a small model of multiplications, so that all numbers are whole.
"""

import warnings

import torch
from torch import nn

from .fixture_file import write


class Scale(nn.Module):
    """x * weight"""

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return x * self.weight


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale([2.0, 3.0])
        self.second = Scale([5.0, 7.0])

    def forward(self, x):
        return self.second(self.first(x))


class Pair(nn.Module):
    """Two outputs from three inputs, of which the third is not used."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, a, b, unused):
        return a * self.weight, b * self.weight


class Log:
    """Hooks that write down what they see, and change it by a factor."""

    def __init__(self):
        self.entries = []

    def on(self, module, name, before=None, after=None):
        def pre(module, grad_output):
            self.note(f"{name} before", grad_output)
            return scaled(grad_output, before)

        def post(module, grad_input, grad_output):
            self.note(f"{name} after", grad_input, grad_output)
            return scaled(grad_input, after)

        return module.register_full_backward_pre_hook(pre), module.register_full_backward_hook(post)

    def note(self, name, *groups):
        self.entries.append({"hook": name, "gradients": [[plain(g) for g in group] for group in groups]})


def scaled(gradients, factor):
    if factor is None:
        return None
    return tuple(None if g is None else g * factor for g in gradients)


def plain(tensor):
    return None if tensor is None else tensor.tolist()


def chain():
    """Hooks on a module and on those inside; two on one of them, and the first changes gradients."""
    model, log = Chain(), Log()
    log.on(model, "model")
    log.on(model.first, "first", before=10.0, after=2.0)
    log.on(model.first, "first again")
    log.on(model.second, "second", after=3.0)
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    model(x).sum().backward()
    return log, {"x": x.grad, "first": model.first.weight.grad, "second": model.second.weight.grad}


def no_input_gradient():
    """No input needs a gradient, so the later hook follows the earlier one at once."""
    model, log = Chain(), Log()
    log.on(model, "model", before=2.0)
    log.on(model.first, "first")
    x = torch.tensor([1.0, 1.0])
    model(x).sum().backward()
    return log, {"x": x.grad, "first": model.first.weight.grad, "second": model.second.weight.grad}


def pair():
    """One output is not used, one input neither, one input needs no gradient."""
    model, log = Pair(), Log()
    log.on(model, "pair")
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([3.0, 4.0])
    unused = torch.tensor([5.0, 6.0], requires_grad=True)
    first, _ = model(a, b, unused)
    first.sum().backward()
    return log, {"a": a.grad, "b": b.grad, "unused": unused.grad, "weight": model.weight.grad}


def twice():
    """Two passes over one graph; hooks that are removed after the call still run for it."""
    model, log = Scale([2.0, 3.0]), Log()
    handles = log.on(model, "scale", after=2.0)
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    out = model(x).sum()
    for handle in handles:
        handle.remove()
    out.backward(retain_graph=True)
    out.backward()
    model(x).sum().backward()
    return log, {"x": x.grad, "weight": model.weight.grad}


CASES = {"chain": chain, "no_input_gradient": no_input_gradient, "pair": pair, "twice": twice}


def record(out):
    """Writes `module_hooks.json`."""
    cases = []
    for name, run in CASES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log, left = run()
        cases.append({"name": name, "log": log.entries, "left": {key: plain(grad) for key, grad in left.items()}})
    write(out / "module_hooks.json", {"cases": cases})
