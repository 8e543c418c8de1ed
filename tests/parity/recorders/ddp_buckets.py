"""Which parameters share a gradient bucket, as DistributedDataParallel decides it."""

import torch
import torch.distributed

from .fixture_file import write

MIB = 1024 * 1024
#: The first bucket is small so that communication starts early; the rest hold 25 MiB.
DEFAULT_LIMITS = [MIB, 25 * MIB]

#: name -> (limits in bytes, [(data type, number of elements), ...])
CASES = {
    "one_parameter": (DEFAULT_LIMITS, [("float32", 10)]),
    "all_in_first": (DEFAULT_LIMITS, [("float32", 1000), ("float32", 2000), ("float32", 3000)]),
    "exactly_first_limit": (DEFAULT_LIMITS, [("float32", MIB // 4), ("float32", 1), ("float32", 1)]),
    "one_below_first_limit": (DEFAULT_LIMITS, [("float32", MIB // 4 - 1), ("float32", 1), ("float32", 1)]),
    "larger_than_any": (DEFAULT_LIMITS, [("float32", 30 * MIB // 4), ("float32", 5), ("float32", 30 * MIB // 4)]),
    "several": (DEFAULT_LIMITS, [("float32", n * 100_000) for n in (1, 2, 3, 40, 20, 10, 5, 60, 1)]),
    "small_limits": ([64, 256], [("float32", n) for n in (4, 8, 8, 16, 40, 64, 2, 2, 100, 1)]),
    "one_limit": ([128], [("float32", n) for n in (16, 16, 16, 33, 1, 31, 1)]),
    "two_types": ([64, 256], [("float32", 8), ("float16", 8), ("float32", 8), ("float16", 24), ("float16", 64), ("float32", 1)]),
    "three_types": ([32, 64], [(kind, 6) for kind in ("float32", "bfloat16", "float64") * 3]),
    "empty_parameter": ([64, 256], [("float32", 0), ("float32", 16), ("float32", 0), ("float32", 3)]),
}


def record(out):
    """Writes `ddp_buckets.json`."""
    write(out / "ddp_buckets.json", {"cases": [case(name, *CASES[name]) for name in CASES]})


def case(name, limits, parameters):
    tensors = [torch.empty(count, dtype=getattr(torch, kind)) for kind, count in parameters]
    sparse = [False] * len(tensors)
    buckets, size_limits = torch.distributed._compute_bucket_assignment_by_size(tensors, limits, sparse)
    return {
        "name": name,
        "limits": limits,
        "dtypes": [kind for kind, _ in parameters],
        "numels": [count for _, count in parameters],
        # As the function answers. The wrapper hands both lists to the reducer in reversed order.
        "buckets": buckets,
        "bucket_limits": size_limits,
    }
