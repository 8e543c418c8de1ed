#!/usr/bin/env python
"""What the original's `accelerate launch` understands, and what it tells its processes.

Reads JSON from standard input and writes JSON to standard output.

`flags`: no input; a list of options with `names`, `takes_value`, and `choices` (or null).
`environment`: a list of argument lists; for each, the variables that the original sets, or changes,
for the processes it starts. The arguments end with the program.
`files`: a list of paths of config files; for each, `values` as the original reads them with the names
of sections in front, or `error`.
"""

import contextlib
import json
import os
import sys
import tempfile
import warnings

# No config file of whoever runs this.
HOME = tempfile.TemporaryDirectory()
os.environ["HF_HOME"] = HOME.name
os.environ.pop("ACCELERATE_CONFIG_FILE", None)

from accelerate.commands import launch as command
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import launch as preparation

#: Nothing is computed in FP8 here.
preparation.is_fp8_available = lambda: True


def main():
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        result = {"flags": flags, "environment": environments, "files": files}[sys.argv[1]]()
    json.dump(result, sys.stdout)


def flags():
    return [
        {
            "names": action.option_strings,
            "takes_value": action.nargs != 0,
            "choices": [str(choice) for choice in action.choices] if action.choices else None,
        }
        for action in command.launch_command_parser()._actions
        if action.option_strings
    ]


def environments():
    return [environment(arguments) for arguments in json.load(sys.stdin)]


def environment(arguments):
    """As `launch_command` decides it."""
    args = command.launch_command_parser().parse_args(arguments)
    args, defaults, precision_is_from_file = command._validate_launch_command(args)
    if args.use_deepspeed and not args.cpu:
        fields = list(defaults.deepspeed_config) if defaults else []
        fields += ["mixed_precision"] if precision_is_from_file else []
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        _, variables = preparation.prepare_deepspeed_cmd_env(args)
    elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
        variables = preparation.prepare_multi_gpu_env(args)
    else:
        _, variables = preparation.prepare_simple_launcher_cmd_env(args)
    return {name: text for name, text in variables.items() if os.environ.get(name) != text}


def files():
    return [values(path) for path in json.load(sys.stdin)]


def values(path):
    try:
        record = load_config_from_file(path).to_dict()
    # Whatever it trips over: it does not read the file.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    found = {}
    for key, value in record.items():
        if key.endswith("_config") and isinstance(value, dict):
            found.update({f"{key}.{name}": entry for name, entry in value.items()})
        else:
            found[key] = value
    return {"values": found}


if __name__ == "__main__":
    main()
