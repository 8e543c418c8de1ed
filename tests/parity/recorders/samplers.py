"""What PyTorch's samplers draw, and what is left of a prepared loader when its start is skipped."""

from .fixture_file import write
from . import ranks

EPOCHS = 3

#: (weights, number of samples, with replacement, seed)
WEIGHTED = [
    ([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 5, True, 0),
    ([0.9, 0.4, 0.05, 0.2, 0.3, 0.1], 5, False, 0),
    ([1.0, 0.0, 2.0, 0.5], 40, True, 7),
    ([1.0, 0.0, 2.0, 0.5], 3, False, 7),
    ([1.0 + index % 5 for index in range(50)], 50, True, 42),
    ([1.0 + index % 5 for index in range(50)], 50, False, 42),
]

#: (length, number of samples, seed) of draws with replacement, which come in chunks of 32
REPLACEMENT = [(10, 1, 0), (10, 31, 1), (10, 32, 2), (10, 33, 3), (1000, 70, 4)]

#: (indices, seed)
SUBSETS = [([3, 1, 4, 15, 9, 2, 6], 0), (list(range(10, 30)), 42)]

#: (lengths, batch size, seed); the last two have many equal lengths
LENGTH_GROUPED = [
    ([5, 1, 9, 3], 2, 0),
    ([index * 37 % 101 for index in range(100)], 4, 1),
    ([index * 37 % 7 for index in range(333)], 8, 42),
    ([1 + index % 3 for index in range(1000)], 2, 3),
]

#: (samples, batch size, shuffled, seedable, drop the last, number of batches to skip)
SKIPPED = [
    (12, 2, False, False, False, 1),
    (13, 2, False, False, False, 2),
    (17, 2, True, False, False, 3),
    (17, 2, True, True, False, 1),
    (17, 2, True, True, True, 2),
    (8, 2, False, False, False, 2),
]


def record(out):
    """Writes `samplers.json`: three epochs of every sampler, with a generator of its own and without."""
    content = {
        "weighted": [weighted(*case) for case in WEIGHTED],
        "replacement": [replacement(*case) for case in REPLACEMENT],
        "subset": [subset(*case) for case in SUBSETS],
        "length_grouped": [length_grouped(*case) for case in LENGTH_GROUPED],
    }
    for name, run in (("prepared_weighted", prepared_weighted), ("skipped", skipped)):
        content[name] = [
            {"world_size": world_size, "ranks": ranks.run(world_size, run)} for world_size in (1, 2)
        ]
    content["skipped_cases"] = [
        dict(zip(("samples", "batch_size", "shuffle", "use_seedable_sampler", "drop_last", "skip"), case))
        for case in SKIPPED
    ]
    write(out / "samplers.json", content)


def both_ways(make, seed):
    """Epochs with a generator of the seed, and with the global generator of the seed."""
    import torch

    own = make(torch.Generator().manual_seed(seed))
    answer = {"seed": seed, "own": [list(own) for _ in range(EPOCHS)]}
    torch.manual_seed(seed)
    shared = make(None)
    return {**answer, "shared": [list(shared) for _ in range(EPOCHS)]}


def weighted(weights, num_samples, with_replacement, seed):
    from torch.utils.data import WeightedRandomSampler

    case = {"weights": weights, "num_samples": num_samples, "replacement": with_replacement}
    return {**case, **both_ways(lambda g: WeightedRandomSampler(weights, num_samples, with_replacement, g), seed)}


def replacement(length, num_samples, seed):
    from torch.utils.data import RandomSampler

    def make(generator):
        return RandomSampler(range(length), replacement=True, num_samples=num_samples, generator=generator)

    return {"length": length, "num_samples": num_samples, **both_ways(make, seed)}


def subset(indices, seed):
    from torch.utils.data import SubsetRandomSampler

    return {"indices": indices, **both_ways(lambda g: SubsetRandomSampler(indices, generator=g), seed)}


def length_grouped(lengths, batch_size, seed):
    from transformers.trainer_pt_utils import LengthGroupedSampler

    def make(generator):
        return LengthGroupedSampler(batch_size, lengths=lengths, generator=generator)

    return {"lengths": lengths, "batch_size": batch_size, **both_ways(make, seed)}


def prepared_weighted(rank, world_size):
    """Two epochs of a prepared loader over a weighted sampler without a generator."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import set_seed
    from torch.utils.data import DataLoader, WeightedRandomSampler

    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True)
    set_seed(42)
    sampler = WeightedRandomSampler([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 9)
    loader = accelerator.prepare(DataLoader(list(range(6)), batch_size=2, sampler=sampler))
    return [[batch.tolist() for batch in loader] for _ in range(2)]


def skipped(rank, world_size):
    return [rest_of_case(*case) for case in SKIPPED]


def rest_of_case(samples, batch_size, shuffle, seedable, drop_last, skip):
    from accelerate import Accelerator, skip_first_batches
    from accelerate.state import AcceleratorState
    from accelerate.utils import DataLoaderConfiguration, set_seed
    from torch.utils.data import DataLoader

    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable))
    set_seed(42)
    data = DataLoader(list(range(samples)), batch_size=batch_size, shuffle=shuffle, drop_last=drop_last)
    loader = accelerator.prepare(data)
    return [batch.tolist() for batch in skip_first_batches(loader, skip)]
