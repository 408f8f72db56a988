#!/usr/bin/env python3
"""Measures how fast checkpoints are saved, loaded and resharded on a disk, relative to plain copies of the same bytes.

    tools/checkpoint_speed.py BUILD FOLDER [ROUNDS]

BUILD is a build folder with the programs trifold and checkpoint_bench (cmake --build BUILD --target trifold
checkpoint_bench); FOLDER is on the disk in question and has 8 GB of free space. Exit status: 0 if every ratio meets
its target in docs/measurements/checkpoint_speed.json, else 1.
"""

import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

# 176 million weights with two moments each: 2.1 GB.
MODEL = ("--num-layers 14 --hidden-size 1024 --num-attention-heads 16 --seq-length 16 --micro-batch-size 1 --lr 1e-3 "
         "--train-iters 1 --split 90,10,0").split()
TARGET = "--tp 2 --dp 2 --zero-stage 1".split()
MOST_MEMORY = 256  # MiB beyond the file cache


def forget(folder):
    """The next reader has to go to the disk."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(command):
    """(seconds, peak MiB of memory of its own) of a command."""
    start = time.monotonic()
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            try:
                text = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                found = re.search(r"RssAnon:\s*(\d+) kB", text)
                peak = max(peak, int(found.group(1)) / 1024 if found else 0)
            except OSError:
                pass
            time.sleep(0.005)
        seconds = time.monotonic() - start
        if process.returncode != 0:
            sys.exit(f"{command[0]} ended with status {process.returncode}")
    return seconds, peak


def reshard(trifold, folder, rounds):
    source = folder / "source"
    data = pathlib.Path(__file__).resolve().parents[1] / "data" / "tinyshakespeare.txt"
    subprocess.run([trifold, "pretrain", *MODEL, "--data-path", data, "--save", source], check=True, capture_output=True)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    ratios, peaks = [], []
    for _ in range(rounds):
        forget(source)
        copied = run(["sh", "-c", f"cp -r '{source}' '{folder}/copy' && sync -f '{folder}/copy'"])[0]
        shutil.rmtree(folder / "copy")
        forget(source)
        seconds, peak = run([trifold, "reshard", "--load", source, "--save", folder / "target", *TARGET])
        shutil.rmtree(folder / "target")
        ratios.append(seconds / copied)
        peaks.append(peak)
        print(f"{size / 1e9:.2f} GB: cp and sync {copied:.2f} s, reshard {seconds:.2f} s with {peak:.0f} MiB", flush=True)
    print(f"medians of {rounds} rounds: reshard {statistics.median(ratios):.2f} copies (at most 2.50), "
          f"{max(peaks):.0f} MiB (at most {MOST_MEMORY})", flush=True)
    return statistics.median(ratios) <= 2.5 and max(peaks) <= MOST_MEMORY


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    build, where = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 3
    folder = where / f"checkpoint_speed_{os.getpid()}"
    folder.mkdir()
    try:
        done = subprocess.run([build / "tests/conformance/checkpoint_bench", folder, "1000", "1", str(rounds)], check=True,
                              stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        save, load, stall = map(float, re.search(r"save ([\d.]+) of.*load ([\d.]+) of.*stall ([\d.]+)", done.stdout).groups())
        good = save >= 0.8 and load >= 0.8 and stall <= 1.5
        good = reshard(build / "launch/trifold", folder, rounds) and good
    finally:
        shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
