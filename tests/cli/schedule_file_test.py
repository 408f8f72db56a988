"""Schedules as files: those that PyTorch's pipelining writes, at every ZeRO stage, and those written for it."""

import os
import pathlib
import re
import shutil
import unittest

from program import ProgramTest

GOLDEN = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tests" / "golden"
SCHEDULES = ["looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipev"]  # torch_NAME_2rank_4mb
COMPUTATION = re.compile(r"\d+[FIWB]\d+|\(.*\)OVERLAP_F_B")

RUN = "--num-layers 4 --micro-batch-size 1 --train-iters 2 --lr 1e-2 --pp 2".split()
PLAN = RUN + "--hidden-size 32 --num-attention-heads 2 --seq-length 32 --vocab-size 256".split()


class ScheduleFile(ProgramTest):
    def golden(self, name):
        shutil.copy(GOLDEN / f"torch_{name}_2rank_4mb_comms.csv", self.folder / "torch.csv")
        return [row.split(",") for row in (self.folder / "torch.csv").read_text().split()]

    def write(self, name, rows):
        (self.folder / name).write_text("".join(",".join(row) + "\n" for row in rows))

    def computation(self, name):
        rows = (self.folder / name).read_text().split()
        return [[cell for cell in row.split(",") if COMPUTATION.fullmatch(cell)] for row in rows]

    def run_with(self, schedule, *arguments, dp=1, **options):
        return self.pretrain(*RUN, "--ranks", 2 * dp, "--global-batch-size", 4 * dp, "--zero-min-unit-params", 5000,
                             "--schedule", schedule, *arguments, **options)

    def trained(self, schedule, *arguments, dp=1):
        self.run_with(schedule, "--log-json", "run.jsonl", *arguments, dp=dp)
        losses = self.losses("run.jsonl")
        (self.folder / "run.jsonl").unlink()
        return losses

    def test_files_of_pytorch_train_as_their_computation_does(self):
        for name in SCHEDULES:
            rows = self.golden(name)
            self.write("own.csv", [[cell for cell in row if COMPUTATION.fullmatch(cell)] for row in rows])
            expected = self.trained("own.csv")
            self.assertEqual(len(expected), 2)
            self.assertEqual(self.trained("torch.csv"), expected, name)

    def test_gathers_have_no_effect_before_zero_stage_3_and_are_kept_there(self):
        rows = self.golden("interleaved_1f1b")
        self.write("own.csv", [[cell for cell in row if COMPUTATION.fullmatch(cell)] for row in rows])
        for options in (["--zero-stage", 1], ["--zero-stage", 2, "--zero-reduce", "each"], ["--zero-stage", 3]):
            self.assertEqual(self.trained("torch.csv", *options, dp=2), self.trained("own.csv", *options, dp=2), options)
        for stage in range(4):
            self.trifold("plan", *PLAN, "--ranks", 4, "--global-batch-size", 8, "--schedule", "torch.csv",
                         "--zero-stage", stage)

    def test_missing_actions_of_a_file_are_named(self):
        rows = self.golden("zbv")
        for cell, words in (("2UNSHARD", ["2F0 (rank 1, action ", "2UNSHARD must come before it"]),
                            ("0SEND_F1", ["row 1, cell ", "waits for 0SEND_F1"]),
                            ("3REDUCE_GRAD", ["row 1, cell ", "waits for 3REDUCE_GRAD"])):
            self.write("bad.csv", [[other for other in row if other != cell] for row in rows])
            _, message = self.run_with("bad.csv", "--save", "d", status=2)
            for word in ["--schedule bad.csv", *words]:
                self.assertIn(word, message)
            self.assertFalse((self.folder / "d").exists())

    def test_files_for_pytorch(self):
        plan = [*PLAN, "--ranks", 2, "--global-batch-size", 4, "--overwrite", "--schedule-csv", "out.csv", "--format", "torch"]
        for name in SCHEDULES:
            self.golden(name)
            compute = (GOLDEN / f"torch_{name}_2rank_4mb_compute.csv").read_text()
            self.trifold("plan", *plan, "--schedule", "torch.csv")
            self.assertEqual((self.folder / "out.csv").read_text(),
                             re.sub(",+", ",", re.sub("(?m)^,+", "", compute)), name)
            self.trifold("plan", *plan[:-1], "torch-comms", "--schedule", "torch.csv")
            self.assertEqual(self.computation("out.csv"), self.computation("torch.csv"), name)
            self.assertIn("WAIT_SEND_B", (self.folder / "out.csv").read_text())
            self.trifold("plan", *plan[:-5], "--schedule", "out.csv")
        out, _ = self.trifold("plan", *plan, "--schedule", "dualpipe-v")
        self.assertIn("(0F3;3B1)OVERLAP_F_B", (self.folder / "out.csv").read_text())
        self.assertRegex(out, r"\npairs +\d+ of a forward and a backward .*one after the other")
        self.assertIn("if ranks overlap both halves of a pair", out)
        _, message = self.trifold("plan", *plan, "--schedule", "pipedream", "--clip-grad", 0, status=2)
        self.assertIn("weight version", message)
        _, message = self.trifold("plan", *PLAN, "--ranks", 2, "--global-batch-size", 4, "--format", "torch", status=2)
        self.assertIn("--schedule-csv", message)


if __name__ == "__main__":
    unittest.main()
