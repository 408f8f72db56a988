"""The last, incomplete batch of a pass: said, left out with --drop-last, and never a batch of one with batch normalisation."""

import unittest

from preprocessed import PreprocessTest

MODEL = ("--embedding-dim", 4, "--bottom-mlp", "8-4", "--top-mlp", "8-1", "--lr", 0.1, "--threads-per-rank", 1, "--lr-decay-style", "constant", "--log-interval", 1)


class LastBatch(PreprocessTest):
    def setUp(self):
        super().setUp()
        for samples in (82, 81, 80):
            self.write(f"{samples}.csv", "click,x,item\n" + "".join(f"{i * 7 % 5 % 2},{i % 9},i{i % 4}\n" for i in range(samples)))
            self.preprocess(f"{samples}.csv", f"d{samples}", columns=("--label", "click", "--dense", "x", "--sparse", "item"))

    def train(self, data, *options, **more):
        batch = () if "--global-batch-size" in options else ("--global-batch-size", 20)
        return self.trifold("recommend", "--train-data", data, *MODEL, *batch, *options, **more)

    def same_bits(self, one, other):
        out, _ = self.trifold("inspect", one, "--diff", other)
        self.assertRegex(out, r"all \d+ tensors are bitwise equal")

    def test_it_is_said(self):
        out, err = self.train("d82")
        self.assertIn("the last batch of each pass has 2 samples instead of 20 and makes a full step; --drop-last leaves it out", out + err)
        out, err = self.train("d82", "--drop-last")
        self.assertIn("the last 2 samples of each pass are left out (--drop-last)", out + err)
        for options in (("d80",), ("d82", "--train-iters", 4)):
            out, err = self.train(*options)
            self.assertNotIn("last batch", out + err)

    def test_it_is_left_out(self):
        self.train("d82", "--sample-order", "stored", "--train-iters", 4, "--save", "four")
        self.train("d82", "--sample-order", "stored", "--drop-last", "--train-epochs", 1, "--save", "dropped")
        self.same_bits("four", "dropped")
        self.train("d82", "--sample-order", "stored", "--train-epochs", 1, "--save", "all")
        self.assertIn("step_0000000005", (self.folder / "all" / "LATEST").read_text())
        self.train("d80", "--train-epochs", 3, "--save", "whole")
        self.train("d80", "--train-epochs", 3, "--drop-last", "--save", "whole-dropped")
        self.same_bits("whole", "whole-dropped")
        # In another order each time, and the same after a stop and on more ranks.
        self.train("d82", "--drop-last", "--train-epochs", 3, "--save", "three", "--log-json", "three.jsonl")
        self.train("d82", "--drop-last", "--train-epochs", 3, "--save", "stopped", "--exit-interval", 5)
        self.train("d82", "--drop-last", "--train-epochs", 3, "--save", "stopped", "--auto-resume")
        self.same_bits("three", "stopped")
        self.train("d82", "--drop-last", "--train-epochs", 3, "--ranks", 3, "--log-json", "ranks.jsonl")
        self.assertEqual(len(self.losses("three.jsonl")), 12)
        for a, b in zip(self.losses("three.jsonl"), self.losses("ranks.jsonl"), strict=True):
            self.assertAlmostEqual(a, b, delta=1e-4)

    def test_mistakes(self):
        self.train("d82", "--train-epochs", 2, "--save", "kept", "--exit-interval", 4)
        self.train("d82", "--train-epochs", 2, "--save", "dropped", "--exit-interval", 4, "--drop-last")
        for run, options, words in (("kept", ("--drop-last",), "was trained without --drop-last"), ("dropped", (), "was trained with --drop-last")):
            _, err = self.train("d82", "--train-epochs", 2, "--load", run, *options, status=2)
            self.assertIn(words, err)
        _, err = self.train("d82", "--drop-last", "--global-batch-size", 90, status=2)
        self.assertIn("--drop-last leaves out all 82 samples, which are fewer than --global-batch-size 90", err)

    def test_batch_norm_gets_no_batch_of_one(self):
        _, err = self.train("d81", "--batch-norm", "--train-epochs", 1, status=2)
        self.assertIn("the last batch of a pass has one: 81 samples in batches of 20: give --drop-last", err)
        self.train("d81", "--batch-norm", "--train-epochs", 1, "--drop-last")
        self.train("d81", "--batch-norm", "--train-iters", 4)
        self.train("d82", "--batch-norm", "--train-epochs", 1)


if __name__ == "__main__":
    unittest.main()
