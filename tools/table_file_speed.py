#!/usr/bin/env python3
"""Measures recommenders whose tables are in files against the same tables in memory, in turns.

    tools/table_file_speed.py TRIFOLD FOLDER [--rows 7000000] [--cache 0.3] [--limit 1.3] [--trained 600] [--steps 400] [--rounds 2]

FOLDER is on the disk in question and needs the space of the tables twice: 10 GB for ten tables of 7 million rows. A run in
memory trains --trained steps and saves. Then runs in memory and in files take turns, each from that checkpoint; their speed is
that of all steps but the first tenth, so that neither the start nor the first use of memory counts, in the mean and in the
median step. What a step takes of processors is shown, too; other work on the machine changes that less. "Huge" is the share of the process's memory in huge pages, on which the speed of tables in memory depends, and
"stolen" what the host of a virtual machine took away. --limit GiB is that of a memory control group for the runs with files,
where this user may make one; 0: none. --read-all adds runs in which files are read for every row that is not in memory: for rows
that were never trained, too, which follow from the seed otherwise. --new begins without a checkpoint.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

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


def processor():
    """Ticks of all processors so far: all, and stolen."""
    numbers = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    return sum(numbers), numbers[7]


def used_by(pid):
    """What a process took so far: seconds of processors, and bytes that it read from and wrote to disks."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    moved = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines())
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(moved["read_bytes"]), int(moved["write_bytes"])


def huge_share(pid):
    sizes = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, size = line.split()[:2]
        sizes[name] = int(size)
    return sizes["AnonHugePages:"] / max(sizes["Anonymous:"], 1)


class Run:
    """A run and the lines of its log."""

    def __init__(self, given, work, first, steps, extra, group=None):
        log = work / "log"
        log.unlink(missing_ok=True)
        command = [given.trifold, "recommend", "--data-format", "synthetic", "--table-rows", ",".join([str(given.rows)] * 10), *MODEL,
                   "--synthetic-samples", "1000000000", "--train-iters", str(first + steps), "--log-json", log, *extra]
        self.huge = self.stolen = 0
        self.used = [0, 0, 0]
        with open(work / "output", "w", encoding="utf-8") as output:
            # pylint: disable=subprocess-popen-preexec-fn
            process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output, preexec_fn=group.enter if group else None)
            try:
                self.watch(process, log, steps)
            finally:
                process.kill()
                process.wait()
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{(work / 'output').read_text(encoding='utf-8')}")
        entries = map(json.loads, log.read_text(encoding="utf-8").splitlines())
        self.entries = [entry for entry in entries if "step_seconds" in entry]
        self.counted = self.entries[len(self.entries) // 10:]

    def watch(self, process, log, steps):
        before = None
        while process.poll() is None:
            time.sleep(0.2)
            done = log.read_bytes().count(b"\n") if log.exists() else 0
            if done <= steps // 10 or done >= steps - 1:
                continue
            try:
                now = (*processor(), done, *used_by(process.pid))
                if self.huge == 0 and done > steps // 2:
                    self.huge = huge_share(process.pid)
            except (OSError, ValueError, KeyError):
                continue  # it has just ended
            before = before or now
            since = [a - b for a, b in zip(now, before)]
            self.stolen = since[1] / max(since[0], 1)
            self.used = [used / max(since[2], 1) for used in since[3:]]

    def text(self):
        return (f"{speed(self.counted):8.0f} samples/s, median step {median(self.counted) * 1000:6.2f} ms, {self.used[0] * 1000:6.2f} ms of processors, "
                f"{self.used[1] / 1e6:.1f} MB read and {self.used[2] / 1e6:.1f} written a step, {100 * self.huge:3.0f} % huge, {100 * self.stolen:3.1f} % stolen")


def speed(entries):
    return sum(entry["samples"] for entry in entries) / sum(entry["step_seconds"] for entry in entries)


def median(entries):
    return statistics.median(entry["step_seconds"] for entry in entries)


def rows_text(entries):
    wanted = sum(entry["file_rows"] for entry in entries)
    # On rank 0, which has half of the tables.
    return (f"{100 * sum(entry['file_rows_in_memory'] for entry in entries) / wanted:4.1f} % in memory, "
            f"{sum(entry['file_rows_read'] for entry in entries) / len(entries):5.0f} rows a step read by rank 0")


def forget(folder):
    """Lets the system use the memory in which it keeps files: huge pages are free again."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def show(name, memory, files):
    shares = speed(files.counted) / speed(memory.counted), median(memory.counted) / median(files.counted)
    print(f"{name} {files.text()}", flush=True)
    part = max(len(files.entries) // 8, 1)
    for at in range(0, len(files.entries), part):
        some = files.entries[at:at + part]
        print(f"          {speed(some):8.0f} samples/s in steps {some[0]['step']} to {some[-1]['step']}, {rows_text(some)}", flush=True)
    print(f"share    {shares[0]:.2f} of the speed in memory, {shares[1]:.2f} by the median step", flush=True)
    return shares


def measure(given, work, group):
    load = []
    if not given.new:
        print("trained ", Run(given, work, 0, given.trained, ["--save", work / "saved"]).text(), flush=True)
        load = ["--load", work / "saved"]
    first = given.trained if load else 0
    files = ["--table-storage", work, "--table-cache", given.cache]
    kinds = {"files   ": files}
    if given.read_all:
        # With other first values no row of the checkpoint has those with which it would begin.
        kinds["all read"] = [*files, "--embedding-init-range", 0.01]
    shares = {kind: [] for kind in kinds}
    for _ in range(given.rounds):
        forget(work)
        memory = Run(given, work, first, given.steps, load)
        print("memory  ", memory.text(), flush=True)
        for kind, extra in kinds.items():
            forget(work)
            shares[kind].append(show(kind, memory, Run(given, work, first, given.steps, [*load, *extra], group)))
    for kind, each in shares.items():
        means, medians = zip(*each)
        print(f"median of {kind.strip()}: {statistics.median(means):.2f}, {statistics.median(medians):.2f} by the median step")
    print(f"memory of the group {group.peak()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trifold")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=7_000_000, help="of each of ten tables")
    parser.add_argument("--cache", type=float, default=0.3, help="GiB of each of two ranks")
    parser.add_argument("--limit", type=float, default=1.3, help="GiB of the runs with files")
    parser.add_argument("--trained", type=int, default=600, help="steps before the checkpoint")
    parser.add_argument("--steps", type=int, default=400, help="of each run that is measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--read-all", action="store_true")
    parser.add_argument("--new", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no files
    work = given.folder / f"tables-{os.getpid()}"
    work.mkdir()
    group = Group(given.limit)
    try:
        measure(given, work, group)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        group.close()


if __name__ == "__main__":
    main()
