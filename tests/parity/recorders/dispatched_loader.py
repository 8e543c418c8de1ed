"""What each rank gets of loaders that rank 0 reads and deals out, and of streams that ranks share."""

from .fixture_file import write
from . import ranks

#: (kind of data set, samples, batch size, drop last, split batches, dispatch), on 2 processes
TWO = [
    ("map", 9, 2, False, False, True),
    ("map", 10, 4, False, False, True),
    ("map", 9, 5, False, False, True),
    ("map", 16, 4, False, False, True),
    ("map", 5, 4, False, False, True),
    ("map", 3, 4, False, False, True),
    ("map", 2, 1, False, False, True),
    ("map", 13, 4, True, False, True),
    ("map", 16, 4, True, False, True),
    ("map", 10, 4, False, True, True),
    ("map", 9, 4, False, True, True),
    ("map", 3, 4, False, True, True),
    ("map", 9, 4, True, True, True),
    ("iterable", 9, 2, False, False, True),
    ("iterable", 10, 4, False, False, True),
    ("iterable", 11, 2, True, False, True),
    ("iterable", 11, 4, False, True, True),
    ("iterable", 7, 3, False, False, None),
    ("iterable", 9, 2, False, False, False),
    ("iterable", 10, 2, False, True, False),
    ("iterable", 3, 4, False, False, False),
    ("iterable", 9, 2, True, False, False),
]
#: The same on 3 processes.
THREE = [
    ("map", 10, 2, False, False, True),
    ("map", 7, 2, False, False, True),
    ("map", 16, 3, False, False, True),
    ("map", 20, 3, True, False, True),
    ("iterable", 11, 2, False, False, True),
    ("iterable", 11, 6, False, True, True),
    ("iterable", 7, 2, False, False, False),
]


def record(out):
    """Writes `dispatched_loader.json`: `ranks[r]` lists the steps that rank r took."""
    cases = []
    for world_size, settings in ((2, TWO), (3, THREE)):
        answers = ranks.run(world_size, steps_of_rank, settings)
        for index, (kind, samples, batch_size, drop_last, split, dispatch) in enumerate(settings):
            cases.append(
                {
                    "world_size": world_size,
                    "kind": kind,
                    "samples": samples,
                    "batch_size": batch_size,
                    "drop_last": drop_last,
                    "split_batches": split,
                    "dispatch_batches": dispatch,
                    "length": answers[0][index]["length"],
                    "ranks": [answer[index]["steps"] for answer in answers],
                }
            )
    write(out / "dispatched_loader.json", {"cases": cases})


def steps_of_rank(rank, world_size, settings):
    return [steps_of_case(*case) for case in settings]


def steps_of_case(kind, samples, batch_size, drop_last, split, dispatch):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from accelerate.utils import DataLoaderConfiguration
    from torch.utils.data import DataLoader

    # A fresh accelerator for every case; the process group itself stays.
    AcceleratorState._reset_state()
    GradientState._reset_state()
    settings = DataLoaderConfiguration(split_batches=split, dispatch_batches=dispatch)
    accelerator = Accelerator(cpu=True, dataloader_config=settings)
    data = list(range(samples)) if kind == "map" else stream(samples)
    loader = accelerator.prepare(DataLoader(data, batch_size=batch_size, drop_last=drop_last))
    steps = []
    for batch in loader:
        steps.append(
            {
                "batch": batch.tolist(),
                "end": accelerator.gradient_state.end_of_dataloader,
                "remainder": accelerator.gradient_state.remainder,
                "gathered": accelerator.gather_for_metrics(batch).tolist(),
            }
        )
    return {"length": len(loader) if kind == "map" else None, "steps": steps}


def stream(samples):
    from torch.utils.data import IterableDataset

    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(samples))

    return Numbers()
