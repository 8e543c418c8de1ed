"""The first hundred learning rates of every schedule through the original's wrapper, on 1 process and on 2."""

import math

import torch
import transformers
from accelerate import Accelerator
from torch.optim import lr_scheduler

from .fixture_file import write
from .ranks import run

UPDATES = 100
#: The learning rates of the two parameter groups.
RATES = [0.05, 0.02]
#: What the schedule that watches a metric sees: better, then on a plateau, then better and worse again.
METRICS = [1.0 / (1 + step) if step < 12 else 0.08 + 0.01 * math.sin(step) for step in range(UPDATES)]


def torch_cases():
    """Name -> function that makes a schedule of PyTorch for an optimizer."""
    s = lr_scheduler
    return {
        "step": lambda o: s.StepLR(o, 7, gamma=0.5),
        "multi_step": lambda o: s.MultiStepLR(o, [5, 20, 20, 61], gamma=0.3),
        "exponential": lambda o: s.ExponentialLR(o, 0.97),
        "multiplicative": lambda o: s.MultiplicativeLR(o, lambda step: 1 - 1 / (step + 5)),
        "constant_factor": lambda o: s.ConstantLR(o, factor=0.3, total_iters=9),
        "linear_factor": lambda o: s.LinearLR(o, start_factor=0.2, end_factor=0.9, total_iters=30),
        "polynomial_torch": lambda o: s.PolynomialLR(o, total_iters=80, power=1.7),
        "cosine_annealing": lambda o: s.CosineAnnealingLR(o, T_max=17, eta_min=0.001),
        "warm_restarts": lambda o: s.CosineAnnealingWarmRestarts(o, T_0=10, T_mult=2, eta_min=0.001),
        "warm_restarts_even": lambda o: s.CosineAnnealingWarmRestarts(o, T_0=13),
        "one_cycle": lambda o: s.OneCycleLR(o, max_lr=[0.5, 0.1], total_steps=90),
        "one_cycle_linear": lambda o: s.OneCycleLR(
            o, max_lr=0.5, total_steps=250, anneal_strategy="linear", base_momentum=0.8, max_momentum=0.9
        ),
        "one_cycle_three": lambda o: s.OneCycleLR(
            o, max_lr=0.5, total_steps=150, three_phase=True, pct_start=0.4, div_factor=10.0, final_div_factor=100.0
        ),
        "one_cycle_still": lambda o: s.OneCycleLR(o, max_lr=0.5, total_steps=200, cycle_momentum=False),
        "plateau": lambda o: s.ReduceLROnPlateau(o, factor=0.5, patience=3, cooldown=2, min_lr=1e-3),
        "plateau_max": lambda o: s.ReduceLROnPlateau(
            o, mode="max", factor=0.8, patience=2, threshold=0.01, threshold_mode="abs", eps=1e-4
        ),
        "sequential": lambda o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, total_iters=10), s.CosineAnnealingLR(o, 60), s.ExponentialLR(o, 0.9)], [10, 60]
        ),
        "chained": lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.1, total_iters=20), s.ExponentialLR(o, 0.95)], o),
    }


def transformers_cases():
    """The same for those that transformers makes by name."""

    def by_name(name, total=180, **options):
        return lambda o: transformers.get_scheduler(name, o, 20, total, scheduler_specific_kwargs=options)

    return {
        "linear": by_name("linear"),
        "cosine": by_name("cosine"),
        "cosine_waves": by_name("cosine", num_cycles=1.5),
        "cosine_with_restarts": by_name("cosine_with_restarts", num_cycles=3),
        "polynomial": by_name("polynomial", lr_end=1e-4, power=2.0),
        "constant": by_name("constant"),
        "constant_with_warmup": by_name("constant_with_warmup"),
        "inverse_sqrt": by_name("inverse_sqrt"),
        "inverse_sqrt_scaled": by_name("inverse_sqrt", timescale=300),
        "cosine_with_min_lr": by_name("cosine_with_min_lr", min_lr_rate=0.1),
        "cosine_warmup_with_min_lr": by_name("cosine_warmup_with_min_lr", min_lr_rate=0.1, warmup_lr_rate=0.05),
        "cosine_warmup_with_min_lr_plain": by_name("cosine_warmup_with_min_lr", min_lr_rate=0.1),
        "wsd": by_name("warmup_stable_decay", num_decay_steps=70, min_lr_ratio=0.1),
        "wsd_roots": by_name(
            "warmup_stable_decay", num_decay_steps=70, num_stable_steps=40, warmup_type="1-sqrt", decay_type="1-sqrt"
        ),
        "wsd_lines": by_name(
            "warmup_stable_decay", num_decay_steps=70, num_stable_steps=40, warmup_type="cosine", decay_type="linear"
        ),
    }


class Formula:
    """A schedule of DeepSpeed, which is not installed: its rule is written out here.

    The rules are those of `deepspeed/runtime/lr_schedules.py` at commit 22779f2. Making a schedule sets the rates
    `first`; step k (counted from 1) sets those of iteration k - 1.
    """

    def __init__(self, optimizer, first, rate, momentum=None):
        self.optimizer, self.rate, self.momentum, self.iteration = optimizer, rate, momentum, -1
        self.initial = [group["lr"] for group in optimizer.param_groups]
        self.set([first(lr) for lr in self.initial])
        if momentum is not None:
            self.set_momentum(momentum(-1))

    def set(self, rates):
        for group, lr in zip(self.optimizer.param_groups, rates):
            group["lr"] = lr

    def set_momentum(self, momentum):
        for group in self.optimizer.param_groups:
            group["betas"] = (momentum, group["betas"][1])

    def step(self):
        self.iteration += 1
        self.set([self.rate(self.iteration, lr) for lr in self.initial])
        if self.momentum is not None:
            self.set_momentum(self.momentum(self.iteration))


