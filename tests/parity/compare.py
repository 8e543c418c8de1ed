#!/usr/bin/env python
"""Compares two folders of fixtures: compare.py COMMITTED FRESH

Whole numbers, texts and truth values must be equal. Numbers with a fraction may differ by the
field's tolerance. Checksums are compared where both sides were made with the same packages,
processor and thread count, because bits depend on those. The exit code is 1 if anything
differs, and each differing field is named.
"""

import json
import sys
from pathlib import Path

#: Field -> (relative, absolute) tolerance. `DEFAULT` holds for every field not named here.
TOLERANCES = {
    "losses": (1e-6, 0.0),
    "grad_norms": (1e-5, 0.0),
    "lr": (1e-12, 0.0),
    "params": (1e-6, 1e-8),
    "trained": (1e-6, 1e-8),
    "evaluated": (1e-6, 1e-8),
    # Sums of many rounded numbers, and values that may lie close to zero.
    "drawn": (1e-6, 1e-6),
    "first_grad_norms": (1e-5, 1e-7),
    "first_logits": (1e-5, 1e-6),
    "logits": (1e-5, 1e-6),
    "first_grads": (1e-5, 1e-6),
    "sums": (1e-6, 1e-7),
    "scores": (1e-4, 1e-6),
    "evaluated_logits": (1e-5, 1e-5),
    "buffer_norms": (1e-5, 1e-7),
    "output": (1e-5, 1e-6),
    "input_grad": (1e-5, 1e-5),
    "grads": (1e-5, 1e-5),
    "buffers": (1e-5, 1e-6),
    "evaluated": (1e-5, 1e-6),
    "pooled": (1e-5, 1e-6),
    "hidden_first": (1e-5, 1e-6),
    "hidden_first_16": (1e-5, 1e-6),
    "hidden_sum": (1e-4, 1e-4),
    "pooled_first_16": (1e-5, 1e-6),
    "pooled_sum": (1e-4, 1e-4),
    "vectors": (1e-5, 1e-6),
    "similarity": (1e-5, 1e-6),
    "logits": (1e-5, 1e-5),
    "seq_relationship_logits": (1e-5, 1e-5),
    "states": (1e-5, 1e-5),
    "gradients": (1e-5, 1e-6),
    "first_values": (1e-6, 1e-6),
    "norms": (1e-5, 1e-6),
}
DEFAULT = (1e-6, 0.0)
#: How many differences of one file are printed.
SHOWN = 20


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: compare.py COMMITTED FRESH")
    return report(Path(sys.argv[1]), Path(sys.argv[2]))


def report(committed, fresh):
    """Prints what differs for each fixture that `fresh` holds; the answer is the exit code."""
    names = fixture_names(fresh)
    for name in fixture_names(committed):
        if name not in names:
            print(f"skipped  {name} (not recorded this time)")
    if not names:
        print(f"nothing to compare in `{fresh}`")
        return 1
    failed = False
    for name in names:
        found, notes = differences(committed / name, fresh / name)
        print(f"{'differs' if found else 'equal':8} {name}{''.join(f' ({note})' for note in notes)}")
        for line in found[:SHOWN]:
            print(f"    {line}")
        if len(found) > SHOWN:
            print(f"    and {len(found) - SHOWN} more")
        failed = failed or bool(found)
    return 1 if failed else 0


def fixture_names(folder):
    found = folder.iterdir() if folder.is_dir() else []
    return sorted(path.name for path in found if path.suffix in (".json", ".safetensors"))


def differences(committed, fresh):
    """A list of differences and a list of notes about what could not be compared."""
    if not committed.is_file():
        return [f"expected `{committed}`, found no such file"], []
    if fresh.suffix != ".json":
        same = committed.read_bytes() == fresh.read_bytes()
        return ([] if same else ["the bytes differ"]), []
    left, right = (json.loads(path.read_text(encoding="utf-8")) for path in (committed, fresh))
    same_machine = left.pop("made_with") == right.pop("made_with")
    found = []
    walk("", "", left, right, same_machine, found)
    return found, [] if same_machine else ["checksums not compared: other packages or processor"]


def walk(path, field, left, right, same_machine, found):
    """Adds to `found` a line for each difference below `path`."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in left.keys() | right.keys():
            here = f"{path}.{key}".lstrip(".")
            if key not in left or key not in right:
                found.append(f"{here}: only in the {'committed' if key in left else 'fresh'} fixture")
            else:
                # Below a field with its own tolerance, names are data and not fields.
                inner = field if field in TOLERANCES else key
                walk(here, inner, left[key], right[key], same_machine, found)
    elif isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            found.append(f"{path}: expected {len(left)} entries, found {len(right)}")
        for index, (one, other) in enumerate(zip(left, right)):
            walk(f"{path}[{index}]", field, one, other, same_machine, found)
    elif field.endswith("sha256"):
        if same_machine and left != right:
            found.append(f"{path}: expected `{left}`, found `{right}`")
    elif isinstance(left, float) or isinstance(right, float):
        compare_numbers(path, field, left, right, found)
    elif type(left) is not type(right) or left != right:
        found.append(f"{path}: expected `{left}`, found `{right}`")


def compare_numbers(path, field, left, right, found):
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right))
    if not numbers:
        found.append(f"{path}: expected `{left}`, found `{right}`")
        return
    relative, absolute = TOLERANCES.get(field, DEFAULT)
    gap = abs(left - right)
    # Written so that a value that is not a number counts as a difference.
    if not gap <= relative * max(abs(left), abs(right)) + absolute:
        size = gap / max(abs(left), abs(right), 1e-300)
        found.append(f"{path}: expected {left!r}, found {right!r} (relative difference {size:.1e})")


if __name__ == "__main__":
    sys.exit(main())
