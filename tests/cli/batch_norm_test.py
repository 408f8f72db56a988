"""Batch normalisation of a recommender: the same on every number of ranks, in resumed runs, and in predictions."""

import random
import unittest

from program import CLICKS, ProgramTest

NORM = ("--batch-norm", "--bottom-mlp", "8-6-4", "--top-mlp", "8-5-1", "--log-interval", 1)


def clicks(*changed):
    kept = [word for name, value in zip(CLICKS[::2], CLICKS[1::2]) if name not in changed for word in (name, value)]
    return [*kept, *changed]


class BatchNorm(ProgramTest):
    def run_clicks(self, *arguments, **options):
        return self.trifold("recommend", *clicks(*NORM[1:5]), NORM[0], *NORM[5:], *arguments, **options)

    def curve(self, name, *arguments):
        self.run_clicks("--log-json", name, *arguments)
        return self.losses(name)

    def test_ranks_and_resume(self):
        alone = self.curve("one.jsonl", "--save", "one", "--train-iters", 20)
        for ranks in (2, 3):  # 250 samples: with three there is padding
            other = self.curve(f"{ranks}.jsonl", "--ranks", ranks, "--train-iters", 20)
            self.assertLess(max(abs(a - b) for a, b in zip(alone, other)), 2e-4)
        self.run_clicks("--train-iters", 20, "--exit-interval", 12, "--save", "parts")
        _, stderr = self.run_clicks("--train-iters", 20, "--load", "parts", "--save", "parts")
        names = [next((self.folder / name).glob("step_*20")) for name in ("one", "parts")]
        out, _ = self.trifold("inspect", names[0])
        self.assertIn("norm_variance/top.1.norm", out)
        for name in ("one", "parts"):
            self.trifold("convert", "--load", name, "--save", f"{name}.safetensors")
        self.assertEqual((self.folder / "one.safetensors").read_bytes(), (self.folder / "parts.safetensors").read_bytes())
        self.curve("bf16.jsonl", "--bf16", "--train-iters", 20)
        self.assertLess(max(abs(a - b) for a, b in zip(alone, self.losses("bf16.jsonl"))), 0.02)

    def test_predictions(self):
        draw = random.Random(8)
        (self.folder / "clicks.csv").write_text("label,I1,I2,C1,C2\n" + "".join(
            f"{draw.randrange(2)},{draw.randrange(50)},{draw.randrange(9)},{draw.randrange(30)},{draw.randrange(5)}\n" for _ in range(900)))
        run = ("recommend", "--train-data", "clicks.csv", "--table-rows", "30-5", "--embedding-dim", 4, *NORM, "--global-batch-size", 100,
               "--threads-per-rank", 1)
        self.trifold(*run, "--train-epochs", 3, "--lr", 0.1, "--optimizer", "adagrad", "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "w.safetensors")
        self.trifold(*run, "--train-iters", 1, "--lr", 1e-30, "--init-weights", "w.safetensors", "--save", "again")
        values = {}
        for ranks in (1, 2):
            self.trifold("score", "--load", "run", "--data", "clicks.csv", "--output", f"{ranks}.csv", "--ranks", ranks, "--threads-per-rank", 1)
            values[ranks] = [float(line.split(",")[2]) for line in (self.folder / f"{ranks}.csv").read_text().splitlines()[1:]]
        self.assertLess(max(abs(a - b) for a, b in zip(values[1], values[2])), 1e-6)
        self.assertGreater(max(values[1]) - min(values[1]), 0.05)
        self.trifold("reshard", "--load", "run", "--save", "small", "--files", 2, "--no-save-optim")
        self.assertEqual(["_sum/" in self.trifold("inspect", name)[0] for name in ("run", "small")], [True, False])
        self.trifold("score", "--load", "small", "--data", "clicks.csv", "--output", "small.csv", "--threads-per-rank", 1)
        self.assertEqual((self.folder / "small.csv").read_text(), (self.folder / "1.csv").read_text())
        _, err = self.trifold("convert", "--load", "run", "--save", "t.safetensors", "--names", "torchrec", status=2)
        self.assertIn("TorchRec's DLRM has no counterpart of batch normalisation", err)

    def test_mistakes(self):
        _, err = self.run_clicks("--synthetic-labels", 2, "--train-iters", 1, status=2)
        self.assertIn("--batch-norm is for models of one label; the samples have 2", err)
        _, err = self.trifold("recommend", *clicks("--global-batch-size", 1), "--batch-norm", "--train-iters", 1, status=2)
        self.assertIn("--batch-norm is not possible with --global-batch-size 1, because it normalises over the samples of a step: "
                      "give 2 or more", err)


if __name__ == "__main__":
    unittest.main()
