"""Trifold for pip: the package carries the program, and the command `trifold` starts it.

`trifold.export` and `trifold.train` take modules of PyTorch, which must be installed for them and for nothing else.
"""

import os
import pathlib
import sys

from .modules import export, train

__all__ = ["export", "main", "train"]

PROGRAM = pathlib.Path(__file__).parent / "bin" / "trifold"


def main():
    """Becomes the program: same process, so that MPI launchers and signals reach it."""
    os.execv(PROGRAM, ["trifold", *sys.argv[1:]])
