#!/usr/bin/env python
"""The questionnaire of the original, answered without a terminal.

Reads a JSON list from standard input. Each item has `answers`, one text per question (a menu takes
the number of an option from 0; an empty text is the default), and `file`, a YAML text of ours.
Writes a JSON list: `answered` is the file that the answers give, `rewritten` is ours after the
original has loaded it and saved it again. Ends with an error if there are too few or too many
answers.
"""

import builtins
import contextlib
import json
import os
import sys
import tempfile

from accelerate.commands.config import cluster, config
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.menu import BulletMenu

#: What a program would need is not installed here, and no question depends on it.
ASSUMED = ["deepspeed", "fp8", "msamp", "torchao", "transformer_engine", "transformers"]


def main():
    for package in ASSUMED:
        setattr(cluster, f"is_{package}_available", lambda: True)
    items = json.load(sys.stdin)
    # The questions themselves are of no interest.
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.yaml")
        results = [
            {"answered": answered(item["answers"], path), "rewritten": rewritten(item["file"], path)}
            for item in items
        ]
    json.dump(results, sys.stdout)


def answered(answers, path):
    left = list(answers)
    builtins.input = lambda prompt="": left.pop(0)

    def choose(menu, default_choice=0):
        answer = left.pop(0)
        return int(answer) if answer else default_choice

    BulletMenu.run = choose
    result = config.get_user_input()
    if left:
        raise SystemExit(f"{len(left)} answers too many for {answers}")
    return saved(result, path)


def rewritten(text, path):
    with open(path, "w") as file:
        file.write(text)
    return saved(load_config_from_file(path), path)


def saved(result, path):
    result.to_yaml_file(path)
    with open(path) as file:
        return file.read()


if __name__ == "__main__":
    main()
