"""Trifold for pip: the package carries the program, and the command `trifold` starts it."""

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "trifold"


def main():
    """Becomes the program: same process, so that MPI launchers and signals reach it."""
    os.execv(PROGRAM, ["trifold", *sys.argv[1:]])
