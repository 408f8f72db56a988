"""preprocess --drop-negatives: predictions have the odds of all samples, wherever they come from."""

import csv
import json
import math
import random
import unittest

from preprocessed import PreprocessTest

SHARE = 0.75
OFFSET = math.log(1 - SHARE)
COLUMNS = ("--label", "click", "--dense", "age", "--sparse", "user", "--threads", 1)
MODEL = ("--embedding-dim", 4, "--bottom-mlp", "4", "--top-mlp", "4-1", "--global-batch-size", 100, "--lr", 0.05, "--optimizer", "adagrad",
         "--embedding-optimizer", "adagrad", "--threads-per-rank", 1, "--train-epochs", 40)


def logit(p):
    return math.log(p) - math.log1p(-p)


class DroppedNegatives(PreprocessTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(5)
        for name, count in (("train", 6000), ("test", 3000)):
            rows = ((user := draw.randrange(12), draw.random()) for _ in range(count))
            self.write(f"{name}.csv", "click,like,age,user\n" + "".join(
                f"{int(x < 0.03 + 0.02 * (user % 5))},{int(x > 0.9)},{user},u{user}\n" for user, x in rows))
        self.preprocess("train.csv", "train", "--drop-negatives", SHARE, columns=COLUMNS)
        self.preprocess("test.csv", "test", "--dictionaries-of", "train", columns=())
        self.trifold("recommend", "--train-data", "train", *MODEL, "--save", "run")

    def evaluate(self, data, *options, run="run"):
        out, _ = self.trifold("evaluate", "--load", run, "--data", data, "--json", "e.json", *options)
        return json.loads((self.folder / "e.json").read_text()), out

    def score(self, *options, run="run"):
        out, err = self.trifold("score", "--load", run, "--data", "test", "--output", "-", *options)
        return [logit(float(row["probability"])) for row in csv.DictReader(out.splitlines())], err

    def test_predictions_are_calibrated(self):
        plain, out = self.evaluate("test", "--no-correct-negatives")
        self.assertNotIn("corrected", out)
        self.assertGreater(plain["calibration"], 2.5)
        for data in ("test", "test.csv"):
            result, out = self.evaluate(data)
            self.assertIn(f"log odds are corrected by {OFFSET:.4f}", out)
            self.assertLess(abs(result["calibration"] - 1), 0.15)
            self.assertLess(result["log_loss"], plain["log_loss"])
            self.assertAlmostEqual(result["auc"], plain["auc"], delta=1e-6)
            self.assertAlmostEqual(result["logit_correction"], OFFSET)
        # These lack negatives themselves.
        result, out = self.evaluate("train")
        self.assertLess(abs(result["calibration"] - 1), 0.15)
        self.assertEqual(result["logit_correction"], 0)
        corrected, err = self.score()
        self.assertIn(f"log odds are corrected by {OFFSET:.4f}", err)
        left, _ = self.score("--no-correct-negatives")
        for a, b in zip(corrected, left, strict=True):
            self.assertAlmostEqual(a, b + OFFSET, delta=1e-4)

    def test_training_says_so_and_logs_it(self):
        out, err = self.trifold("recommend", "--train-data", "train", *MODEL, "--valid-data", "test", "--save", "valid", "--log-json", "log.jsonl")
        self.assertIn(f"0.75 of the negatives were dropped: predictions are corrected by {OFFSET:.4f}", out + err)
        self.assertAlmostEqual([line["valid_calibration"] for line in self.log() if "valid_calibration" in line][-1],
                               self.evaluate("test", run="valid")[0]["calibration"], delta=1e-5)
        self.trifold("recommend", "--train-data", "train", *MODEL, "--valid-data", "train", "--log-json", "own.jsonl")
        self.assertLess(abs([line["valid_calibration"] for line in self.log("own.jsonl") if "valid_calibration" in line][-1] - 1), 0.15)
        out, _ = self.trifold("inspect", "run", "--diff", "valid")
        self.assertRegex(out, r"all \d+ tensors are bitwise equal")
        out, err = self.trifold("recommend", "--train-data", "train", *MODEL, "--no-correct-negatives", "--save", "left")
        self.assertIn("predictions are not corrected for it (--no-correct-negatives)", out + err)
        self.assertGreater(self.evaluate("test", run="left")[0]["calibration"], 2.5)
        self.assertEqual(self.score(run="left")[0], self.score("--no-correct-negatives")[0])
        manifest = json.loads((next((self.folder / "run").glob("step_*")) / "manifest.json").read_text())
        self.assertEqual(manifest["state"]["clicks"]["dropped_negatives"], SHARE)

    def test_later_runs_and_copies(self):
        self.trifold("reshard", "--load", "run", "--save", "copy", "--files", 2, "--no-save-optim")
        self.assertEqual(self.score(run="copy")[0], self.score()[0])
        self.preprocess("test.csv", "whole", "--dictionaries-of", "train", columns=())
        self.trifold("recommend", "--train-data", "whole", *MODEL, "--finetune", "--load", "run", "--save", "next")
        self.assertNotIn("corrected", self.evaluate("test", run="next")[1])

    def test_several_labels_are_not_corrected(self):
        self.preprocess("train.csv", "two", "--drop-negatives", SHARE, columns=("--label", "click,like", *COLUMNS[2:]))
        out, err = self.trifold("recommend", "--train-data", "two", *MODEL, "--save", "two-run")
        self.assertIn("predictions of several labels are not corrected", out + err)
        self.assertNotIn("corrected", self.evaluate("two", run="two-run")[1])


if __name__ == "__main__":
    unittest.main()
