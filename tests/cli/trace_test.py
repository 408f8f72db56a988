"""`trifold report --trace`: what the flight recorders kept, and the planned step, as an independent reader and, where it is
installed, the classes of Perfetto's own package read them."""

import unittest

from event_files import skip_without_protozero
from program import ProgramTest
from trace_files import Trace


class Traces(ProgramTest):
    def setUp(self):
        super().setUp()
        skip_without_protozero(self)

    def trace(self, *more):
        self.pretrain("--train-iters", 6, "--ranks", 4, "--pp", 2, "--log-json", "log.jsonl", "--flight-dir", "flight", *more)
        self.trifold("report", "log.jsonl", "--output", "page.html", "--trace", "t.pftrace", "--flight", "flight")
        return (self.folder / "t.pftrace").read_bytes()

    def test_measured_and_planned_steps(self):
        trace = Trace(self.trace())
        seconds = {line["step"]: line["step_seconds"] for line in self.log()}
        for rank in range(4):
            steps = [slice for slice in trace.of(f"rank {rank} on host ", "run") if slice[0] == "step"]
            self.assertEqual([notes["step"] for *_, notes in steps], [1, 2, 3, 4, 5, 6])
            actions = [slice for slice in trace.of(f"rank {rank} on host ", "actions") if slice[3]["step"] == 6]
            self.assertGreaterEqual(len(actions), 4)  # a forward and a backward of two micro-batches at least
            begin, end = steps[-1][1:3]
            self.assertTrue(all(begin <= one[1] <= one[2] <= end for one in actions), actions)
        # A step of rank 0 encloses what the log says it took, and little besides; a busy machine may interrupt it there.
        steps = [slice for slice in trace.of("rank 0 on host ", "run") if slice[0] == "step"]
        besides = sorted((end - begin) / 1e9 - seconds[notes["step"]] for _, begin, end, notes in steps)
        self.assertGreater(besides[0], -1e-6)
        self.assertLess(besides[len(besides) // 2], 1e-3)
        self.assertTrue(trace.of("rank 1 on host ", "collectives"))
        sent = [slice[3] for slice in trace.of("rank 0 on host ", "sends")]
        self.assertTrue(sent and all(notes["peer"] != 0 and notes["bytes"] > 0 for notes in sent))
        # The plan begins where the last step of rank 0 does, and has the actions that the ranks made in it.
        planned = trace.of("planned, pipeline rank 0", "actions")
        self.assertEqual(min(slice[1] for slice in planned), steps[-1][1])
        made = {slice[0] for slice in trace.of("rank 0 on host ", "actions") if slice[3]["step"] == 6}
        forwards = {name for name, *_ in planned if "F" in name}
        self.assertTrue(forwards and forwards <= made, (forwards, made))

    def test_a_plan_that_is_missing_is_noted(self):
        self.trace()
        (self.folder / "log.jsonl").write_text('{"step":1,"loss":1,"lr":1}\n')
        _, message = self.trifold("report", "log.jsonl", "--output", "page.html", "--trace", "t.pftrace", "--flight", "flight")
        self.assertIn("note: --trace: the planned step is missing, because the log has no options of the run", message)
        self.assertFalse(Trace((self.folder / "t.pftrace").read_bytes()).of("planned", "actions"))

    def test_files_that_are_missing(self):
        (self.folder / "log").write_text('{"step":1,"loss":1,"lr":1}\n')
        (self.folder / "none").mkdir()
        for options, message in ((["--trace", "t"], "--flight"), (["--flight", "none"], "--trace"),
                                 (["--trace", "t", "--flight", "none"], "none has no files of a flight recorder"),
                                 (["--trace", "log", "--flight", "none"], "--trace log is RUN log")):
            _, err = self.trifold("report", "log", "--output", "page.html", *options, status=2)
            self.assertIn(message, err)
        self.assertEqual(self.files(), ["log", "none"])


if __name__ == "__main__":
    unittest.main()
