"""Recommenders of several labels from the command line: from a table with labels that rows lack to predictions of each."""

import csv
import io
import json
import math
import random
import unittest

from program import ProgramTest

MODEL = ("--embedding-dim 4 --bottom-mlp 8-4 --top-mlp 12-1 --tower-mlp 6-1 --global-batch-size 100 --lr 0.1 --threads-per-rank 1 "
         "--train-epochs 4 --optimizer adagrad --embedding-optimizer rowwise-adagrad --embedding-lr 0.1").split()
ONE = ("--threads-per-rank", 1)
LABELS = ("click", "stars")


def area(pairs):
    """AUC of (score, label) by counting every pair."""
    clicked = [score for score, label in pairs if label]
    others = [score for score, label in pairs if not label]
    return sum((a > b) + (a == b) / 2 for a in clicked for b in others) / (len(clicked) * len(others))


class Labels(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(5)

        def rows(count):
            for _ in range(count):
                user, item = draw.randrange(30), draw.randrange(20)
                click = int(draw.random() < 0.15 + 0.5 * (user % 2))
                stars = draw.randrange(1, 6) - (item % 3 == 0) + (item % 3 == 1)
                yield [click if draw.random() < 0.9 else "", stars if click or draw.random() < 0.3 else "", draw.randrange(9), user, item]
        for name, count in (("train", 2000), ("test", 757)):
            kept = [row for row in rows(count) if row[0] != "" or row[1] != ""]
            (self.folder / f"{name}.csv").write_text("click,stars,n,user,item\n" + "".join(",".join(map(str, row)) + "\n" for row in kept))
            self.trifold("preprocess", "--input", f"{name}.csv", "--output", name, "--label", "click,stars>=4", "--dense", "n", "--sparse",
                         "user,item", *(("--dictionaries-of", "train") if name == "test" else ()), "--threads", 1)
        self.rows = kept

    def train(self, *arguments, **options):
        """An option in `arguments` takes the place of the model's."""
        taken = {*arguments, "--train-epochs"} if "--train-iters" in arguments else arguments
        kept = [word for name, value in zip(MODEL[::2], MODEL[1::2]) if name not in taken for word in (name, value)]
        return self.trifold("recommend", "--train-data", "train", "--valid-data", "test", *kept, *arguments, **options)

    def test_a_label_that_all_samples_lack(self):
        self.train("--train-iters", 1, "--save", "run")
        (self.folder / "lacking.csv").write_text("click,stars,n,user,item\n1,,3,1,2\n0,,4,2,3\n")
        out, _ = self.trifold("evaluate", "--load", "run", "--data", "lacking.csv", "--json", "e.json", *ONE)
        self.assertIn("label stars  AUC -  log loss -  normalised entropy -  accuracy -  calibration -", out)
        labels = json.loads((self.folder / "e.json").read_text())["labels"]
        self.assertEqual((labels["stars"]["log_loss"], labels["stars"]["accuracy"], labels["click"]["samples"]), (None, None, 2))

    def label(self, row, name):
        value = row[LABELS.index(name)]
        return None if value == "" else int(value) if name == "click" else int(value >= 4)

    def scores(self, *arguments, data="test"):
        out, _ = self.trifold("score", "--load", "run", "--data", data, "--output", "-", *ONE, *arguments)
        return list(csv.DictReader(io.StringIO(out)))

    def check_predictions(self):
        rows = self.scores()
        self.assertEqual(list(rows[0]), ["sample", "label_click", "label_stars", "probability_click", "probability_stars"])
        self.assertEqual(len(rows), len(self.rows))
        for line, row in zip(rows, self.rows):
            for name in LABELS:
                label = self.label(row, name)
                self.assertEqual(line[f"label_{name}"], "" if label is None else str(label))
        out, _ = self.trifold("evaluate", "--load", "run", "--data", "test", "--group-by", "user", "--json", "e.json", "--ranks", 2, *ONE)
        found = json.loads((self.folder / "e.json").read_text())
        for name in LABELS:
            pairs = [(float(line[f"probability_{name}"]), int(line[f"label_{name}"])) for line in rows if line[f"label_{name}"]]
            of_label = found["labels"][name]
            self.assertEqual(of_label["samples"], len(pairs))
            self.assertEqual(of_label["clicks"], sum(label for _, label in pairs))
            self.assertAlmostEqual(of_label["auc"], area(pairs), delta=1e-4)
            self.assertGreater(of_label["auc"], 0.58)
            self.assertIn(f"label {name}  AUC {of_label['auc']:.4f}  log loss {of_label['log_loss']:.5f}", out)
            loss = -sum(math.log(p if label else 1 - p) for p, label in pairs) / len(pairs)
            self.assertAlmostEqual(of_label["log_loss"], loss, delta=1e-6)
            self.assertIn("gauc", of_label)
        self.assertAlmostEqual(found["auc"], sum(found["labels"][name]["auc"] for name in LABELS) / 2, delta=1e-12)
        return rows

    def test_a_shared_bottom(self):
        _, stderr = self.train("--save", "run", "--log-json", "log.jsonl", "--label-weights", "1,0.5")
        self.assertRegex(stderr, r"label click  AUC 0\.\d+  log loss .*\n.*label stars  AUC 0\.\d+")
        last = [line for line in self.log() if "labels" in line][-1]
        rows = self.check_predictions()
        found = json.loads((self.folder / "e.json").read_text())
        self.assertAlmostEqual(last["valid_auc"], found["auc"], delta=1e-4)
        for ranks, placement in ((2, "row"), (3, "column"), (2, "replicated")):
            others = self.scores("--ranks", ranks, "--placement", placement, "--global-batch-size", 64)
            for line, other in zip(rows, others, strict=True):
                for name in LABELS:
                    self.assertAlmostEqual(float(line[f"probability_{name}"]), float(other[f"probability_{name}"]), delta=1e-6)

    def test_experts_go_on_on_other_ranks(self):
        line = ("--multi-task", "mmoe", "--mmoe-experts", 3, "--interaction", "fm", "--wide")
        self.train(*line, "--train-iters", 31, "--lr-decay-style", "constant", "--save", "run", "--log-json", "a.jsonl")
        self.train("--lr-decay-style", "constant", "--train-iters", 60, "--load", "run", "--save", "one", "--log-json", "one.jsonl")
        self.train("--lr-decay-style", "constant", "--train-iters", 60, "--load", "run", "--save", "run", "--ranks", 3, "--log-json", "three.jsonl",
                   "--placement", "row,column")
        self.train(*line, "--lr-decay-style", "constant", "--train-iters", 60, "--save", "straight", "--log-json", "straight.jsonl")
        one, three, straight = (self.losses(name) for name in ("one.jsonl", "three.jsonl", "straight.jsonl"))
        self.assertEqual(straight[31:], one)
        for a, b in zip(one, three, strict=True):
            self.assertLess(abs(a - b), 2e-5 * a)
        self.check_predictions()

    def test_lines_of_json_have_null_for_a_missing_label(self):
        self.train("--save", "run", "--train-iters", 3)
        out, _ = self.trifold("score", "--load", "run", "--data", "test", "--output", "-", "--output-format", "jsonl", *ONE)
        for line, row in zip(map(json.loads, out.splitlines()), self.rows, strict=True):
            self.assertEqual([line["label_click"], line["label_stars"]], [self.label(row, name) for name in LABELS])

    def test_a_plan_counts_what_the_run_has(self):
        _, stderr = self.train("--multi-task", "mmoe", "--train-iters", 3, "--wide")
        memory = next(line for line in stderr.splitlines() if line.startswith("memory"))
        planned, _ = self.trifold("plan-recommender", "--train-data", "train", *MODEL, "--multi-task", "mmoe", "--wide")
        self.assertEqual(memory.replace(" on rank 0", ""), next(
            line for line in planned.splitlines() if line.startswith("memory")).replace(" on rank 0", ""))
        synthetic = ("--synthetic-labels", 3, "--table-rows", "30-20", "--dense-features", 1)
        less, _ = self.trifold("plan-recommender", *synthetic, *MODEL)
        more, _ = self.trifold("plan-recommender", *synthetic, *MODEL, "--multi-task", "mmoe")
        flops = [float(next(line for line in text.splitlines() if "MFLOP" in line).split(";")[1].split(",")[1].split()[0]) for text in (less, more)]
        self.assertGreater(flops[1], 1.5 * flops[0])

    def test_mistakes(self):
        def refused(*arguments):
            return self.train(*arguments, status=2)[1]
        self.assertIn("--label-weights 1,2,3 has 3 weights, the data have the labels click, stars", refused("--label-weights", "1,2,3"))
        self.assertIn("'1,0' is not a list of numbers, each above 0", refused("--label-weights", "1,0"))
        self.assertIn("--tower-mlp 6-2 does not end with 1", refused("--tower-mlp", "6-2"))
        self.assertIn("--mmoe-experts 3 has no effect without --multi-task mmoe", refused("--mmoe-experts", 3))
        self.assertIn("--multi-task mmoe needs hidden layers for its experts, and --top-mlp 1 has none", refused("--multi-task", "mmoe", "--top-mlp", "1"))
        self.trifold("preprocess", "--input", "train.csv", "--output", "one", "--label", "click", "--dense", "n", "--sparse", "user,item",
                     "--max-malformed", 1, "--threads", 1)
        _, stderr = self.trifold("recommend", "--train-data", "one", *MODEL, "--multi-task", "mmoe", status=2)
        self.assertIn("--tower-mlp has an effect only on samples with several labels; these have one: leave it out", stderr)
        self.train("--save", "run", "--train-iters", 3)
        _, stderr = self.trifold("score", "--load", "run", "--data", "one", "--output", "-", *ONE, status=2)
        self.assertIn("labels: one in one, click, stars in", stderr)
        _, stderr = self.train("--load", "run", "--tower-mlp", "5-1", status=2)
        self.assertIn("tower_mlp", stderr)


if __name__ == "__main__":
    unittest.main()
