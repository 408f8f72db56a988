#!/usr/bin/env python3
"""Registers, spilled bytes and shared memory of every CUDA kernel, as ptxas reports them for every architecture.

usage: kernel_resources.py BUILD [--most-registers N] [--most-spills BYTES] [--list]

BUILD is a configured build folder with the CUDA module. The compile commands of its .cu files are run once more, into a
temporary folder; after a build with ccache that takes a second, because ptxas' output is cached with the object. Prints
one line for each kernel and type, the most over its architectures (with --list each architecture), and exits with 1
when a bound is broken.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

COMPILING = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")

# Kernels that may use more registers than others, up to what a thread can have: those against which others are checked, whose
# speed does not matter, and those that hold their sums in registers: products on tensor cores, and gradients of vectors.
MOST_REGISTERS = {"attention": 255, "expert_products": 255, "expert_warpgroups": 224, "interaction": 200}

Usage = collections.namedtuple("Usage", "registers spills shared")


def commands(build):
    """The command of every .cu file, as a list of words, without its output."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith(".cu") and "nvcc" in entry["command"]:
            words = shlex.split(entry["command"])
            if shutil.which("ccache") and "ccache" not in words[0]:
                words.insert(0, "ccache")  # as the build does, but CMake does not write it down
            place = words.index("-o")
            # Ninja's build also asks for dependencies; ccache knows a command by its options.
            words[place:place + 2] = ["-MD", "-MT", words[place + 1]]
            yield pathlib.Path(entry["file"]).stem, words, entry["directory"]


def run(job, folder):
    name, words, directory = job
    command = [*words, "-MF", f"{folder}/{name}.d", "-o", f"{folder}/{name}.o"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}.cu cannot be compiled:\n{done.stdout}{done.stderr}")
    return name, done.stdout + done.stderr


def usages(text):
    """(kernel, architecture, Usage) from what ptxas says with -v."""
    kernel = spills = None
    for line in text.splitlines():
        if match := COMPILING.search(line):
            kernel, spills = match.groups(), 0
        elif match := SPILLS.search(line):
            spills = max(int(match[1]), int(match[2]))
        elif (match := USED.search(line)) and kernel:
            shared = SHARED.search(line)
            yield *kernel, Usage(int(match[1]), spills, int(shared[1]) if shared else 0)
            kernel = None


def readable(names):
    """Mangled names as C++ writes them, shortened to kernel and template arguments."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    short = []
    for name in text.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|trifold::(cuda|cpu)::|trifold::|^void ", "", name)
        name = re.sub(r"_GLOBAL__N__\w+::", "", name)
        depth = 0
        for place, letter in enumerate(name):
            depth += {"<": 1, ">": -1}.get(letter, 0)
            if letter == "(" and depth == 0:
                name = name[:place]
                break
        short.append(name)
    return dict(zip(names, short))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--most-registers", type=int, default=128)
    parser.add_argument("--most-spills", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    jobs = list(commands(options.build))
    if not jobs:
        print("skipped: this build has no CUDA kernels (nvcc was not found, or TRIFOLD_CUDA is off)")
        return 0
    found = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, text in pool.map(lambda job: run(job, folder), jobs):
            lines = list(usages(text))
            if not lines:
                sys.exit(f"{name}.cu: ptxas reported no kernel; it must be compiled with -Xptxas=-v")
            for kernel, architecture, usage in lines:
                found.setdefault((name, kernel), {})[architecture] = usage
    names = readable([kernel for _, kernel in found])
    broken = 0
    print(f"{'registers':>9} {'spills':>6} {'shared':>6}  kernel")
    for (name, kernel), by_architecture in sorted(found.items(), key=lambda item: (item[0][0], names[item[0][1]])):
        most = Usage(*(max(usage[i] for usage in by_architecture.values()) for i in range(3)))
        bad = most.registers > MOST_REGISTERS.get(name, options.most_registers) or most.spills > options.most_spills
        broken += bad
        print(f"{most.registers:9} {most.spills:6} {most.shared:6}  {name}: {names[kernel]}{'  <- too many' if bad else ''}")
        if options.list or bad:
            for architecture, usage in sorted(by_architecture.items()):
                print(f"{usage.registers:9} {usage.spills:6} {usage.shared:6}    {architecture}")
    print(f"{len(found)} kernels; {broken} break a bound ({options.most_registers} registers, "
          f"{options.most_spills} spilled bytes)")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
