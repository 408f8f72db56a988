"""`--trace FILE` of a run: what every rank did in a few steps, with sums that equal the log's to its last digit."""

import os
import unittest

from event_files import skip_without_protozero
from program import CLICKS, ProgramTest
from trace_files import Trace

MPIEXEC = os.environ.get("MPIEXEC", "")
MPI = bool(MPIEXEC) and "NOTFOUND" not in MPIEXEC
TRACE = ["--trace", "t.pftrace", "--log-json", "log.jsonl"]


class RunTraces(ProgramTest):
    def setUp(self):
        super().setUp()
        skip_without_protozero(self)

    def mpi(self, ranks):
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        return [MPIEXEC, "-n", str(ranks)]

    def trace(self):
        return Trace((self.folder / "t.pftrace").read_bytes())

    def steps(self, trace, rank):
        """{step: its slice} of a rank."""
        return {slice[3]["step"]: slice for slice in trace.of(f"rank {rank} on host ", "run") if slice[0] == "step"}

    def expect_log(self, ranks, steps, sent_bytes):
        """The file has these steps of all ranks; their times and bytes add up to those of the log exactly."""
        trace = self.trace()
        log = {line["step"]: line for line in self.log() if "step_seconds" in line}
        for rank in range(ranks):
            self.assertEqual(list(self.steps(trace, rank)), steps)
        for step, (_, begin, end, _) in self.steps(trace, 0).items():
            self.assertEqual((end - begin) / 1e9, log[step]["step_seconds"], step)
        self.assertEqual(sum(end - begin for _, begin, end, _ in self.steps(trace, 0).values()),
                         sum(round(1e9 * log[step]["step_seconds"]) for step in steps))
        for step in steps if sent_bytes else ():
            self.assertEqual(sum(self.sent(trace, rank, step) for rank in range(ranks)), log[step]["sent_bytes"], step)
            self.assertGreater(log[step]["sent_bytes"], 0)
        return trace

    def sent(self, trace, rank, step):
        """Bytes of the calls and messages of a step, without those of the call at its end that sums them up."""
        _, begin, end, _ = self.steps(trace, rank)[step]
        calls = [slice for slice in trace.of(f"rank {rank} on host ", "collectives") if begin <= slice[1] <= slice[2] <= end]
        calls.remove(max(calls, key=lambda slice: slice[1]))
        messages = [slice for slice in trace.of(f"rank {rank} on host ", "sends") if begin <= slice[1] <= slice[2] <= end]
        return sum(notes.get("bytes", 0) for *_, notes in calls + messages)

    def test_pretrain_on_threads(self):
        for mesh in (["--ranks", 4, "--pp", 2], ["--ranks", 4, "--tp", 2, "--zero-stage", 3], ["--ranks", 1]):
            with self.subTest(mesh=mesh):
                (self.folder / "log.jsonl").unlink(missing_ok=True)
                _, text = self.pretrain("--train-iters", 7, *TRACE, *mesh)
                self.assertIn(f"trace       t.pftrace of {mesh[1]} rank", text)
                trace = self.expect_log(mesh[1], [3, 4, 5], mesh[1] > 1)
                for rank in range(mesh[1]):
                    actions = {slice[3]["step"] for slice in trace.of(f"rank {rank} on host ", "actions")}
                    self.assertEqual(actions, {3, 4, 5})
                planned = trace.of("planned, pipeline rank 0", "actions")
                self.assertEqual(min(slice[1] for slice in planned), self.steps(trace, 0)[5][1])

    @unittest.skipUnless(MPI, "mpiexec is missing")
    def test_pretrain_on_processes(self):
        self.pretrain("--train-iters", 7, "--pp", 2, *TRACE, prefix=self.mpi(2))
        trace = self.expect_log(2, [3, 4, 5], True)
        self.assertTrue(trace.of("rank 1 on host ", "receives"))
        self.assertTrue(trace.of("planned, pipeline rank 1", "actions"))

    def test_recommend_on_threads(self):
        self.trifold("recommend", *CLICKS, "--train-iters", 7, "--ranks", 2, *TRACE)
        trace = self.expect_log(2, [3, 4, 5], False)
        self.assertTrue(trace.of("rank 1 on host ", "collectives"))
        self.assertTrue(trace.of("planned, pipeline rank 0", "actions"))

    @unittest.skipUnless(MPI, "mpiexec is missing")
    def test_recommend_on_processes(self):
        self.trifold("recommend", *CLICKS, "--train-iters", 7, *TRACE, prefix=self.mpi(2))
        self.expect_log(2, [3, 4, 5], False)

    def test_a_step_of_more_events_than_a_ring_has(self):
        self.pretrain("--train-iters", 2, "--ranks", 2, "--pp", 2, "--global-batch-size", 1600, "--micro-batch-size", 1, "--seq-length", 4,
                      "--max-position-embeddings", 32, "--trace-from", 2, "--trace-steps", 1, *TRACE)
        trace = self.expect_log(2, [2], True)
        events = [slice for name in ("actions", "sends", "receives", "collectives") for slice in trace.of("rank 0 on host ", name)]
        self.assertGreater(len(events), 4096)

    def test_copies(self):
        run = ["--train-iters", 5, "--save", "d", "--save-interval", 4, "--log-interval", 1]
        self.pretrain(*run, *TRACE, "--async-save", "--cpu-offloading-num-layers", 2, "--cpu-offloading-folder", ".",
                      "--global-batch-size", 8)
        trace = self.expect_log(1, [3, 4, 5], False)
        copies = trace.of("rank 0 on host ", "copies")
        for step in (3, 4, 5):
            moves = [(slice[0], slice[3]["bytes"]) for slice in copies if slice[3]["step"] == step and slice[0] != "checkpoint"]
            away, back = ([size for name, size in moves if name == kind] for kind in ("offload", "fetch"))
            self.assertTrue(away)
            self.assertEqual(sorted(away), sorted(back))
        saved = [slice[3] for slice in copies if slice[0] == "checkpoint"]
        self.assertEqual([notes["step"] for notes in saved], [4])
        self.assertGreater(saved[0]["bytes"], 10_000)

    def test_which_steps(self):
        def traced(*options):
            (self.folder / "t.pftrace").unlink(missing_ok=True)
            _, text = self.pretrain("--ranks", 2, "--trace", "t.pftrace", *options)
            if not (self.folder / "t.pftrace").exists():
                return text
            return list(self.steps(self.trace(), 1))
        self.assertEqual(traced("--train-iters", 1), [1])
        self.assertEqual(traced("--train-iters", 4, "--save", "d"), [2, 3, 4])
        self.assertEqual(traced("--train-iters", 8, "--load", "d", "--trace-steps", 1), [7])
        self.assertEqual(traced("--train-iters", 8, "--load", "d", "--trace-from", 4, "--trace-steps", 2), [5])
        self.assertEqual(traced("--train-iters", 6, "--trace-from", 6), [6])
        self.assertIn("--trace-from 2: the run continues after step 4, so t.pftrace is not written",
                      traced("--train-iters", 6, "--load", "d", "--trace-from", 2))
        self.assertIn("the run ended before step 5, the first one of the trace, so no trace is written",
                      traced("--train-iters", 8, "--exit-interval", 2, "--trace-from", 5))
        self.assertEqual(traced("--train-iters", 8, "--exit-interval", 2, "--trace-from", 2), [2])

    def test_steps_that_are_computed_together(self):
        self.pretrain("--train-iters", 12, "--ranks", 2, "--pp", 2, "--schedule", "pipedream-2bw", "--clip-grad", 0, "--global-batch-size", 8,
                      "--async-window", 4, "--trace-from", 6, "--trace-steps", 1, *TRACE)
        (_, begin, end, notes), = self.steps(self.trace(), 0).values()
        self.assertEqual(notes["step"], 5)
        seconds = sum(line["step_seconds"] for line in self.log() if line["step"] in range(5, 9))
        self.assertAlmostEqual((end - begin) / 1e9, seconds, delta=1e-12)

    def test_mistakes(self):
        _, text = self.pretrain("--train-iters", 3, "--trace", "t.pftrace", "--trace-from", 4, status=2)
        self.assertIn("--trace-from 4 lies after the last step: give at most 3", text)
        _, text = self.pretrain("--train-iters", 3, "--trace", "no/t.pftrace", status=2)
        self.assertIn("--trace no/t.pftrace", text)
        _, text = self.pretrain("--train-iters", 1, "--trace-from", 1, "--trace-steps", 2)
        self.assertIn("note: --trace-from 1 has no effect without --trace", text)
        _, text = self.trifold("finetune", "--task", "classify", "--load", "none", "--valid-data", "v", "--trace", "t", status=2)
        self.assertIn("--trace has no effect without --train-data FILE", text)
        self.assertEqual(self.files(), [])

    def test_a_file_of_something_else_is_kept(self):
        (self.folder / "t.pftrace").write_text("precious")
        _, text = self.pretrain("--train-iters", 3, "--trace", "t.pftrace", status=2)
        self.assertIn("--trace t.pftrace exists and has no mark", text)
        self.assertEqual((self.folder / "t.pftrace").read_text(), "precious")

    def test_a_trace_changes_no_bit(self):
        for name, more in (("with", ["--trace", "t.pftrace"]), ("without", [])):
            self.pretrain("--train-iters", 6, "--ranks", 2, "--log-json", f"{name}.jsonl", *more)
        self.assertEqual(self.losses("with.jsonl"), self.losses("without.jsonl"))

    def test_a_run_that_is_stopped(self):
        message = self.stop("--trace", "t.pftrace", "--trace-steps", 1000, "--trace-from", 2, "--save", "d", "--log-json", "log.jsonl")
        self.assertIn("trace       t.pftrace of 1 rank", message)
        steps = list(self.steps(self.trace(), 0))
        self.assertEqual(steps, list(range(2, 2 + len(steps))))
        self.expect_log(1, steps, False)


if __name__ == "__main__":
    unittest.main()
