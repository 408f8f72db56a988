#!/usr/bin/env python3
"""Measures recommenders whose tables are in files against the same tables in memory, in turns.

    tools/table_file_speed.py TRIFOLD FOLDER [--rows 7000000] [--cache 0.3] [--limit 1.3] [--steps 1200] [--rounds 2]

FOLDER is on the disk in question and needs the space of the tables twice: 10 GB for ten tables of 7 million rows. The
files begin as a checkpoint of two steps, so that every row that is not in memory is read. A run of --steps fills the cache
and saves nothing; its speed is shown at its begin, while rows are only read, and at its end, while as many leave the cache
as enter it. Runs of both kinds then take turns, each from the checkpoint. --limit GiB is that of a memory control group
for the runs with files, where this user may make one; 0: none. --new begins without a checkpoint.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

MODEL = ("--synthetic-zipf 1.05 --embedding-dim 16 --bottom-mlp 512-256-64-16 --top-mlp 512-256-1 --global-batch-size 2048 "
         "--embedding-optimizer rowwise-adagrad --lr 0.05 --ranks 2 --threads-per-rank 1").split()


class Group:
    """A memory control group, of version 2 or 1, or none."""

    def __init__(self, gib):
        self.folder = None
        if gib == 0:
            return
        for root, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            folder = pathlib.Path(root) / f"trifold-tables-{os.getpid()}"
            if not (pathlib.Path(root) / "cgroup.procs").exists():
                continue
            try:
                folder.mkdir()
                (folder / limit).write_text(str(int(gib * 2**30)), encoding="ascii")
                self.folder = folder
                return
            except OSError:
                if folder.is_dir():
                    folder.rmdir()
        print("no memory control group can be made: runs without a limit", file=sys.stderr)

    def enter(self):
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text("0", encoding="ascii")

    def peak(self):
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if self.folder is not None and (self.folder / name).exists():
                return f"{int((self.folder / name).read_text(encoding='ascii')) / 2**30:.2f} GiB"
        return "no limit"

    def close(self):
        if self.folder is not None:
            self.folder.rmdir()


def run(trifold, rows, steps, extra, log, group=None):
    """The lines of the log of a run."""
    log.unlink(missing_ok=True)
    command = [trifold, "recommend", "--data-format", "synthetic", "--table-rows", ",".join([str(rows)] * 10), *MODEL,
               "--synthetic-samples", "1000000000", "--train-iters", str(steps), "--log-json", log, *extra]
    enter = group.enter if group else None
    # pylint: disable=subprocess-popen-preexec-fn
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, preexec_fn=enter)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return [entry for entry in map(json.loads, log.read_text(encoding="utf-8").splitlines()) if "step_seconds" in entry]


def speed(entries):
    return sum(entry["samples"] for entry in entries) / sum(entry["step_seconds"] for entry in entries)


def found(entries):
    return sum(entry["file_rows_in_memory"] for entry in entries) / sum(entry["file_rows"] for entry in entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trifold")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=7_000_000, help="of each of ten tables")
    parser.add_argument("--cache", type=float, default=0.3, help="GiB of each of two ranks")
    parser.add_argument("--limit", type=float, default=1.3, help="GiB of the runs with files")
    parser.add_argument("--steps", type=int, default=1200, help="of a run with files")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--new", action="store_true")
    given = parser.parse_args()
    work = given.folder / f"tables-{os.getpid()}"
    work.mkdir()
    group = Group(given.limit)
    try:
        log = work / "log"
        load = []
        if not given.new:
            run(given.trifold, given.rows, 2, ["--save", work / "saved"], log)
            load = ["--load", work / "saved"]
        part = 60
        memory, begins, ends = [], [], []
        for _ in range(given.rounds):
            entries = run(given.trifold, given.rows, 2 + 2 * part, load, log)
            memory.append(speed(entries[-part:]))
            print(f"memory  {memory[-1]:8.0f} samples/s", flush=True)
            files = ["--table-storage", work, "--table-cache", given.cache]
            entries = run(given.trifold, given.rows, given.steps, [*load, *files], log, group)
            for at in range(0, len(entries), max(len(entries) // 8, 1)):
                some = entries[at:at + part]
                print(f"files   {speed(some):8.0f} samples/s in steps {some[0]['step']} to {some[-1]['step']}, "
                      f"{100 * found(some):.1f} % in memory", flush=True)
            begins.append(speed(entries[2:2 + part]) / memory[-1])
            ends.append(speed(entries[-2 * part:]) / memory[-1])
            print(f"ratio   {begins[-1]:.2f} at the begin, {ends[-1]:.2f} at the end", flush=True)
        print(f"median  {statistics.median(begins):.2f} at the begin, {statistics.median(ends):.2f} at the end; memory of the "
              f"group {group.peak()}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
        group.close()


if __name__ == "__main__":
    main()
