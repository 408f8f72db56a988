#!/usr/bin/env python3
"""Counts the places in which an operation of the OpTable is written down, outside kernels and tests.

A place is a file of src/ops, except those of kernels (the folders, and the header of the CPU's), that declares the
operation or its check, defines one of them or puts it into a table; callers are not counted.

Usage: count_op_places.py [--list] [--most N] [SOURCE_FOLDER]

Prints the largest number and the operations that have it, with --list each operation with its files. With --most the
exit status is 1 if an operation has more than N places.
"""
import argparse
import pathlib
import re
import sys


def operations(ops):
    """Names of the entries of OpTable, in its order."""
    return re.findall(r"void \(\*(\w+)\)\(Stream&", (ops / "ops.h").read_text())


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def writes_down(text, name):
    """Whether a file's text declares or defines `name` or its check, or fills a table's entry of that name."""
    patterns = (rf"^(?:  static )?void {name}\(",   # a function of that name
                rf"void \(\*{name}\)\(",            # an entry of a table of functions
                rf"\bops\.{name} = ",               # an assignment to one
                rf"&OpTable::{name}\b")             # the same by a pointer to it, or an item of a list
    return any(re.search(pattern, text, re.MULTILINE) for pattern in patterns)


def places(source):
    """Operation: the files that write it down."""
    ops = source / "ops"
    files = {path.relative_to(source).as_posix(): without_comments(path.read_text())
             for path in sorted(ops.rglob("*"))
             if path.suffix in (".h", ".cpp") and "kernels" not in path.parts and path != ops / "kernels.h"}
    return {name: [file for file, text in files.items() if writes_down(text, name)] for name in operations(ops)}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--most", type=int)
    parser.add_argument("source", nargs="?", default=pathlib.Path(__file__).resolve().parents[1] / "src")
    given = parser.parse_args(arguments)
    found = places(pathlib.Path(given.source))
    most = max(map(len, found.values()))
    if given.list:
        for name, files in found.items():
            print(f"{name:>28} {len(files)}  {' '.join(files)}")
    print(f"{len(found)} operations, at most {most} places each: "
          + ", ".join(name for name, files in found.items() if len(files) == most))
    return 1 if given.most is not None and most > given.most else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
