"""What the original's operations over nested values give on two processes."""

import torch
from accelerate import utils
from accelerate.state import PartialState

from . import ranks
from .fixture_file import write

WORLD_SIZE = 2


def record(out):
    """Writes `operations.json`."""
    answers = ranks.run(WORLD_SIZE, run_cases)
    cases = []
    for index, (name, operation, arguments, _) in enumerate(CASES):
        sides = [answer[index] for answer in answers]
        cases.append(
            {
                "name": name,
                "operation": operation,
                "arguments": arguments,
                "inputs": [side["input"] for side in sides],
                "outputs": [side["output"] for side in sides],
            }
        )
    write(out / "operations.json", {"world_size": WORLD_SIZE, "cases": cases})


def run_cases(rank, world_size):
    PartialState(cpu=True)
    answers = []
    for _, operation, arguments, make in CASES:
        tree = make(rank)
        described = describe(tree)
        answers.append({"input": described, "output": describe(apply(operation, arguments, tree))})
    return answers


def apply(operation, arguments, tree):
    if operation == "concatenate":
        return utils.concatenate(tree, **arguments)
    return getattr(utils, operation)(tree, **arguments)


def describe(tree):
    """Lists and maps stay; a tensor is its type, shape and numbers in one row."""
    if isinstance(tree, torch.Tensor):
        numbers = tree.flatten()
        numbers = numbers.double() if numbers.is_floating_point() else numbers
        return {
            "dtype": str(tree.dtype).removeprefix("torch."),
            "shape": list(tree.shape),
            "values": [int(n) if isinstance(n, bool) else n for n in numbers.tolist()],
        }
    if isinstance(tree, dict):
        return {"map": {key: describe(value) for key, value in tree.items()}}
    return {"list": [describe(value) for value in tree]}


def steps(rank, *shape, dtype=torch.float32, factor=0.1):
    """Numbers that tell rank and place, and do not add up without rounding."""
    count = torch.Size(shape).numel()
    numbers = torch.arange(count, dtype=torch.float64) + 100 * rank + 1
    if dtype.is_floating_point:
        numbers = numbers * factor
    return numbers.reshape(shape).to(dtype)


def ints(rank, *shape, dtype=torch.int64):
    return steps(rank, *shape, dtype=dtype)


#: name, function of `accelerate.utils`, its arguments, rank -> tree
CASES = [
    ("gather scalar", "gather", {}, lambda r: steps(r)),
    ("gather vector", "gather", {}, lambda r: steps(r, 3)),
    ("gather matrix", "gather", {}, lambda r: steps(r, 2, 3)),
    ("gather transposed", "gather", {}, lambda r: steps(r, 2, 3).t()),
    ("gather types", "gather", {}, lambda r: [ints(r, 2, dtype=d) for d in (torch.uint8, torch.int8, torch.int32, torch.int64)]),
    ("gather short floats", "gather", {}, lambda r: [steps(r, 2, dtype=d) for d in (torch.float16, torch.bfloat16, torch.float64)]),
    ("gather flags", "gather", {}, lambda r: torch.tensor([r == 0, True])),
    ("gather nested", "gather", {}, lambda r: {"b": [steps(r, 2), {"x": ints(r)}], "a": steps(r, 1, 2)}),
    ("gather lists in lists", "gather", {}, lambda r: [[steps(r)], [[steps(r, 1), steps(r, 2)]]]),
    ("reduce sum", "reduce", {"reduction": "sum"}, lambda r: steps(r, 2, 3)),
    ("reduce mean", "reduce", {"reduction": "mean"}, lambda r: steps(r, 5, factor=0.3)),
    ("reduce mean of half", "reduce", {"reduction": "mean"}, lambda r: steps(r, 4, dtype=torch.float16)),
    ("reduce sum of integers", "reduce", {"reduction": "sum"}, lambda r: ints(r, 3)),
    ("reduce max", "reduce", {"reduction": "max"}, lambda r: torch.tensor([1.0 + r, 5.0 - r])),
    ("reduce nested", "reduce", {"reduction": "mean"}, lambda r: {"loss": steps(r), "parts": [steps(r, 2), steps(r, 1, 1)]}),
    ("pad rows", "pad_across_processes", {}, lambda r: steps(r, 2 + r, 2)),
    ("pad rows first", "pad_across_processes", {"pad_first": True, "pad_index": -100}, lambda r: ints(r, 3 - r, 2)),
    ("pad last dimension", "pad_across_processes", {"dim": -1, "pad_index": 7}, lambda r: ints(r, 2, 1 + 2 * r)),
    ("pad a dimension that is not there", "pad_across_processes", {"dim": 3}, lambda r: steps(r, 2 + r)),
    ("pad nested", "pad_across_processes", {"dim": 1}, lambda r: {"ids": ints(r, 2, 4 - r), "mask": [steps(r, 1, 2 + r, 2)]}),
    ("pad nothing", "pad_across_processes", {"pad_index": 9}, lambda r: ints(r, 2)),
    ("broadcast", "broadcast", {"from_process": 1}, lambda r: {"a": steps(r, 2), "b": [ints(r)]}),
    ("concatenate rows", "concatenate", {}, lambda r: [steps(r, 2, 2), steps(r + 2, 1, 2)]),
    ("concatenate columns", "concatenate", {"dim": 1}, lambda r: [ints(r, 2, 1), ints(r + 1, 2, 3), ints(r + 2, 2, 2)]),
    ("concatenate nested", "concatenate", {}, lambda r: [{"ids": ints(r, 1), "more": [steps(r, 2, 1)]}, {"ids": ints(r + 5, 2), "more": [steps(r, 1, 1)]}]),
]
