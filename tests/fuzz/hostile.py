#!/usr/bin/env python3
"""Runs the program on damaged and hostile files, of every kind that a command reads.

    tests/fuzz/hostile.py TRIFOLD [--inputs 20000] [--rules 4000] [--jobs 2] [--only NAME] [--seed 1] [--keep FOLDER]

First come inputs made by rules (deep, huge, empty, wrong types, pipes, devices), then random mutations of good ones,
until there are `--inputs` of both. Each run must end with status 0 or 2, never by a signal, within 10 s of processor
time, with at most 256 MiB more memory than a good input of its kind takes, and must print nothing that controls a
terminal. Violations are shown and their folders kept; then the exit status is 1.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hostile_inputs import by_rules, mutated  # noqa: E402
from hostile_targets import make_targets  # noqa: E402

CPU_SECONDS = 10
WALL_SECONDS = 60  # a busy machine is no hang; waiting for a pipe is
MOST_MEMORY = 256 << 20
# Escape sequences and other controls; a line may end and be indented. What a model generates is exempt (stdout).
CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xe2\x80[\xaa-\xae]|\xc2[\x80-\x9f]")


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Outcome:
    def __init__(self, status, cpu, memory, message):
        self.status, self.cpu, self.memory, self.message = status, cpu, memory, message


def run(command, folder):
    """Runs `command` in `folder`: how it ended, and what it took."""
    with open(folder / ".message", "wb") as message:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=message, preexec_fn=limits)
        timer = threading.Timer(WALL_SECONDS, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    text = (folder / ".message").read_bytes()[: 1 << 20]
    return Outcome(process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, text)


def broken_rule(outcome, most_memory):
    if outcome.status < 0:
        return f"ended by {signal.Signals(-outcome.status).name} after {outcome.cpu:.1f} s of processor time"
    if outcome.status not in (0, 2):
        return f"exit status {outcome.status}"
    if outcome.memory > most_memory:
        return f"took {outcome.memory >> 20} MiB; {most_memory >> 20} are allowed"
    if outcome.status == 2 and b"trifold: " not in outcome.message:
        return "no message"
    if CONTROLS.search(outcome.message):
        return "printed control characters"
    if b"json.exception" in outcome.message:
        return "showed an error of a library"
    return None


class Trial:
    """One input: the files of a target with one of them changed by `change(path, generator)`."""

    def __init__(self, target, name, change, seed):
        self.target, self.name, self.change, self.seed = target, name, change, seed

    def run(self, scratch, keep):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="case_", dir=scratch))
        try:
            for source in self.target.files.rglob("*"):
                place = folder / source.relative_to(self.target.files)
                if source.is_dir():
                    place.mkdir(exist_ok=True)
                elif source == self.target.files / self.target.victim:
                    shutil.copyfile(source, place)
                else:
                    os.link(source, place)
            self.change(folder / self.target.victim, random.Random(self.seed))
            outcome = run(self.target.command, folder)
            problem = broken_rule(outcome, self.target.memory + MOST_MEMORY)
            if problem and keep:
                kept = keep / f"{self.target.name}_{self.name}_{self.seed}"
                shutil.copytree(folder, kept, dirs_exist_ok=True, symlinks=True, copy_function=copy_regular)
            return outcome, problem
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def copy_regular(source, place):
    if os.path.isfile(source) and os.path.getsize(source) < 1 << 26:
        shutil.copyfile(source, place)


def good_inputs_work(targets, scratch):
    """What a good input of each kind takes; nothing else is measured before that."""
    for target in targets:
        outcome, problem = Trial(target, "good", lambda *_: None, 0).run(scratch, None)
        if outcome.status != 0:
            sys.exit(f"{target.name}: the good input ends with {outcome.status}:\n{outcome.message.decode(errors='replace')}")
        target.memory = outcome.memory
        target.seconds = outcome.cpu


def trials_of(targets, inputs, most_rules, seed):
    trials = [Trial(target, name, change, seed) for target in targets for name, change in by_rules(target)]
    if len(trials) > most_rules:
        trials = random.Random(seed).sample(trials, most_rules)
    print(f"{len(trials)} inputs by rules, {max(0, inputs - len(trials))} mutations, {len(targets)} kinds", flush=True)
    generator = random.Random(seed)
    while len(trials) < inputs:
        # Cheap kinds are chosen more often.
        weights = [1 / (0.02 + target.seconds) for target in targets]
        target = generator.choices(targets, weights)[0]
        trials.append(Trial(target, "mutated", mutated(target), generator.randrange(1 << 30)))
    return trials


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trifold")
    parser.add_argument("--inputs", type=int, default=20000)
    parser.add_argument("--rules", type=int, default=4000, help="at most this many of those made by rules")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    counts, statuses, problems = collections.Counter(), collections.Counter(), []
    slowest, largest = (0, ""), (0, "")
    with tempfile.TemporaryDirectory(prefix="trifold_hostile_") as scratch:
        scratch = pathlib.Path(scratch)
        targets = make_targets(os.path.abspath(options.trifold), scratch / "good")
        if options.only:
            targets = [target for target in targets if options.only in target.name]
        good_inputs_work(targets, scratch)
        trials = trials_of(targets, options.inputs, options.rules, options.seed)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for trial, (outcome, problem) in zip(trials, pool.map(lambda t: t.run(scratch, options.keep), trials)):
                counts[trial.target.name] += 1
                statuses[outcome.status] += 1
                slowest = max(slowest, (outcome.cpu, f"{trial.target.name} {trial.name} {trial.seed}"))
                largest = max(largest, (outcome.memory - trial.target.memory, f"{trial.target.name} {trial.name} {trial.seed}"))
                if problem:
                    problems.append(problem)
                    message = outcome.message.decode(errors="replace")[:300]
                    print(f"{trial.target.name} {trial.name} {trial.seed}: {problem}\n    {message!r}", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{name:24} {count}")
    print(f"{sum(counts.values())} inputs, statuses {dict(statuses)}, {len(problems)} problems, {time.monotonic() - start:.0f} s")
    print(f"most processor time {slowest[0]:.1f} s ({slowest[1]}), most memory {largest[0] >> 20} MiB ({largest[1]})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
