"""tests/gpu.sh without a GPU: with stand-ins for the programs it runs, it keeps its time limits and writes its
reports."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STEP = {"step": {"seconds": 1, "tokens_per_second": 5, "gemm_flops": 6e14, "share": 0.5, "loss": 10.9, "capture_note": ""}}
GEMM = {"gemm": [{"m": 1, "n": 2, "k": 3, "flops": 7e14}]}
PROGRAMS = {
    "build/release/launch/trifold": f"""what=$3
while (($#)); do if [[ $1 == --json ]]; then file=$2; fi; shift; done
if [[ $what == gemm ]]; then echo '{json.dumps(GEMM)}' >"$file"; else echo '{json.dumps(STEP)}' >"$file"; fi""",
    "build/release/tests/cuda/cuda_ops": "echo an operation is wrong; exit 1",
    "build/release/tests/cuda/cuda_products": "echo begins; sleep 60",
    "build/release/tests/cuda/cuda_probe": "echo 1558M: best of eight; echo '{}' >$4",
    "build/release/tests/conformance/op_bench": """echo operation us GB/s of copy
echo copy 1.0 10.0 1.00
echo gelu 1.0 9.0 0.90""",
    "bin/nvidia-smi": "if [[ $1 == -L ]]; then echo 'GPU 0: none'; else echo 5; fi",
}


class GpuScript(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "tests").mkdir()
        shutil.copy(ROOT / "tests/gpu.sh", self.folder / "tests")
        shutil.copytree(ROOT / "tests/gpu", self.folder / "tests/gpu")
        for name, text in PROGRAMS.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/usr/bin/env bash\n" + text + "\n")
            path.chmod(0o755)
        library = self.folder / "build/release/lib/trifold_cuda.so"
        library.parent.mkdir(parents=True)
        library.touch()

    def run_script(self, *arguments, gpu=True):
        bin_first = f"{self.folder}/bin:{os.environ['PATH']}" if gpu else os.environ["PATH"]
        return subprocess.run([self.folder / "tests/gpu.sh", *arguments], capture_output=True, text=True, check=False,
                              timeout=120, env={**os.environ, "PATH": bin_first, "OUT": str(self.folder / "out")})

    def report(self, name):
        return (self.folder / "out" / name).read_text()

    def test_a_part_that_fails_or_hangs_does_not_stop_the_next(self):
        done = self.run_script("--no-build", "--part-seconds", "5", "first")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        table = self.report("first.txt")
        for title, verdict in (("What products reach", "ok"), ("Every operation against the processor", "FAILED"),
                               ("Products and attention against f64", "FAILED"), ("Three steps of GPT-2 124M", "ok"),
                               ("Memory-bound kernels, at least 0.8 of the copy", "ok"),
                               ("GPT-2 1558M, 4 micro-batches of 16", "ok")):
            self.assertRegex(table, rf"(?m)^{re.escape(title)} +{verdict} ")
        self.assertIn("700 TFLOP/s", table)
        self.assertIn("gelu", table)
        self.assertIn("   1558M: best of eight", table)
        self.assertEqual(self.report("probe.json"), "{}\n")
        log = self.report("first.log")
        self.assertIn("an operation is wrong", log)
        self.assertRegex(log, r"begins\nstopped after [5-9] s")
        figures = [json.loads(line) for line in self.report("first.jsonl").splitlines()]
        self.assertEqual([each["name"] for each in figures], ["products", "gpt2-1558m"])
        self.assertEqual(figures[1]["figures"], STEP)

    def test_parts_without_time_left_are_named(self):
        done = self.run_script("--no-build", "--seconds", "1", "first")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(self.report("first.txt"), r"(?m)^GPT-2 1558M, 4 micro-batches of 16 +FAILED +0 s")
        self.assertIn("left out: the call's 1 seconds are over", self.report("first.log"))

    def test_no_gpu_and_no_such_call(self):
        (self.folder / "bin/nvidia-smi").write_text("#!/usr/bin/env bash\nexit 9\n")
        done = self.run_script("first")
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]),
                         (0, "tests/gpu.sh: skipped, this machine has no NVIDIA GPU (nvidia-smi finds none)"))
        self.assertEqual(self.run_script("fastest").returncode, 2)


if __name__ == "__main__":
    unittest.main()
