#!/usr/bin/env python
"""Runs a script of the original's that forgets to name the CPU, with its state set up for the CPU."""

import runpy
import sys

from accelerate import PartialState

PartialState(cpu=True)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
