"""Recommenders from the command line: ranks, placements, checkpoints that move between them, bad input."""

import os
import unittest

from program import ProgramTest

MPIEXEC = os.environ.get("MPIEXEC", "")

SMALL = ("--table-rows 300-200-50-3 --synthetic-samples 6000 --valid-samples 1000 --dense-features 4 --bottom-mlp 8-4 "
         "--embedding-dim 4 --top-mlp 8-1 --global-batch-size 250 --lr 0.2 --embedding-optimizer rowwise-adagrad "
         "--embedding-lr 0.05 --threads-per-rank 1").split()


class Recommend(ProgramTest):
    def recommend(self, *arguments, **options):
        """Trains a small model; an option in `arguments` takes the place of its."""
        kept = [word for name, value in zip(SMALL[::2], SMALL[1::2]) if name not in arguments for word in (name, value)]
        return self.trifold("recommend", *kept, *arguments, **options)

    def test_a_checkpoint_goes_on_with_other_ranks_and_placements(self):
        self.recommend("--log-json", "whole.jsonl")
        self.recommend("--ranks", 2, "--placement", "row,column,table,replicated", "--train-iters", 9, "--save", "d",
                       "--log-json", "parts.jsonl")
        self.recommend("--ranks", 3, "--load", "d", "--log-json", "parts.jsonl")
        whole, parts = self.losses("whole.jsonl"), self.losses("parts.jsonl")
        self.assertEqual(len(whole), 20)
        self.assertEqual(len(parts), 20)
        for one, other in zip(whole, parts):
            self.assertLess(abs(one - other), 2e-5 * one)

    def test_evaluation_is_told_with_everything(self):
        _, message = self.recommend("--eval-interval", 10, "--log-json", "log.jsonl")
        self.assertRegex(message, r"step +20/20  AUC 0\.\d{4} \(\d+\.\d % of the best excess\)  log loss")
        lines = [line for line in self.log() if "valid_auc" in line]
        self.assertEqual([line["step"] for line in lines], [10, 20])
        self.assertEqual(lines[0]["valid_samples"], 1000)

    def test_stops_at_the_target(self):
        _, message = self.recommend("--eval-interval", 5, "--target-auc", 0.51, "--train-epochs", 50)
        self.assertRegex(message, r"target      AUC 0\.\d+ of 0\.51000 reached after step")

    def test_bad_input(self):
        for arguments, message in (
                (["--bottom-mlp", "8-5"], "--bottom-mlp 8-5 must end with --embedding-dim 4"),
                (["--placement", "row,diagonal,row,row"], "'diagonal' is none of table, row, column, replicated"),
                (["--placement", "row,row"], "--placement names 2 kinds for 4 tables"),
                (["--train-data", "missing.tsv"], "missing.tsv"),
                (["--memory-limit", "1e-6", "--ranks", 2], "--memory-limit"),
                (["--table-rows", "30-x"], "--table-rows '30-x' is no list of numbers")):
            _, told = self.recommend(*arguments, status=2)
            self.assertIn(message, told)

    @unittest.skipUnless(MPIEXEC and "NOTFOUND" not in MPIEXEC, "mpiexec is missing")
    def test_three_mpi_processes(self):
        # Open MPI will not run as root, nor more ranks than cores, unless told; MPICH does not read these.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1", PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        self.recommend("--log-json", "one.jsonl")
        prefix = [MPIEXEC, "-n", "3"]
        self.recommend("--placement", "row,column,table,replicated", "--log-json", "mpi.jsonl", prefix=prefix)
        for one, other in zip(self.losses("one.jsonl"), self.losses("mpi.jsonl"), strict=True):
            self.assertLess(abs(one - other), 2e-5 * one)


if __name__ == "__main__":
    unittest.main()
