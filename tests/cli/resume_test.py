"""Resuming with changed data, from states that are not finite, after signals during an evaluation, and with broken
records."""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from program import SMALL, TEXT, TRIFOLD, ProgramTest

CLICKS = ("--table-rows 50 --dense-features 2 --bottom-mlp 8-4 --embedding-dim 4 --top-mlp 8-1 --global-batch-size 50 "
          "--threads-per-rank 1").split()


class Resume(ProgramTest):
    def train(self, *arguments, **options):
        return self.pretrain(*arguments, data=self.folder / "data", **options)

    def start(self, *arguments, data=TEXT, stderr=subprocess.DEVNULL):
        """Starts the small GPT, and returns when it has logged its first step."""
        kept = [a for pair in zip(SMALL[::2], SMALL[1::2]) if pair[0] not in arguments for a in pair]
        line = [TRIFOLD, "pretrain", *kept, "--data-path", str(data), *map(str, arguments), "--log-json", "log.jsonl"]
        process = subprocess.Popen(line, cwd=self.folder, stderr=stderr, text=True)  # pylint: disable=consider-using-with
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 100
        while not (self.folder / "log.jsonl").exists() or not (self.folder / "log.jsonl").read_text():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def steps(self, folder="d"):
        return sorted(int(p.name[5:]) for p in (self.folder / folder).iterdir() if p.name.startswith("step_"))


class ChangedData(Resume):
    def test_a_run_goes_on_in_the_same_data_only(self):
        data = self.folder / "data"
        text = TEXT.read_text(encoding="utf-8")[:200000]
        data.write_text(text)
        self.train("--train-iters", 2, "--save", "d")
        on = ("--train-iters", 4, "--save", "d", "--auto-resume")
        for changed, err in ((text[:100000], "data had 200000 bytes and now has 100000"),
                              (text[:50000].upper() + text[50000:], "the content of")):
            data.write_text(changed)
            for start in (on, ("--train-iters", 4, "--load", "d")):
                _, message = self.train(*start, status=2)
                self.assertIn(err, message)
                self.assertIn("--allow-changed-data", message)
            self.assertEqual(self.steps(), [2])
        _, message = self.train("--train-iters", 4, "--load", "d", "--allow-changed-data")
        self.assertIn("the training data: the content of", message)
        self.train("--train-iters", 4, "--load", "d", "--finetune")
        data.rename(self.folder / "moved")
        (self.folder / "moved").write_text(text)
        self.pretrain(*on, data=self.folder / "moved")
        self.assertEqual(self.steps(), [2, 4])

    def test_streamed_text_may_change_where_that_is_allowed(self):
        corpus = self.folder / "data"
        corpus.mkdir()
        text = TEXT.read_text(encoding="utf-8")
        (corpus / "a.txt").write_text(text[:300000])
        self.train("--train-iters", 2, "--save", "d")
        (corpus / "a.txt").write_text(text[300000:600000])  # of the same size
        on = ("--train-iters", 4, "--load", "d")
        self.assertIn("a.txt has changed", self.train(*on, status=2)[1])
        (corpus / "b.txt").write_text(text[600000:])
        self.assertIn("a.txt has changed", self.train(*on, status=2)[1])
        self.train(*on, "--allow-changed-data")

    def test_clicks(self):
        clicks = self.folder / "clicks.csv"
        lines = ["label,I1,I2,C1,C2"] + [f"{i % 2},{i},{i % 7},{i % 9},{i % 8}" for i in range(400)]
        clicks.write_text("\n".join(lines) + "\n")
        run = ("recommend", "--train-data", clicks, "--data-format", "csv", *CLICKS)
        self.trifold(*run, "--train-iters", 3, "--save", "d")
        clicks.write_text("\n".join(lines[:1] + lines[:0:-1]) + "\n")
        on = (*run, "--train-iters", 6, "--load", "d")
        self.assertIn("clicks.csv has changed", self.trifold(*on, status=2)[1])
        self.assertIn("clicks.csv has changed", self.trifold(*on, "--allow-changed-data")[1])

    def test_an_emptied_folder_is_not_begun_anew(self):
        self.pretrain("--train-iters", 2, "--save", "d")
        shutil.rmtree(self.folder / "d" / "step_0000000002")
        _, message = self.pretrain("--train-iters", 4, "--save", "d", "--auto-resume", status=2)
        self.assertIn("the last one as step_0000000002, but none is there", message)
        (self.folder / "d" / "LATEST").unlink()
        self.pretrain("--train-iters", 4, "--save", "d", "--auto-resume")

    def test_allowing_it_without_a_checkpoint_is_a_note(self):
        self.pretrain("--train-iters", 2, "--save", "d")
        for options in ((), ("--load", "d", "--finetune")):
            _, message = self.pretrain("--train-iters", 2, "--allow-changed-data", *options)
            self.assertIn("note: --allow-changed-data has no effect", message)


