"""The same program as MPI processes."""

import os
import re
import unittest

from program import TEXT, WHOLE, ProgramTest, only_whole

MPIEXEC = os.environ.get("MPIEXEC", "")


@unittest.skipUnless(MPIEXEC and "NOTFOUND" not in MPIEXEC, "mpiexec is missing")
class Mpi(ProgramTest):
    def mpi(self, ranks):
        # By default Open MPI refuses to run as root, and more ranks than cores; MPICH ignores these variables.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1")
        return [MPIEXEC, "-n", str(ranks)]

    def test_two_processes_give_the_losses_of_two_threads(self):
        self.pretrain("--train-iters", 20, "--ranks", 2, "--log-json", "threads.jsonl")
        self.pretrain("--train-iters", 20, "--log-json", "mpi.jsonl", "--save", "d", prefix=self.mpi(2))
        self.assertEqual(len(self.losses("mpi.jsonl")), 20)
        self.assertEqual(self.losses("threads.jsonl"), self.losses("mpi.jsonl"))
        self.pretrain("--train-iters", 22, "--load", "d")

    def test_meshes_that_do_not_fit_are_rejected(self):
        huge = ["--train-iters", 2, "--num-layers", 96, "--hidden-size", 65536, "--num-attention-heads", 64, "--save", "d"]
        for limit, words in (([], "2 ranks of this run need "), (["--memory-limit", 8], "--memory-limit is 8 GiB: ")):
            _, message = self.pretrain(*huge, *limit, status=2, prefix=self.mpi(2))
            self.assertIn(words, message)
        self.assertFalse((self.folder / "d").exists())

    # The launcher reports the pid of a killed process.
    def test_the_start_reports_the_process_of_each_rank(self):
        note = 'echo $$ > pid_${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; exec "$@"'
        _, text = self.pretrain("--train-iters", 1, "--global-batch-size", 6, "--save-interval", 5,
                                prefix=[*self.mpi(3), "sh", "-c", note, "sh"])
        match = re.search(r"(?m)^processes   host \S+: (.*)$", text)
        self.assertTrue(match, text)
        self.assertIn("tp 1, MPI ranks, ", text)
        self.assertEqual(text.count("note: "), 1, text)  # of the first process
        pids = {}
        for first, last, pid in re.findall(r"ranks? (\d+)(?:-(\d+))? (?:is|are) pids? (\d+)", match[1]):
            for rank in range(int(first), int(last or first) + 1):
                pids[rank] = int(pid) + rank - int(first)
        self.assertEqual(pids, {rank: int((self.folder / f"pid_{rank}").read_text()) for rank in range(3)}, text)
        _, text = self.pretrain("--train-iters", 1, "--ranks", 2)
        self.assertNotIn("processes ", text)

    def test_f64_agrees_with_one_rank(self):
        self.pretrain("--train-iters", 20, "--f64", "--log-json", "one.jsonl")
        self.pretrain("--train-iters", 20, "--f64", "--log-json", "mpi.jsonl", prefix=self.mpi(2))
        for one, two in zip(self.losses("one.jsonl"), self.losses("mpi.jsonl")):
            self.assertLess(abs(one - two), 1e-11 * one)

    def test_context_ranks_give_the_losses_of_threads(self):
        common = ["--train-iters", 10, "--cp", 2, "--hidden-dropout", 0.1, "--attention-dropout", 0.1, "--zero-stage", 1]
        for exchange in ("all_gather", "p2p"):
            run = [*common, "--cp-comm-type", exchange]
            self.pretrain(*run, "--ranks", 2, "--log-json", f"{exchange}.jsonl")
            self.pretrain(*run, "--log-json", f"mpi_{exchange}.jsonl", prefix=self.mpi(2))
            self.assertEqual(len(self.losses(f"mpi_{exchange}.jsonl")), 10)
            self.assertEqual(self.losses(f"{exchange}.jsonl"), self.losses(f"mpi_{exchange}.jsonl"))

    # Four context ranks have copies of two key heads.
    def test_eight_processes_share_each_sample(self):
        run = ["--train-iters", 4, "--f64", "--num-attention-heads", 8, "--group-query-attention", "--num-query-groups", 2]
        self.pretrain(*run, "--log-json", "one.jsonl")
        meshes = [("all_gather", ["--cp", 4, "--tp", 2, "--sequence-parallel"]), ("a2a", ["--cp", 4, "--pp", 2])]
        for exchange, mesh in [*meshes, ("p2p", ["--cp", 8])] if WHOLE else meshes:
            self.pretrain(*run, *mesh, "--cp-comm-type", exchange, "--log-json", f"{exchange}.jsonl", prefix=self.mpi(8))
            for one, eight in zip(self.losses("one.jsonl"), self.losses(f"{exchange}.jsonl"), strict=True):
                self.assertLess(abs(one - eight), 1e-11 * one)

    def test_ranks_that_share_experts_give_the_losses_of_threads(self):
        run = ["--num-experts", 8, "--disable-bias-linear", "--hidden-dropout", 0.1, "--global-batch-size", 8,
               "--zero-stage", 1]
        shared = ["--train-iters", 10, "--ep", 4]
        self.pretrain(*run, *shared, "--ranks", 4, "--log-json", "threads.jsonl")
        self.pretrain(*run, *shared, "--log-json", "mpi.jsonl", "--save", "d", prefix=self.mpi(4))
        self.assertEqual(len(self.losses("mpi.jsonl")), 10)
        self.assertEqual(self.losses("threads.jsonl"), self.losses("mpi.jsonl"))
        self.pretrain(*run, *shared, "--moe-buffer-factor", 0.5, "--log-json", "rounds.jsonl", prefix=self.mpi(4))
        for one, two in zip(self.losses("mpi.jsonl"), self.losses("rounds.jsonl")):
            self.assertLess(abs(one - two), 1e-4 * one)
        self.pretrain(*run, "--train-iters", 12, "--ep", 2, "--load", "d", "--ranks", 2)

    def test_halves_of_pairs_that_take_turns_give_the_losses_of_threads_that_do_not(self):
        run = ["--train-iters", 4, "--num-experts", 8, "--disable-bias-linear", "--num-layers", 4, "--global-batch-size", 16,
               "--pp", 2, "--ep", 2, "--schedule", "dualpipe-v", "--zero-stage", 1]
        self.pretrain(*run, "--ranks", 4, "--log-json", "threads.jsonl")
        self.pretrain(*run, "--overlap-moe-expert-parallel-comm", "--log-json", "mpi.jsonl", prefix=self.mpi(4))
        self.assertEqual(len(self.losses("mpi.jsonl")), 4)
        self.assertEqual(self.losses("threads.jsonl"), self.losses("mpi.jsonl"))

    # On 8 processes: half of an expert, two pipeline stages; parts of all experts on tensor, context and data ranks.
    def test_ranks_that_cut_experts_give_the_losses_of_threads(self):
        run = ["--train-iters", 6, "--num-experts", 4, "--disable-bias-linear", "--global-batch-size", 8, "--swiglu"]
        for name, mesh in (("fold", ["--pp", 2, "--ep", 2, "--etp", 2, "--zero-stage", 1, "--moe-buffer-factor", 1]),
                           ("parts", ["--tp", 2, "--sequence-parallel", "--cp", 2, "--etp", 8, "--hidden-dropout", 0.1,
                                      "--moe-token-dispatcher-type", "allgather", "--moe-input-jitter-eps", 0.1])):
            self.pretrain(*run, *mesh, "--ranks", 8, "--log-json", f"{name}.jsonl")
            self.pretrain(*run, *mesh, "--log-json", f"mpi_{name}.jsonl", prefix=self.mpi(8))
            self.assertEqual(len(self.losses(f"mpi_{name}.jsonl")), 6)
            self.assertEqual(self.losses(f"{name}.jsonl"), self.losses(f"mpi_{name}.jsonl"))

    # Neither sharding nor the kind of ranks changes a bit. Every stage runs once, and in the whole test every one on plain
    # data ranks, some with each other axis.
    def check_zero_stages(self, ranks, stages, whole, *arguments):
        run = ["--train-iters", 5, "--num-layers", 4, "--global-batch-size", 8, "--hidden-dropout", 0.1,
               "--zero-min-unit-params", 4000, *arguments]
        self.pretrain(*run, "--ranks", ranks, "--log-json", "plain.jsonl")
        for stage in whole if WHOLE else stages:
            name = f"mpi{stage}.jsonl"
            self.pretrain(*run, "--zero-stage", stage, "--log-json", name, prefix=self.mpi(ranks))
            self.assertEqual(self.losses("plain.jsonl"), self.losses(name), f"stage {stage}")
        self.assertEqual(len(self.losses("plain.jsonl")), 5)

    def test_zero_on_two_processes(self):
        self.check_zero_stages(2, (3,), (2, 3), "--bf16", "--grad-reduce-in-bf16")

    def test_zero_on_four_processes(self):
        self.check_zero_stages(4, (1, 3), range(4))

    def test_zero_with_tensor_ranks(self):
        self.check_zero_stages(4, (2,), (1, 2, 3), "--tp", 2, "--sequence-parallel")

    def test_zero_with_stages(self):
        self.check_zero_stages(4, (0,), (0, 2), "--pp", 2, "--schedule", "zb-h1")

    def test_zero_saves_and_goes_on_with_other_ranks(self):
        run = ["--f64", "--zero-min-unit-params", 4000, "--global-batch-size", 8, "--lr-decay-style", "linear"]
        self.pretrain(*run, "--train-iters", 6, "--log-json", "whole.jsonl")
        self.pretrain(*run, "--train-iters", 3, "--zero-stage", 3, "--save", "d", "--lr-decay-iters", 6, "--log-json",
                      "parts.jsonl", prefix=self.mpi(4))
        self.pretrain(*run, "--train-iters", 6, "--zero-stage", 2, "--load", "d", "--log-json", "parts.jsonl",
                      prefix=self.mpi(2))
        self.assertEqual(len(self.losses("parts.jsonl")), 6)
        for one, part in zip(self.losses("whole.jsonl"), self.losses("parts.jsonl")):
            self.assertLess(abs(one - part), 1e-11 * one)

    # Processes poll, up to eight of them on two cores: few steps, and a generous time limit.
    def check_mesh(self, ranks, *arguments):
        run = ["--train-iters", 3, "--num-layers", 8, "--global-batch-size", 16, "--eval-interval", 3, "--eval-iters", 1,
               "--hidden-dropout", 0.1, "--f64", "--distributed-timeout-minutes", 3]
        place = ["--ranks", ranks, *arguments]
        self.pretrain(*run, "--log-json", "one.jsonl")
        self.pretrain(*run, *place, "--log-json", "threads.jsonl")
        self.pretrain(*run, *place, "--log-json", "mpi.jsonl", prefix=self.mpi(ranks), timeout=280)
        lines = [[line.get("loss") or line["valid_loss"] for line in self.log(f"{name}.jsonl")]
                 for name in ("one", "threads", "mpi")]
        self.assertEqual(len(lines[0]), 4)
        self.assertEqual(lines[1], lines[2])
        for one, mpi in zip(lines[0], lines[2]):
            self.assertLess(abs(one - mpi), 1e-11 * one)

    def test_eight_processes_on_all_axes(self):
        self.check_mesh(8, "--pp", 2, "--tp", 2, "--sequence-parallel")

    def test_eight_processes_of_tensor_and_pipeline_ranks(self):
        self.check_mesh(8, "--pp", 4, "--tp", 2, "--schedule", "zb-v", "--num-virtual-stages-per-pipeline-rank", 2)

    @only_whole
    def test_four_stages_without_bubbles(self):
        self.check_mesh(4, "--pp", 4, "--schedule", "zb-h1")

    def test_interleaved_stages(self):
        self.check_mesh(4, "--pp", 2, "--schedule", "interleaved", "--num-virtual-stages-per-pipeline-rank", 2)

    def test_a_pipeline_of_processes_saves_and_goes_on(self):
        run = ["--f64", "--num-layers", 3, "--lr-decay-style", "linear", "--lr-decay-iters", 6]
        self.pretrain(*run, "--train-iters", 6, "--log-json", "whole.jsonl")
        self.pretrain(*run, "--train-iters", 3, "--pp", 2, "--save", "d", "--log-json", "parts.jsonl",
                      prefix=self.mpi(2))
        self.pretrain(*run, "--train-iters", 6, "--load", "d", "--log-json", "parts.jsonl")
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))

    def test_a_failure_of_one_process_ends_all_and_is_reported_once(self):
        _, message = self.pretrain("--train-iters", 5, "--pp", 2, "--log-json", "/dev/full", prefix=self.mpi(2), status=1)
        self.assertEqual(message.count("trifold: "), 1, message)
        self.assertIn("trifold: rank 0: --log-json /dev/full", message)

    def test_errors_of_all_processes_are_reported_once(self):
        _, message = self.pretrain("--train-iters", 5, "--lr", "1e30", prefix=self.mpi(2), status=1)
        self.assertEqual(message.count("trifold: "), 1, message)
        self.assertIn("trifold: step 2: the loss is nan; the first number that is not finite appears in micro-batch 0 "
                      "(samples 4 to 5 of the training data) on rank 0 (dp0.pp0.tp0)", message)

    def test_evaluation_is_reported_once(self):
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
