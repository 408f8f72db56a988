"""The same program as MPI processes."""

import os
import unittest

from program import TEXT, ProgramTest

MPIEXEC = os.environ.get("MPIEXEC", "")


@unittest.skipUnless(MPIEXEC and "NOTFOUND" not in MPIEXEC, "mpiexec is missing")
class Mpi(ProgramTest):
    def mpi(self, ranks):
        # Open MPI will not run as root, nor more ranks than cores, unless told; MPICH does not read these.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1")
        return [MPIEXEC, "-n", str(ranks)]

    def test_two_processes_give_the_losses_of_two_threads(self):
        self.pretrain("--train-iters", 20, "--ranks", 2, "--log-json", "threads.jsonl")
        self.pretrain("--train-iters", 20, "--log-json", "mpi.jsonl", "--save", "d", prefix=self.mpi(2))
        self.assertEqual(len(self.losses("mpi.jsonl")), 20)
        self.assertEqual(self.losses("threads.jsonl"), self.losses("mpi.jsonl"))
        self.pretrain("--train-iters", 22, "--load", "d")

    def test_f64_agrees_with_one_rank(self):
        self.pretrain("--train-iters", 20, "--f64", "--log-json", "one.jsonl")
        self.pretrain("--train-iters", 20, "--f64", "--log-json", "mpi.jsonl", prefix=self.mpi(2))
        for one, two in zip(self.losses("one.jsonl"), self.losses("mpi.jsonl")):
            self.assertLess(abs(one - two), 1e-11 * one)

    def test_evaluation_is_told_once(self):
        self.pretrain("--train-iters", 2, "--save", "d")
        out, _ = self.trifold("evaluate", "--load", "d", "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 2,
                              "--log-json", "e.jsonl", prefix=self.mpi(2))
        self.assertEqual(out.count("validation loss"), 1)
        self.assertEqual(len(self.log("e.jsonl")), 1)

    def test_bad_input_ends_all_processes(self):
        _, message = self.pretrain("--train-iters", 2, data="nowhere.txt", prefix=self.mpi(2), status=2)
        self.assertIn("nowhere.txt", message)


if __name__ == "__main__":
    unittest.main()