class NotFinite(Resume):
    def test_a_state_that_is_not_finite_is_not_saved(self):
        for ranks in ((), ("--ranks", 2, "--tensor-model-parallel-size", 2), ("--ranks", 2, "--zero-stage", 3)):
            _, message = self.pretrain("--train-iters", 1, "--lr", "1e39", "--save", "d", *ranks, status=1)
            self.assertRegex(message, r"after step 1, element \d+ of tensor param/\S+, box .*, is -?(inf|nan)")
            self.assertEqual(self.steps(), [])

    def test_no_clicks_either(self):
        _, message = self.trifold("recommend", "--train-iters", 1, "--save", "d", "--lr", "1e39", "--synthetic-samples",
                                  1000, *CLICKS, status=1)
        self.assertIn("after step 1, element", message)
        self.assertEqual(self.steps(), [])

    def test_a_state_whose_first_step_is_not_finite_is_passed_over(self):
        run = ("--save", "d", "--save-retain", 2, "--auto-resume")
        self.pretrain("--train-iters", 4, "--save-interval", 1, *run)
        # Finite numbers from which no finite step is possible.
        _, message = self.pretrain("--train-iters", 8, "--save-interval", 1, "--lr", "1e30", *run, status=1)
        self.assertIn("first step after the checkpoint of step 5", message)
        self.assertEqual(self.steps(), [4, 5])
        # --load of the folder does not load it silently; a checkpoint that is named is loaded.
        _, message = self.pretrain("--train-iters", 8, "--load", "d", "--save", "e", status=2)
        self.assertRegex(message, r"--load d: the first step from d/step_0000000005, its newest checkpoint, was not finite "
                         r"\(step 6[^)]*.*\): give --load d/step_0000000004 to continue .*, or give --load d/step_0000000005 to")
        self.assertFalse((self.folder / "e").exists())
        _, message = self.pretrain("--train-iters", 8, "--load", "d", "--save", "d", status=2)
        self.assertIn("give --auto-resume instead of --load", message)
        _, message = self.pretrain("--train-iters", 6, "--load", "d/step_0000000005", status=1)
        self.assertIn("step 6: the loss is nan", message)
        _, message = self.pretrain("--train-iters", 8, *run)
        self.assertIn("the first step from d/step_0000000005 was not finite (step 6", message)
        self.assertEqual(self.steps(), [4, 5, 8])

    def test_clicks_whose_first_step_is_not_finite_are_not_taken_silently(self):
        run = ("recommend", "--synthetic-samples", 1000, *CLICKS)
        self.trifold(*run, "--train-iters", 2, "--save", "d")
        (self.folder / "d" / "step_0000000002" / "FIRST_STEP").write_text("not finite\nstep 3: a test\n")
        _, message = self.trifold(*run, "--train-iters", 4, "--load", "d", status=2)
        self.assertIn("was not finite (step 3: a test): give --load d/step_0000000002 to try that one again", message)

    def test_a_recurring_cause_is_reported(self):
        run = ("--train-iters", 8, "--save-interval", 1, "--lr", "1e30", "--save", "d", "--auto-resume")
        self.pretrain("--train-iters", 2, "--save", "d")
        self.pretrain(*run, status=1)
        for _ in range(3):
            _, message = self.pretrain(*run, status=1)
            self.assertIn("A run before this one failed in the same step", message)
            self.assertEqual(self.steps(), [2, 3])


