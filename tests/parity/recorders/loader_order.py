"""The order in which each rank sees the samples of a prepared data loader."""

from .fixture_file import write
from . import ranks

SEED = 42
BATCH_SIZE = 2
EPOCHS = 3

#: (number of samples, shuffled, seedable sampler, even batches)
CASES = [
    (8, True, False, True),
    (17, True, False, True),
    (8, True, True, True),
    (17, True, True, True),
    (17, False, False, True),
    (17, True, False, False),
]


def record(out):
    """Writes `dataloader_order.json`: `ranks[rank][epoch]` is the list of that epoch's batches."""
    cases = []
    for world_size in (1, 2):
        answers = ranks.run(world_size, seen_by_rank)
        for index, (samples, shuffle, seedable, even) in enumerate(CASES):
            cases.append(
                {
                    "world_size": world_size,
                    "samples": samples,
                    "batch_size": BATCH_SIZE,
                    "shuffle": shuffle,
                    "use_seedable_sampler": seedable,
                    "even_batches": even,
                    "seed": SEED,
                    "ranks": [answer[index] for answer in answers],
                }
            )
    write(out / "dataloader_order.json", {"cases": cases})


def seen_by_rank(rank, world_size):
    return [epochs_of_case(*case) for case in CASES]


def epochs_of_case(samples, shuffle, seedable, even):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import DataLoaderConfiguration, set_seed
    from torch.utils.data import DataLoader

    # A fresh accelerator for every case; the process group itself stays.
    AcceleratorState._reset_state()
    settings = DataLoaderConfiguration(use_seedable_sampler=seedable, even_batches=even)
    accelerator = Accelerator(cpu=True, dataloader_config=settings)
    set_seed(SEED)
    loader = accelerator.prepare(DataLoader(list(range(samples)), batch_size=BATCH_SIZE, shuffle=shuffle))
    # `set_epoch` is not called: this is what a plain training loop sees.
    return [[batch.tolist() for batch in loader] for _ in range(EPOCHS)]
