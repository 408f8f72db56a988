#!/usr/bin/env python3
"""Memory of training GPT-2 124M in f32, Trifold against PyTorch, one process each: a table, and the largest batch.

    python3 tools/reference/memory_compare.py --trifold build/release/launch/trifold [--limit-gib 6]

Needs Debian's python3-torch and libopenblas0. Both train three steps of micro-batches of 256 tokens on random tokens; the peak is the
most a process had resident, as the system counts it. Of that a process has before it makes a model (the program and
its libraries), and parameters, gradients and two moments, 16 bytes a parameter; what is left is compared: activations
and everything temporary. PyTorch runs twice, with gradients dropped between steps (its default in versions from 2 on)
and kept (its default before). With --limit-gib X the largest micro-batch is looked for whose peak, less what the
process has before it makes a model, stays below X GiB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PARAMETERS = 12 * 7_087_872 + (50304 + 256 + 2) * 768  # blocks; padded vocabulary, positions, last norm


def run_measured(command):
    """Runs a program; returns its output and the most bytes it had resident."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{text}")
    return text, usage.ru_maxrss * 1024


def trifold_peak(program, batch, recompute):
    command = [program, "bench", "--what", "step", "--iters", "2", "--warmup-iters", "1", "--micro-batch-size",
               str(batch)]
    if recompute != "none":
        command += ["--recompute-granularity", recompute]
    return run_measured(command)[1]


def torch_run(batch, keep):
    command = ["/usr/bin/python3", os.path.join(HERE, "memory_torch.py"), "--micro-batch-size", str(batch)]
    text, _ = run_measured(command + (["--keep-grads"] if keep else []))
    return json.loads(text.splitlines()[-1])


def largest(fits, start):
    """The largest batch for which `fits` holds, by doubling and halving."""
    good, bad = 0, None
    batch = start
    while bad is None or bad - good > 1:
        if fits(batch):
            good = batch
        else:
            bad = batch
        batch = good * 2 if bad is None else (good + bad) // 2
    return good


def mib(count):
    return f"{count / 2**20:8.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trifold", required=True)
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--limit-gib", type=float)
    args = parser.parse_args()
    base = run_measured([args.trifold, "--version"])[1]
    states = 16 * PARAMETERS
    torch = {"dropped": torch_run(args.micro_batch_size, False), "kept": torch_run(args.micro_batch_size, True)}
    print(f"MiB at micro-batch {args.micro_batch_size} x 256     before     peak   beyond   of PyTorch, gradients "
          "dropped   kept")
    for name, run in torch.items():
        print(f"PyTorch, gradients {name:7}     {mib(run['base'])} {mib(run['peak'])} {mib(run['beyond'])}")
    for recompute in ("none", "selective", "full"):
        peak = trifold_peak(args.trifold, args.micro_batch_size, recompute)
        beyond = peak - base - states
        shares = [beyond / torch[name]["beyond"] for name in ("dropped", "kept")]
        print(f"Trifold, recompute {recompute:9}   {mib(base)} {mib(peak)} {mib(beyond)}   {shares[0]:28.2f} "
              f"{shares[1]:6.2f}")
    if args.limit_gib:
        limit = args.limit_gib * 2**30
        most = largest(lambda b: (lambda r: r["peak"] - r["base"] <= limit)(torch_run(b, False)), 4)
        print(f"largest micro-batch within {args.limit_gib} GiB: PyTorch {most}")
        for recompute in ("none", "selective", "full"):
            ours = largest(lambda b: trifold_peak(args.trifold, b, recompute) - base <= limit, 4)  # noqa: B023
            print(f"    Trifold, recompute {recompute}: {ours} ({ours / most:.1f} times)")


if __name__ == "__main__":
    sys.exit(main())
