"""The planner's step times against published runs (docs/plan.md): mean errors stay within bounds."""

import os
import pathlib
import subprocess
import sys
import unittest

from program import TRIFOLD

GOLDEN = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tests" / "golden"
SCRIPT = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tools" / "published_runs.py"


class PublishedRuns(unittest.TestCase):
    def compare(self, *arguments, status=0):
        done = subprocess.run([sys.executable, SCRIPT, TRIFOLD, *map(str, arguments)], capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return [line.split() for line in done.stdout.splitlines()]

    def test_step_times_in_closed_form(self):
        rows = {words[0]: words for words in self.compare("--most", 6)}
        self.assertGreaterEqual(int(rows["average"][3]), 350)
        for words in rows.values():
            if len(words) > 4 and words[4] == "%":
                self.assertLessEqual(float(words[3]), 10, words[0])
        for source, share in (("bloom_prequel_topology_sweep", 0.73), ("megatron_sc21_figures_approx", 0.95),
                              ("zero_bubble_tables", 0.97)):
            right, pairs = map(int, rows[source][-2].split("/"))
            self.assertGreaterEqual(right, share * pairs, source)
        right, verdicts = map(int, rows["average"][-1].split("/"))
        self.assertGreaterEqual(verdicts, 330)
        self.assertGreaterEqual(right, 0.95 * verdicts)

    def test_memory_of_described_programs(self):
        for source, rows, most in (("zero_bubble_tables", 32, 8), ("torchtitan_tables", 8, 9)):
            words = next(words for words in self.compare("--memory", "--source", source) if words[0] == source)
            self.assertEqual(int(words[1]), rows)
            self.assertLessEqual(float(words[-2]), most, source)

    def test_a_bound_that_is_not_reached_fails(self):
        self.compare("--most", 1, "--source", "korthikanti", status=1)

    def test_simulated_steps_of_pipelines(self):
        rows = {words[0]: words for words in self.compare("--simulate", "--source", "zero_bubble_tables", "--most", 7)}
        right, pairs = map(int, rows["zero_bubble_tables"][-2].split("/"))
        self.assertGreaterEqual(right, 0.95 * pairs)

    def test_a_search_for_a_published_layout(self):
        done = subprocess.run([sys.executable, SCRIPT.with_name("best_layouts.py"), TRIFOLD, "--case",
                               "korthikanti22_table5_e2e-002", "--cases", GOLDEN / "best_configurations.csv", "--rows",
                               GOLDEN / "published_runs.csv"], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("tuned meshes among the five best: 1 of 1", done.stdout)
        self.assertRegex(done.stdout, r"first choice of BLOOM's \d+ meshes on 384 devices: \+[\d.]+ %")


if __name__ == "__main__":
    unittest.main()
