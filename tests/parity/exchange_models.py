#!/usr/bin/env python
"""Loads models that were saved elsewhere, runs them, and saves them again.

Standard input: a JSON list of `{"class", "folder", "again", "inputs", "output"}`. Each folder is
loaded with `from_pretrained` of that class of transformers, called in evaluation mode with the
inputs, and written to the folder `again`. Standard output: a JSON list of `{"warnings", "output"}`,
where `warnings` holds everything that loading had to complain about, and `output` is the field of
that name of the model's output.
"""

import json
import logging
import os
import sys
import warnings

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="warning")

import torch
import transformers


class Told(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    told = Told()
    transformers.utils.logging.add_handler(told)
    answers = [exchange(told, **job) for job in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


def exchange(told, *, folder, again, inputs, output, **rest):
    told.lines.clear()
    kind = getattr(transformers, rest["class"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = kind.from_pretrained(folder, output_loading_info=True)
    complaints = told.lines + [str(warning.message) for warning in caught]
    complaints += [f"{what}: {names}" for what, names in info.items() if names]
    named = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))["architectures"]
    if named != [rest["class"]]:
        complaints.append(f"config.json names {named}")
    with torch.no_grad():
        given = {name: as_tensor(values) for name, values in inputs.items()}
        found = getattr(model.eval()(**given), output)
    model.save_pretrained(again)
    return {"warnings": complaints, "output": found.double().tolist()}


def as_tensor(values):
    """Whole numbers are ids, others are pixels."""
    tensor = torch.tensor(values)
    return tensor.float() if tensor.is_floating_point() else tensor.long()


if __name__ == "__main__":
    main()
