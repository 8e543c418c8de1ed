#!/usr/bin/env python
"""Records the numbers of PyTorch, transformers and accelerate that our own must equal.

    record.py --out DIR [--only NAME]...     write the fixtures into DIR
    record.py --check DIR [--only NAME]...   record again, compare with DIR, say what differs

Recording twice on one machine gives the same bytes. See README.md.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

# Before torch is loaded: one thread makes sums come out in one order, and nothing goes online.
os.environ.update(
    OMP_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_VERBOSITY="error",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    TOKENIZERS_PARALLELISM="false",
    PYTHONDONTWRITEBYTECODE="1",
)
# A launcher's variables must not reach the processes started here.
for inherited in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "ACCELERATE_MIXED_PRECISION"):
    os.environ.pop(inherited, None)
sys.dont_write_bytecode = True


def main():
    arguments = parse_arguments()
    if arguments.out is not None:
        record_all(Path(arguments.out), arguments.only)
        return 0
    import compare

    with tempfile.TemporaryDirectory() as fresh:
        record_all(Path(fresh), arguments.only)
        return compare.report(Path(arguments.check), Path(fresh))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--out", metavar="DIR", help="folder to write the fixtures into")
    goal.add_argument("--check", metavar="DIR", help="folder of committed fixtures to compare with")
    parser.add_argument("--only", metavar="NAME", action="append", help="record only this one (may be repeated)")
    return parser.parse_args()


def record_all(out, only):
    import torch
    from recorders import RECORDERS

    torch.set_num_threads(1)
    unknown = set(only or ()) - set(RECORDERS)
    if unknown:
        sys.exit(f"unknown recording `{'`, `'.join(sorted(unknown))}`; known: {', '.join(RECORDERS)}")
    for name, record in RECORDERS.items():
        if not only or name in only:
            print(f"recording {name}", flush=True)
            record(out)


if __name__ == "__main__":
    sys.exit(main())
