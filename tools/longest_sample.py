#!/usr/bin/env python3
"""Finds the longest sample of GPT-2 124M in f32 that fits a limit of memory, by `trifold plan`, in steps of 1024 positions.

    tools/longest_sample.py TRIFOLD [GIB]

TRIFOLD is the program, GIB the memory of a rank (8). Prints one line for each way to save memory. Nothing is trained.
"""

import subprocess
import sys
from pathlib import Path

STEP, MOST = 1024, 1024 * 1024
CONFIG = Path(__file__).resolve().parents[1] / "launch/configs/gpt2-124m.cfg"
PLAN = ["plan", "--config", str(CONFIG), "--micro-batch-size", "1", "--global-batch-size", "1"]
FULL = "--recompute-granularity full"
TILES = "--tiled-mlp 64"
FILE = "--cpu-offloading-num-layers 12 --cpu-offloading-folder ."
ROTARY = "--position-embedding-type rope"
WAYS = ("", FULL, TILES, f"{FULL} {TILES}", f"{FULL} {TILES} {ROTARY}", FILE, f"{FULL} {FILE}", f"{TILES} {FILE}", f"{FULL} {TILES} {FILE}",
        f"{FULL} {TILES} {FILE} {ROTARY}", f"{FULL} --ranks 4 --cp 4 --cp-comm-type all_gather", f"{FULL} --ranks 4 --cp 4 --cp-comm-type p2p",
        f"{FULL} --ranks 4 --cp 4 --cp-comm-type p2p {TILES}", f"{FULL} --ranks 8 --cp 8 --cp-comm-type all_gather",
        f"{FULL} --ranks 8 --cp 8 --cp-comm-type p2p")


def fits(program, way, positions, limit):
    words = [program, *PLAN, "--memory-limit", limit, "--seq-length", str(positions), "--max-position-embeddings", str(positions), *way.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "--memory-limit" not in done.stderr:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    return done.returncode == 0


def longest(program, way, limit):
    """The most positions that fit, a multiple of STEP."""
    low, high = 0, 1
    while high * STEP < MOST and fits(program, way, high * STEP, limit):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(program, way, middle * STEP, limit) else (low, middle)
    return low * STEP


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    limit = sys.argv[2] if len(sys.argv) == 3 else "8"
    for way in WAYS:
        print(f"{longest(sys.argv[1], way, limit)} positions: {way or 'no option'}", flush=True)


if __name__ == "__main__":
    main()