def warmup(iteration, steps, growth, after):
    if iteration >= steps:
        return after
    return math.log(iteration + 1) * (1.0 / math.log(steps)) if growth == "log" else iteration / steps


def warmup_lr(low, high, steps, growth="log", total=None):
    def rate(iteration, _):
        after = 1.0 if total is None else max(0.0, (total - iteration) / max(1.0, total - steps))
        return low + (high - low) * warmup(iteration, steps, growth, after)

    return lambda o: Formula(o, lambda _: low, rate)


def warmup_cosine(total, low, steps, end, growth):
    def rate(iteration, initial):
        if iteration < steps:
            return initial * (low + warmup(iteration, steps, growth, 1.0) * (1.0 - low))
        passed = min(1.0, (iteration - steps + 1) / max(1, total - steps))
        return initial * max(0.0, end + (1.0 - end) * ((1 + math.cos(math.pi * passed)) / 2))

    return lambda o: Formula(o, lambda _: 0.0, rate)


def one_cycle(low, high, up, down, stairs=0, decay_lr=0.0, decay_every=0, decay_momentum=0.0):
    whole = float(up + down)

    def height(step):
        passed = 1.0 + step / whole - math.floor(1 + step / whole)
        turn = up / whole
        if stairs:
            at = step % whole
            return math.floor(at * stairs / up if at <= up else (whole - at) * stairs / down) / stairs
        return passed / turn if passed <= turn else (passed - 1) / (turn - 1)

    def decays(iteration):
        return (iteration - whole + 1) / decay_every if decay_every else 0.0

    def rate(iteration, _):
        if iteration < whole:
            return low + (high - low) * height(iteration + 1)
        return low / (1 + decay_lr * decays(iteration))

    def momentum(iteration):
        if iteration == -1:
            return 0.8
        if iteration < whole:
            return 0.9 - (0.9 - 0.8) * height(iteration + 1)
        return 0.9 * (1 + decay_momentum * decays(iteration))

    return lambda o: Formula(o, lambda _: low, rate, momentum)


def range_test(low, every, growth, stairs):
    def rate(iteration, _):
        passed = (iteration + 1) / every
        return low * (1 + growth * (math.floor(passed) if stairs else passed))

    return lambda o: Formula(o, lambda _: low, rate)


def deepspeed_cases():
    return {
        "ds_warmup": warmup_lr(0.001, 0.08, 40),
        "ds_warmup_linear": warmup_lr(0.0, 0.05, 40, growth="linear"),
        "ds_warmup_decay": warmup_lr(0.001, 0.08, 40, total=150),
        "ds_warmup_cosine": warmup_cosine(150, 0.1, 30, 0.01, "log"),
        "ds_warmup_cosine_linear": warmup_cosine(120, 0.0, 30, 1e-4, "linear"),
        "ds_one_cycle": one_cycle(0.001, 0.1, 30, 50, decay_lr=0.3, decay_every=10, decay_momentum=0.002),
        "ds_one_cycle_stairs": one_cycle(0.001, 0.1, 40, 40, stairs=4),
        "ds_range_test": range_test(0.001, 20, 2.0, False),
        "ds_range_test_stairs": range_test(0.001, 20, 2.0, True),
    }


def record(out):
    """Writes `schedules.json`: the first group's rate (and where it moves, first beta) in force at each update,
    and the second group's at every tenth."""
    answers = {world: run(world, all_cases)[0] for world in (1, 2)}
    cases = {name: {f"n{world}": answer[name] for world, answer in answers.items()} for name in answers[1]}
    write(out / "schedules.json", {"rates": RATES, "metrics": METRICS, "cases": cases})


def all_cases(rank, world_size):
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == world_size
    makers = {**torch_cases(), **transformers_cases(), **deepspeed_cases()}
    return {name: follow(accelerator, make) for name, make in makers.items()}


def follow(accelerator, make):
    parameters = [torch.zeros(1, requires_grad=True) for _ in RATES]
    groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": RATES[1]}]
    optimizer = torch.optim.AdamW(groups, lr=RATES[0])
    inner = make(optimizer)
    optimizer = accelerator.prepare_optimizer(optimizer)
    schedule = accelerator.prepare_scheduler(inner)
    watches = isinstance(inner, lr_scheduler.ReduceLROnPlateau)
    rates, others, momenta = [], [], []
    for update in range(UPDATES):
        rates.append(optimizer.param_groups[0]["lr"])
        if update % 10 == 9:
            others.append(optimizer.param_groups[1]["lr"])
        momenta.append(optimizer.param_groups[0]["betas"][0])
        optimizer.step()
        schedule.step(*([METRICS[update]] if watches else []))
    moves = any(momentum != momenta[0] for momentum in momenta)
    return {"lr": rates, "second_lr": others, **({"momentum": momenta} if moves else {})}
