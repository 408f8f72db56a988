"""The memory peak of a process against the plan of its ranks."""

import json
import os
import subprocess
import unittest

from program import TEXT, TRIFOLD, ProgramTest

MODEL = ("--num-layers 6 --hidden-size 512 --num-attention-heads 8 --seq-length 256 --vocab-size 16384 "
         "--micro-batch-size 2 --zero-min-unit-params 1000000").split()
# The memory of a process before the model: the program, its libraries, threads, the benchmark of matrix products.
BASE = 48 << 20


def peak_of(command, folder):
    """Peak resident bytes of a process that must succeed."""
    with open(folder / "out.txt", "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise AssertionError((folder / "out.txt").read_text())
    return usage.ru_maxrss << 10


class Memory(ProgramTest):
    def test_the_peak_is_that_of_the_plan(self):
        for precision in ([], ["--bf16"]):
            for stage in range(4):
                with self.subTest(precision=precision, stage=stage):
                    run = [*MODEL, "--ranks", "2", "--zero-stage", str(stage), *precision]
                    self.trifold("plan", *run, "--json", "plan.json")
                    rank = json.loads((self.folder / "plan.json").read_text())["pipeline_ranks"][0]["bytes"]
                    peak = peak_of([TRIFOLD, "pretrain", *run, "--data-path", str(TEXT), "--train-iters", "2", "--lr", "1e-4",
                                    "--threads-per-rank", "1", "--global-batch-size", "4"], self.folder)
                    planned = 2 * rank + BASE
                    print(f"{' '.join(precision) or 'f32':6} stage {stage}: plan 2 x {rank / 2**20:6.1f} + {BASE >> 20} MiB "
                          f"= {planned / 2**20:6.1f}, peak {peak / 2**20:6.1f} MiB, {100 * (peak / planned - 1):+5.1f} %")
                    self.assertLess(abs(peak - planned), 0.1 * planned)


if __name__ == "__main__":
    unittest.main()
