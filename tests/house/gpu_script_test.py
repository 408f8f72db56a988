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
PLAN = {"pipeline_ranks": [{"bytes": 7 << 20, "offloaded_bytes": 5}]}
REHEARSAL = {"ranks": [{"rank": 0, "micro_batches": 128, "step_seconds": 5.25,
                        "memory": {"planned": {"bytes": 33 << 30}, "held": {"bytes": 34 << 30}}}],
             "step": {"seconds": 5.5, "planned_seconds": 5.4, "tokens_per_second": 587000, "mfu": 0.41, "planned_mfu": 0.42}, "failures": []}
PROGRAMS = {
    "build/release/launch/trifold": f"""what=$3
if [[ $1 != bench ]]; then what=$1; fi
while (($#)); do if [[ $1 == --json ]]; then file=$2; fi; shift; done
case $what in
  gemm) echo '{json.dumps(GEMM)}' ;;
  plan) echo '{json.dumps(PLAN)}' ;;
  rehearse) echo '{json.dumps(REHEARSAL)}' ;;
  *) echo '{json.dumps(STEP)}' ;;
esac >$file""",
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

    def test_the_probe_leaves_its_report(self):
        self.run_script("--no-build", "--only", "Probe", "speed")
        self.assertIn("   1558M: best of eight", self.report("speed.txt"))
        self.assertEqual(self.report("probe.json"), "{}\n")

    def test_what_is_first_takes_less_than_seven_minutes(self):
        text = (ROOT / "tests/gpu.sh").read_text()
        body = text[text.index("first() {"):text.index("speed() {")]
        loop = body[body.index("for way in"):body.index("  done")]
        ways = len(re.search(r"for way in (.*);", loop)[1].split())
        limits = [int(limit) for limit in re.findall(r'part "[^"]*" (\d+) ', body)]
        repeated = [int(limit) for limit in re.findall(r'part "[^"]*" (\d+) ', loop)]
        self.assertGreater(len(limits), 10)
        self.assertLess(sum(limits) + (ways - 1) * sum(repeated), 420)

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
        log = self.report("first.log")
        self.assertIn("an operation is wrong", log)
        self.assertRegex(log, r"begins\nstopped after [5-9] s")
        figures = [json.loads(line) for line in self.report("first.jsonl").splitlines()]
        self.assertEqual([each["name"] for each in figures], ["products", "gpt2-1558m"])
        self.assertEqual(figures[1]["figures"], STEP)

    def test_ranks_are_rehearsed_beside_their_plans(self):
        done = self.run_script("--no-build", "rehearse")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        table = self.report("rehearse.txt")
        self.assertIn("   gpt-175b, rank 0: 128 micro-batches in 5.250 s, 34.00 GiB, planned 33.00\n", table)
        self.assertIn("   llama-405b, all ranks: step of 5.500 s, planned 5.400; 587000 tokens/s; MFU 41.0 %, planned 42.0\n", table)
        figures = [json.loads(line)["name"] for line in self.report("rehearse.jsonl").splitlines()]
        self.assertEqual(figures, [f"rehearse-{name}" for name in ("gpt-175b", "gpt-175b", "gpt-175b", "llama-405b", "deepseek-v3")])

    def test_llama_is_left_out_where_it_does_not_fit(self):
        done = self.run_script("--no-build", "llama")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        table = self.report("llama.txt")
        self.assertIn("   llama-8b: 32 layers from 4 and 8: 16384 tokens/s; torchtitan's published figure: 6667\n", table)
        self.assertIn("   llama-8b-fp8: 32 layers from 4 and 8: 16384 tokens/s; torchtitan's published figure: 8532\n", table)
        self.assertRegex(table, r"(?m)^   llama-8b-whole: left out, it needs 0 of 0 GiB on the card")  # of the card's 5 MiB
        figures = [json.loads(line)["name"] for line in self.report("llama.jsonl").splitlines()]
        self.assertEqual(figures, ["llama-8b-4", "llama-8b-8", "llama-8b-fp8-4", "llama-8b-fp8-8"])

    def test_new_calls_take_at_most_seven_minutes(self):
        text = (ROOT / "tests/gpu.sh").read_text()
        for call in ("rehearse", "llama"):
            body = re.search(rf"(?ms)^{call}\(\) {{(.*?)^}}", text)[1]
            limits = [int(limit) for limit in re.findall(r'part "[^"]*" (\d+) ', body)]
            self.assertGreater(len(limits), 3)
            self.assertLessEqual(sum(limits), 420, call)

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