class Signals(Resume):
    LONG = ("--split", "50,50,0", "--num-layers", 6, "--hidden-size", 256, "--num-attention-heads", 8, "--seq-length",
            128, "--eval-interval", 1, "--eval-iters", 100000, "--train-iters", 3)

    def test_an_evaluation_is_abandoned(self):
        for ranks in ((), ("--ranks", 2)):
            process = self.start(*self.LONG, *ranks, "--save", "d")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(100), 75)
            self.assertEqual([line for line in self.log() if "valid_loss" in line], [])
            self.assertEqual(self.steps(), [1])
            (self.folder / "log.jsonl").unlink()
            shutil.rmtree(self.folder / "d")

    def test_an_abandoned_last_evaluation_is_made_up_for(self):
        line = (*self.LONG[:-1], 1, "--save", "d", "--save-best")
        process = self.start(*line)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(100), 75)
        self.assertEqual(self.steps(), [1])
        self.assertFalse((self.folder / "d" / "BEST").exists())
        # Both ways to continue decide about the step, although none is left to train.
        for more in (("--auto-resume",), ("--load", "d")):
            self.pretrain(*(2 if word == 100000 else word for word in line), *more, "--log-json", "rest.jsonl")
            self.assertEqual([entry["step"] for entry in self.log("rest.jsonl") if "valid_loss" in entry], [1])
            self.assertEqual((self.folder / "d" / "BEST").read_text(), "step_0000000001\n")
            for name in ("d/BEST", "rest.jsonl"):
                (self.folder / name).unlink()

    def test_a_hangup_saves(self):
        process = self.start("--train-iters", 1000000, "--save", "d")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(100), 75)
        self.assertEqual(len(self.steps()), 1)

    def test_a_pipe_that_nobody_reads_is_no_end(self):
        reader, writer = os.pipe()
        process = self.start("--train-iters", 50, "--log-interval", 1, "--save", "d", stderr=writer)
        os.close(writer)
        os.close(reader)
        self.assertEqual(process.wait(100), 0)
        self.assertEqual(self.steps(), [50])


class BadRecords(Resume):
    def setUp(self):
        super().setUp()
        self.lines = [json.dumps({"text": f"line {i} " + 400 * "x "}) for i in range(400)]

    def write(self, *bad):
        lines = list(self.lines)
        for i, text in bad:
            lines[i] = text
        (self.folder / "data.jsonl").write_text("\n".join(lines) + "\n")

    def run_on(self, *arguments, **options):
        return self.pretrain("--split", "1", *arguments, data=self.folder / "data.jsonl", **options)

    def test_they_are_skipped_and_counted(self):
        self.write((7, '{"text": '), (100, '{"other": "x"}'), (200, '{"text": 7}'))
        steps = ("--train-iters", 60, "--global-batch-size", 64)  # more than once through the text
        _, message = self.run_on(*steps, status=2)
        self.assertIn("data.jsonl:", message)
        skip = (*steps, "--on-bad-record", "skip")
        _, message = self.run_on(*skip, "--log-json", "whole.jsonl")
        for line in (8, 101, 201):
            self.assertEqual(message.count(f"data.jsonl:{line}: "), 1, message)
        self.run_on(*skip, "--max-bad-records", 3)
        _, message = self.run_on(*skip, "--max-bad-records", 2, status=2)
        self.assertIn("3 records of the data could not be read, but --max-bad-records allows 2", message)
        # The order is that of the same text without them, also in a resumed run.
        self.run_on(*skip, "--exit-interval", 25, "--save", "d", "--log-json", "parts.jsonl")
        self.run_on(*skip, "--load", "d", "--log-json", "parts.jsonl")
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))

    def test_they_are_refused_where_there_are_none(self):
        for options, err in (((), "--on-bad-record skip has no effect: no file of --data-path is JSON lines"),
                              (("--max-bad-records", 7, "--on-bad-record", "stop"), "--max-bad-records 7 has no effect")):
            skip = () if "--on-bad-record" in options else ("--on-bad-record", "skip")
            self.assertIn(err, self.pretrain("--train-iters", 2, *options, *skip, status=2)[1])


if __name__ == "__main__":
    unittest.main()
