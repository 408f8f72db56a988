"""Weights of samples (`preprocess --weight`): a sample counts that many times in the loss and in the metrics, on every mesh and after a stop."""

import csv
import json
import math
import random
import unittest

from program import ProgramTest

ONE = ("--threads-per-rank", 1)
SAMPLES = 96
COLUMNS = ("--label", "y", "--dense", "age", "--sparse", "user", "--threads", 2)
MODEL = ("--embedding-dim", 4, "--bottom-mlp", "6-4", "--top-mlp", "6-1", "--sample-order", "stored", "--lr-decay-style", "constant",
         "--log-interval", 1, *ONE)


class SampleWeights(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(4)
        self.rows = [(draw.randrange(2), draw.randrange(18, 80), f"u{draw.randrange(9)}", draw.choice((0, 1, 1, 2, 3))) for _ in range(SAMPLES)]
        self.preprocess("weighted", self.rows, "--weight", "w")

    def write(self, name, rows):
        (self.folder / name).write_text("y,age,user,w\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))

    def preprocess(self, name, rows, *more):
        self.write(name + ".csv", rows)
        return self.trifold("preprocess", "--input", name + ".csv", "--output", name, *COLUMNS, *more)

    def recommend(self, data, *more, lr=0.5, batch=SAMPLES, log="log.jsonl"):
        (self.folder / log).unlink(missing_ok=True)
        self.trifold("recommend", "--train-data", data, *MODEL, "--lr", lr, "--global-batch-size", batch, "--log-json", log, *more)
        return [line["loss"] for line in self.log(log) if "loss" in line]

    def probabilities(self, run):
        self.trifold("score", "--load", run, "--data", "weighted", "--output", "p.csv", *ONE)
        with open(self.folder / "p.csv", encoding="ascii") as file:
            return [float(row["probability"]) for row in csv.DictReader(file)]

    def losses(self, probabilities):
        return [-math.log(p if row[0] else 1 - p) for p, row in zip(probabilities, self.rows, strict=True)]

    def test_the_loss_is_the_weighted_sum_over_the_samples_of_the_batch(self):
        (first,) = self.recommend("weighted", "--train-iters", 1, "--save", "still", lr=1e-30)
        losses = self.losses(self.probabilities("still"))
        self.assertAlmostEqual(first, sum(row[3] * loss for row, loss in zip(self.rows, losses)) / SAMPLES, delta=1e-6)

    def test_a_weight_is_as_good_as_repeated_samples(self):
        repeated = [row for row in self.rows for _ in range(row[3])]
        self.preprocess("repeated", repeated, "--dictionaries-of", "weighted")
        # One batch has all samples. Its gradient is divided by its samples, of which the other has more.
        self.recommend("weighted", "--train-iters", 5, "--save", "a", lr=0.5)
        self.recommend("repeated", "--train-iters", 5, "--save", "b", lr=0.5 * len(repeated) / SAMPLES, batch=len(repeated))
        for a, b in zip(self.probabilities("a"), self.probabilities("b"), strict=True):
            self.assertAlmostEqual(a, b, delta=2e-6)

    def test_metrics_are_weighted(self):
        self.recommend("weighted", "--train-iters", 8, "--save", "run")
        self.write("new.csv", self.rows)
        p = self.probabilities("run")
        weights = [row[3] for row in self.rows]
        loss = sum(w * x for w, x in zip(weights, self.losses(p))) / sum(weights)
        pairs = [(w * v, (a > b) + (a == b) / 2) for a, row, w in zip(p, self.rows, weights) if row[0]
                 for b, other, v in zip(p, self.rows, weights) if not other[0]]
        auc = sum(w * x for w, x in pairs) / sum(w for w, _ in pairs)
        for data, ranks in (("weighted", 1), ("weighted", 3), ("new.csv", 2)):
            self.trifold("evaluate", "--load", "run", "--data", data, "--json", "e.json", "--ranks", ranks, *ONE)
            found = json.loads((self.folder / "e.json").read_text())
            self.assertAlmostEqual(found["log_loss"], loss, delta=1e-6)
            self.assertAlmostEqual(found["auc"], auc, delta=1e-6)
            self.assertAlmostEqual(found["calibration"], sum(w * x for w, x in zip(weights, p)) / sum(w * row[0] for w, row in zip(weights, self.rows)), delta=1e-5)
            self.assertEqual((found["samples"], found["weight"]), (sum(w > 0 for w in weights), sum(weights)))
        # Predictions need no weights.
        (self.folder / "bare.csv").write_text("age,user\n" + "".join(f"{row[1]},{row[2]}\n" for row in self.rows))
        self.trifold("score", "--load", "run", "--data", "bare.csv", "--output", "bare.out.csv", *ONE)

    def test_meshes_and_stops_do_not_matter(self):
        run = ("--train-iters", 8, "--optimizer", "adagrad", "--embedding-optimizer", "rowwise-adagrad", "--valid-data", "weighted")
        whole = self.recommend("weighted", *run, batch=32)
        valid = [line["valid_log_loss"] for line in self.log() if "valid_log_loss" in line]
        for ranks, placement in ((2, "row"), (3, "column"), (4, "replicated")):
            losses = self.recommend("weighted", *run, "--ranks", ranks, "--placement", placement, batch=32)
            for a, b in zip(whole, losses, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-6)
        self.recommend("weighted", *run, "--exit-interval", 5, "--save", "stopped", batch=32)
        rest = self.recommend("weighted", *run, "--load", "stopped", batch=32)
        self.assertEqual(rest, whole[5:])
        self.assertEqual([line["valid_log_loss"] for line in self.log() if "valid_log_loss" in line], valid)

    def test_mistakes(self):
        bad = [(*row[:3], "-1" if i == 0 else "x" if i == 1 else "" if i == 2 else row[3]) for i, row in enumerate(self.rows)]
        self.write("bad.csv", bad)
        _, err = self.trifold("preprocess", "--input", "bad.csv", "--output", "x", *COLUMNS, "--weight", "w", status=2)
        self.assertIn("column w: '-1' is not the weight of a sample: a number of 0 or more", err)
        _, err = self.trifold("preprocess", "--input", "weighted.csv", "--output", "x", *COLUMNS, "--weight", "v", status=2)
        self.assertIn("--weight names the column 'v'", err)


if __name__ == "__main__":
    unittest.main()
