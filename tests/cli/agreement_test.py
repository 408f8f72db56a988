"""Eight ranks of which one differs: in options or data, or by a drifted copy of a weight.

  agreement_test.py                    a short selection, seconds
  TRIFOLD_FAULT_MATRIX=1 ...           ten differences and ten drifts, of threads and of processes, and many clean steps
"""

import unittest

from fault_test import HAS_MPI, RANKS, WHOLE, FaultTest
from program import TEXT

# Option, another value, and the expected message.
OPTIONS = [("--lr", "2e-3", "--lr is 0.001 on ranks 0-6 and 0.002 on rank 7"),
           ("--seed", 7, "--seed is 1234 on ranks 0-6 and 7 on rank 7"),
           ("--micro-batch-size", 1, "--micro-batch-size is 2 on ranks 0-6 and 1 on rank 7"),
           ("--global-batch-size", 32, "--global-batch-size is 16 on ranks 0-6 and 32 on rank 7"),
           ("--train-iters", 41, "--train-iters is 40 on ranks 0-6 and 41 on rank 7"),
           ("--zero-stage", 2, "--zero-stage is 1 on ranks 0-6 and 2 on rank 7"),
           ("--save", "other", "--save is d on ranks 0-6 and other on rank 7"),
           ("--clip-grad", 2, "--clip-grad is 1 on ranks 0-6 and 2 on rank 7"),
           ("--hidden-dropout", 0.1, "--hidden-dropout is 0 on ranks 0-6 and 0.1 on rank 7")]
# Mesh, weight that changes on rank 3, phase, good checkpoints, and a pattern of the expected message.
DRIFTS = [("data", "norm1.gain", "update:3", [2], "step 4: .*rank 3 differs from ranks 0-2 and 4-7: .*norm1.gain"),
          ("data", "norm2.bias", "update:1", [], "step 2: .*rank 3 differs from ranks 0-2 and 4-7: .*norm2.bias"),
          ("data", "embedding.tokens", "evaluate:2", [], "step 2: .*rank 3 differs from ranks 0-2 and 4-7: .*tokens"),
          ("data", "qkv.weight", "save:4", [2], "step 4: .*rank 3 differs from ranks 0-2 and 4-7: .*qkv.weight"),
          ("tensor", "norm1.gain", "update:3", [2], "step 4: .*rank 3 differs from ranks 0-2 and 4-7: .*norm1.gain"),
          ("tensor", "qkv.weight", "update:3", [2], "step 4: .*rank 3 differs from ranks 1, 5 and 7: .*qkv.weight"),
          ("tensor", "final_norm", "evaluate:4", [2], "step 4: .*rank 3 differs from ranks 0-2 and 4-7: .*final_norm"),
          ("pipeline", "norm2.gain", "update:5", [2, 4], "step 6: .*rank 3 differs from ranks 0-2: .*norm2.gain"),
          ("all", "norm1.bias", "save:2", [], "step 2: .*rank 3 differs from ranks 0-2: .*norm1.bias"),
          ("all", "mlp.down.weight", "update:1", [], "step 2: .*rank 1 and rank 3 differ, and there is no majority: .*down")]


class Agreement(FaultTest):
    def check_options(self, options):
        def change(line):
            return [*line, *[word for option, value, _ in options for word in (option, value)]]

        def without(line):
            names = [option for option, _, _ in options]
            kept = [pair for pair in zip(line[2::2], line[3::2]) if pair[0] not in names]
            return [*line[:2], *[word for pair in kept for word in pair]]

        outcome = self.watch(self.one_differs(self.line(), RANKS - 1, lambda line: change(without(line))))
        self.expect_end(outcome, status=2, early=True)
        self.assertEqual(outcome.text.count("trifold: "), 1, outcome.text)
        for _, _, err in options:
            self.assertIn(err, outcome.text)
        self.assertEqual(self.good_saves(), [])

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_other_options_of_one_process_are_listed(self):
        self.check_options(OPTIONS[:3])

    @unittest.skipUnless(WHOLE and HAS_MPI, "part of the matrix")
    def test_every_option_by_itself(self):
        for option in OPTIONS:
            with self.subTest(option=option[0]):
                self.check_options([option])

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_other_data_of_equal_name_and_size(self):
        text = TEXT.read_bytes()
        for folder, content in (("mine", text), ("theirs", text[:200_000] + b"#" + text[200_001:])):
            (self.folder / folder).mkdir()
            (self.folder / folder / "text.txt").write_bytes(content)
        line = self.line()
        line[3] = "mine/text.txt"
        outcome = self.watch(self.one_differs(line, 1, lambda line: [*line[:3], "theirs/text.txt", *line[4:]]))
        self.expect_end(outcome, status=2, early=True)
        self.assertRegex(outcome.text, r"file 1 of --data-path is mine/text\.txt \(\d+ bytes, checksum [0-9a-f]{8}\) on ranks 0 "
                         r"and 2-7 and theirs/text\.txt \(\d+ bytes, checksum [0-9a-f]{8}\) on rank 1")
        self.assertEqual(self.good_saves(), [])

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_options_of_a_host_may_differ(self):
        (self.folder / "theirs").mkdir()
        (self.folder / "theirs" / "text.txt").write_bytes(TEXT.read_bytes())
        line = self.line("--train-iters", 2)
        outcome = self.watch(self.one_differs(line, 1, lambda line: [
            *line[:3], "theirs/text.txt", *line[4:], "--log-json", "of_rank_1.jsonl"]))
        self.assertEqual(outcome.status, 0, outcome.text)

    def check_drift(self, drift, mpi):
        mesh, tensor, when, good, err = drift
        outcome = self.run_fault(self.line("--zero-stage", 0, mesh=mesh), mpi, f"3:flip:{when}:{tensor}")
        self.expect_end(outcome, status=1)
        self.assertRegex(outcome.text, err)
        self.assertEqual(self.good_saves(), good, outcome.text)

    def test_a_drift_of_threads_is_named(self):
        self.check_drift(DRIFTS[0], mpi=False)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_drift_of_processes_is_named(self):
        self.check_drift(DRIFTS[4], mpi=True)

    def test_a_drift_that_an_update_overwrites_is_named(self):
        """With ZeRO every update publishes the weights again, with those that had drifted."""
        for stage in (0, 1, 2):
            with self.subTest(zero_stage=stage):
                self.setUp()
                outcome = self.run_fault(self.line("--zero-stage", stage, "--check-replicas", 1, "--save-interval", 20), False,
                                         "3:flip:begin:5")
                self.expect_end(outcome, status=1)
                self.assertRegex(outcome.text, r"step 5.*rank 3 differs from ranks 0-2 and 4-7: ")

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_every_drift(self):
        for drift in DRIFTS:
            for mpi in (False, True) if HAS_MPI else (False,):
                with self.subTest(drift=drift, mpi=mpi):
                    self.setUp()
                    self.check_drift(drift, mpi)

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_no_alarm_in_many_steps(self):
        line = self.line("--train-iters", 10_000, "--eval-interval", 2000, "--save-interval", 5000, "--log-interval", 1000,
                         "--global-batch-size", 8, "--micro-batch-size", 1, "--hidden-size", 16, "--seq-length", 16,
                         "--check-replicas", 1, mesh="all")
        outcome = self.watch(self.launch(line, mpi=False), limit=3600)
        self.assertEqual(outcome.status, 0, outcome.text)


if __name__ == "__main__":
    unittest.main()
