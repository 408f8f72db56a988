#!/usr/bin/env python3
"""Compares steps that `trifold plan` predicts with steps measured on this machine, for layouts of two ranks.

    tools/predicted_steps.py build/release/launch/trifold [--iters N] [--repeats N] [--mpiexec PROGRAM] [--only TEXT]
                             [--most PERCENT] [--choice]

For each layout: `bench --what blocks` times the parts of a step, `plan --costs` predicts the step from them, and
`bench --what step` measures it; the three are repeated, and the medians of prediction and measurement are compared.
The last column is the prediction of `plan --hardware` from one `bench --what hardware`, which depends on the model only
through its attention. Ranks are threads of one process or two processes under mpiexec. The last layout is a recommender's,
which `plan --measure-steps` predicts from actions that it times one at a time, and measures.

--choice: the search's first choice instead. `plan --search` for two ranks finds ten layouts from a hardware file that
one rank wrote; `bench --what step` measures each of them, in turn, and the first is compared with the fastest.

Meant for an idle machine: other work during only one of the two measurements counts as error. The load average is
printed. --most P: exit status 1 when a prediction from measured blocks is more than P percent off.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = ["--num-layers", "8", "--hidden-size", "256", "--num-attention-heads", "8", "--seq-length", "128",
         "--vocab-size", "4096", "--micro-batch-size", "2", "--global-batch-size", "16"]
THREADS = ["--ranks", "2"]
TENSOR = ["--tensor-model-parallel-size", "2"]
PIPELINE = ["--pipeline-model-parallel-size", "2"]
# The output layer in blocks that either stage may have.
PARTS = ["--untie-embeddings-and-output-weights", "--pipeline-vocab-parts", "8"]


def pipeline(schedule, stages=1):
    chunks = ["--num-virtual-stages-per-pipeline-rank", str(stages)] if stages > 1 else []
    return [*PIPELINE, "--schedule", schedule, *chunks]


LAYOUTS = (
    ("tp 2", TENSOR, False), ("tp 2, sequence parallel", [*TENSOR, "--sequence-parallel"], False),
    ("pp 2, gpipe", pipeline("gpipe"), False), ("pp 2, 1f1b", pipeline("1f1b"), False),
    ("pp 2, interleaved", pipeline("interleaved", 2), False), ("pp 2, zb-h1", pipeline("zb-h1"), False),
    ("pp 2, zb-v", pipeline("zb-v", 2), False), ("pp 2, zb-h1, head in parts", [*pipeline("zb-h1"), *PARTS], False),
    ("dp 2", [], False), ("dp 2, ZeRO 3", ["--zero-stage", "3"], False),
    ("tp 2, MPI", TENSOR, True), ("pp 2, 1f1b, MPI", pipeline("1f1b"), True), ("dp 2, MPI", [], True),
)
# 26 tables of 10 000 rows, of Kaggle's shape; `plan` itself measures its costs on this machine, and the steps.
RECOMMENDER = ["--config", str(Path(__file__).resolve().parent.parent / "launch/configs/dlrm-kaggle.cfg"),
               "--table-rows", "-".join(["10000"] * 26), "--global-batch-size", "2048"]


class Machine:
    def __init__(self, program, mpiexec):
        self.program, self.mpiexec = program, mpiexec
        self.folder = tempfile.TemporaryDirectory()

    def ask(self, command, options, mpi=False):
        """What the command writes to --json."""
        file = Path(self.folder.name) / "answer.json"
        launcher = [self.mpiexec, "-n", "2"] if mpi else []
        words = [*launcher, self.program, command, *options, "--json", str(file)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
        return json.loads(file.read_text())

    def keep(self, name, content):
        file = Path(self.folder.name) / name
        file.write_text(json.dumps(content))
        return str(file)


def compare(machine, layout, mpi, arguments):
    """(predicted from blocks, measured), seconds of a step: medians."""
    options = [*MODEL, *layout]
    ranks = [] if mpi else THREADS
    predicted, measured = [], []
    for _ in range(arguments.repeats):
        timed = ["--iters", str(arguments.iters), "--warmup-iters", "1"]
        blocks = machine.ask("bench", ["--what", "blocks", *options, *ranks, *timed], mpi)
        costs = machine.keep("costs.json", blocks)
        predicted.append(machine.ask("plan", [*options, *THREADS, "--costs", costs])["step_seconds"])
        step = machine.ask("bench", ["--what", "step", *options, *ranks, *timed], mpi)
        measured.append(step["step"]["seconds"])
    return statistics.median(predicted), statistics.median(measured)


def recommender(machine, arguments):
    """The same for the recommender."""
    predicted, measured = [], []
    for _ in range(arguments.repeats):
        report = machine.ask("plan", [*RECOMMENDER, *THREADS, "--measure-steps", str(10 * arguments.iters)])
        predicted.append(report["predicted_seconds"]["step"])
        measured.append(report["measured_seconds"]["step"])
    return statistics.median(predicted), statistics.median(measured)


def choice(machine, arguments):
    """How much slower the first choice of the search was than the fastest of the layouts it printed, in percent."""
    job = [*MODEL[:MODEL.index("--micro-batch-size")], "--global-batch-size", "16", *THREADS]
    alone = [*job[:-1], "1", "--micro-batch-size", "2"]
    here = machine.keep("here.json", machine.ask("bench", ["--what", "hardware", *alone]))
    found = machine.ask("plan", [*job, "--hardware", here, "--search"])["layouts"]
    measured = [[] for _ in found]
    for _ in range(arguments.repeats):
        for layout, seconds in zip(found, measured, strict=True):
            timed = ["--iters", str(arguments.iters), "--warmup-iters", "1"]
            step = machine.ask("bench", ["--what", "step", *job, *layout["options"], *timed])
            seconds.append(step["step"]["seconds"])
    medians = [statistics.median(seconds) for seconds in measured]
    for layout, seconds in zip(found, medians, strict=True):
        print(f"{1e3 * layout['step_seconds']:8.1f} ms {1e3 * seconds:8.1f} ms  {' '.join(layout['options'])}")
    slower = 100 * (medians[0] / min(medians) - 1)
    print(f"the first choice takes {slower:.1f} % longer than the fastest of {len(found)}")
    return slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mpiexec", default=os.environ.get("MPIEXEC", "mpiexec"))
    parser.add_argument("--only", default="", help="layouts whose name contains this")
    parser.add_argument("--most", type=float)
    parser.add_argument("--choice", action="store_true")
    arguments = parser.parse_args()

    machine = Machine(arguments.program, arguments.mpiexec)
    if arguments.choice:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        slower = choice(machine, arguments)
        return 1 if arguments.most is not None and slower > arguments.most else 0
    layouts = [layout for layout in LAYOUTS if arguments.only in layout[0]]
    if layouts:
        here = machine.keep("here.json", machine.ask("bench", ["--what", "hardware", *MODEL, *THREADS]))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'layout':26} {'predicted':>11} {'measured':>11} {'error':>8} {'by hardware':>12} {'error':>8}")
    worst = 0
    for name, layout, mpi in layouts:
        predicted, measured = compare(machine, layout, mpi, arguments)
        by_hardware = machine.ask("plan", [*MODEL, *layout, *THREADS, "--hardware", here])["step_seconds"]
        error = 100 * (predicted / measured - 1)
        worst = max(worst, abs(error))
        print(f"{name:26} {1e3 * predicted:8.1f} ms {1e3 * measured:8.1f} ms {error:+6.1f} % {1e3 * by_hardware:9.1f} ms "
              f"{100 * (by_hardware / measured - 1):+6.1f} %", flush=True)
    if arguments.only in "recommender":
        predicted, measured = recommender(machine, arguments)
        error = 100 * (predicted / measured - 1)
        worst = max(worst, abs(error))
        print(f"{'recommender':26} {1e3 * predicted:8.1f} ms {1e3 * measured:8.1f} ms {error:+6.1f} %")
    print(f"largest error of a prediction from measured blocks: {worst:.1f} %")
    return 1 if arguments.most is not None and worst > arguments.most else 0


if __name__ == "__main__":
    sys.exit(main())
