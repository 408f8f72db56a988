"""Runs of whole passes over the data, and evaluations that are limited to the validation split."""

import unittest

from program import ProgramTest


class Epochs(ProgramTest):
    def setUp(self):
        super().setUp()
        # 26 windows of 32 tokens for training: 6 global batches of 4 and one of 2.
        (self.folder / "text.txt").write_text("".join(f"{i} is a number. " for i in range(1000))[:960])

    def train(self, *arguments, **options):
        return self.pretrain("--train-epochs", 2, *arguments, data=options.pop("data", "text.txt"), **options)

    def check_run(self, name, samples):
        steps = [line for line in self.log(name) if "loss" in line]
        self.assertEqual(len(steps), (samples + 3) // 4)
        self.assertEqual(steps[-1]["consumed_samples"], samples)
        self.assertEqual(sum(line["tokens"] for line in steps), samples * 32)

    def test_the_run_ends_after_the_passes_on_any_mesh(self):
        self.train("--f64", "--log-json", "one.jsonl")
        self.check_run("one.jsonl", 2 * 26)
        _, err = self.train("--f64", "--log-json", "three.jsonl", "--global-batch-size", 12, "--ranks", 3)
        self.assertIn("steps       1 to 5: 2 passes over 26 samples, the last step takes 4", err)
        self.train("--f64", "--log-json", "whole.jsonl", "--global-batch-size", 12)
        for one, three in zip(self.losses("whole.jsonl"), self.losses("three.jsonl")):
            self.assertLess(abs(one - three), 1e-11 * one)

    def test_indexed_data(self):
        out, _ = self.trifold("tokenize", "--input", "text.txt", "--output-prefix", "corpus")
        self.train("--vocab-size", 256, "--split", "1,0,0", "--log-json", "log.jsonl", "--ranks", 2, data=out.strip())
        self.check_run("log.jsonl", 2 * 29)

    def test_resume_and_more_passes(self):
        schedule = ["--lr-decay-style", "cosine", "--min-lr", 1e-4, "--lr-decay-iters", 13, "--global-batch-size", 8]
        self.train(*schedule, "--log-json", "whole.jsonl")
        self.train(*schedule, "--log-json", "parts.jsonl", "--save", "d", "--exit-interval", 4)
        self.train(*schedule, "--log-json", "parts.jsonl", "--save", "d", "--load", "d")
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))
        _, err = self.train(*schedule, "--load", "d", status=2)
        self.assertIn("has done all of --train-epochs 2 already", err)
        self.pretrain(*schedule, "--train-epochs", 3, "--load", "d", "--log-json", "more.jsonl", data="text.txt")
        self.assertEqual(self.log("more.jsonl")[-1]["consumed_samples"], 3 * 26)
        _, err = self.pretrain(*schedule, "--train-iters", 30, "--load", "d", data="text.txt", status=2)
        self.assertIn("was trained with --train-epochs, which orders samples differently", err)

    def test_lengths_that_contradict_each_other(self):
        _, err = self.train("--train-iters", 9, status=2)
        self.assertIn("--train-iters 9 and --train-epochs 2 exclude each other", err)
        _, err = self.pretrain(data="text.txt", status=2)
        self.assertIn("or give --train-epochs", err)
        _, err = self.train("--lr-warmup-iters", 20, status=2)
        self.assertIn("--lr-warmup-iters 20 is not below --lr-decay-iters 13", err)
        text, _ = self.train("--print-config")
        (self.folder / "run.ini").write_text(text)
        self.trifold("pretrain", "--config", "run.ini", "--log-json", "again.jsonl")
        self.check_run("again.jsonl", 2 * 26)

    def test_no_validation_sample_counts_twice(self):
        _, err = self.train("--eval-interval", 13, "--eval-iters", 50)
        self.assertIn("2 samples each time, the whole validation part: --eval-iters asks for 200", err)
        self.assertIn("(64 tokens", err)
        self.train("--save", "d")
        out, err = self.trifold("evaluate", "--load", "d", "--data-path", "text.txt", "--split", "90,10,0",
                                 "--eval-iters", 50)
        self.assertIn("all of its 2 samples are taken, once", err)
        self.assertIn("(64 tokens", out)


if __name__ == "__main__":
    unittest.main()
