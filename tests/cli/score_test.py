"""Predictions of a trained recommender: `score` and `evaluate` from the command line."""

import csv
import io
import json
import math
import random
import unittest

from program import ProgramTest

MODEL = ("--embedding-dim 4 --bottom-mlp 8-4 --top-mlp 8-1 --global-batch-size 100 --lr 0.3 --threads-per-rank 1 "
         "--train-epochs 6 --embedding-optimizer rowwise-adagrad --embedding-lr 0.1").split()
ONE = ("--threads-per-rank", 1)


def area(pairs):
    """AUC of (score, label) by counting every pair."""
    clicked = [score for score, label in pairs if label]
    others = [score for score, label in pairs if not label]
    right = sum((a > b) + (a == b) / 2 for a in clicked for b in others)
    return right / (len(clicked) * len(others))


def gain(labels, k):
    """DCG@k of labels in the order of their scores."""
    return sum(label / math.log2(place + 2) for place, label in enumerate(labels[:k]))


class Score(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(5)
        self.users = []

        def samples(count):
            for _ in range(count):
                user, item = draw.randrange(30), draw.randrange(20)
                label = int(draw.random() < (0.2 + 0.4 * (user % 2) + 0.3 * (item % 3 == 0)))
                yield label, draw.randrange(9), user, item
        for name, count in (("train.csv", 2000), ("test.csv", 757)):
            rows = list(samples(count))
            (self.folder / name).write_text("label,I1,C1,C2\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        self.rows = rows
        self.trifold("recommend", "--train-data", "train.csv", "--table-rows", "30-20", "--valid-data", "test.csv", *MODEL, "--save", "run",
                     "--log-json", "log.jsonl")

    def score(self, *arguments, data="test.csv", output="scores.csv", **options):
        return self.trifold("score", "--load", "run", "--data", data, "--output", output, *ONE, *arguments, **options)

    def table(self, text):
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([int(row["sample"]) for row in rows], list(range(len(rows))))
        return [(float(row["probability"]), int(row["label"])) for row in rows]

    def test_predictions_are_in_the_order_of_the_data(self):
        out, err = self.score()
        self.assertEqual(out, "")
        self.assertIn("757 predictions by run/step_0000000120 (step 120)", err)
        scores = self.table((self.folder / "scores.csv").read_text())
        self.assertEqual([label for _, label in scores], [row[0] for row in self.rows])
        self.score("--ranks", 3, "--placement", "row", "--global-batch-size", 64, output="scores.jsonl")
        for (score, label), line in zip(scores, self.log("scores.jsonl"), strict=True):
            self.assertEqual(line["label"], label)
            self.assertAlmostEqual(line["probability"], score, delta=1e-6)
        self.assertEqual([line["sample"] for line in self.log("scores.jsonl")], list(range(757)))
        out, _ = self.score("--ranks", 2, output="-")
        self.assertEqual(len(self.table(out)), 757)
        out, _ = self.score("--output-format", "jsonl", output="-")
        self.assertEqual(len(out.splitlines()), 757)
        self.assertFalse([name for name in self.files() if ".tmp-" in name])

    def test_data_without_labels_are_predicted(self):
        self.score()
        text = (self.folder / "test.csv").read_text().splitlines()
        (self.folder / "new.csv").write_text("".join(line.split(",", 1)[1] + "\n" for line in text))
        out, _ = self.score(data="new.csv", output="-")
        self.assertTrue(out.startswith("sample,probability\n0,0."), out[:40])
        with_labels = self.table((self.folder / "scores.csv").read_text())
        for line, (score, _) in zip(out.splitlines()[1:], with_labels, strict=True):
            self.assertEqual(float(line.split(",")[1]), score)
        _, err = self.evaluate("--data", "new.csv", status=2)
        self.assertIn("new.csv has no labels, which an evaluation needs", err)

    def evaluate(self, *arguments, **options):
        return self.trifold("evaluate", "--load", "run", *ONE, *arguments, **options)

    def test_an_evaluation_equals_that_of_the_run(self):
        trained = next(line for line in self.log() if "valid_auc" in line)
        for ranks in (1, 3):
            out, _ = self.evaluate("--data", "test.csv", "--global-batch-size", 100, "--json", "e.json", "--ranks", ranks)
            found = json.loads((self.folder / "e.json").read_text())
            for name in ("auc", "log_loss", "normalised_entropy", "accuracy", "calibration", "samples"):
                self.assertAlmostEqual(found[name], trained["valid_" + name], delta=0 if ranks == 1 else 1e-6, msg=name)
            self.assertIn(f"AUC {found['auc']:.4f}  log loss {found['log_loss']:.5f}", out)

    def test_metrics_are_those_of_the_predictions(self):
        self.score()
        scores = self.table((self.folder / "scores.csv").read_text())
        out, _ = self.evaluate("--data", "test.csv", "--group-by", "C1", "--metric-at-k", "1,5", "--json", "e.json", "--ranks", 2)
        found = json.loads((self.folder / "e.json").read_text())
        # Logits that differ in their last bit may have one probability: a pair counts 1 / (clicked x others).
        self.assertAlmostEqual(found["auc"], area(scores), delta=1e-4)
        loss = -sum(math.log(p if label else 1 - p) for p, label in scores) / len(scores)
        self.assertAlmostEqual(found["log_loss"], loss, delta=1e-6)
        self.assertAlmostEqual(found["calibration"], sum(p for p, _ in scores) / sum(label for _, label in scores), delta=1e-6)
        groups = {}
        for row, pair in zip(self.rows, scores):
            groups.setdefault(row[2], []).append(pair)
        both = [pairs for pairs in groups.values() if len({label for _, label in pairs}) == 2]
        count = sum(map(len, both))
        self.assertAlmostEqual(found["gauc"], sum(len(pairs) * area(pairs) for pairs in both) / count, delta=1e-3)
        self.assertEqual((found["gauc_groups"], found["gauc_samples"]), (len(both), count))
        self.assertIn(f"GAUC {found['gauc']:.4f} by C1: {len(both)} groups with both labels, {count} samples", out)
        self.assertGreater(found["auc"], 0.6)
        ranked = [[label for _, label in sorted(pairs, reverse=True)] for pairs in groups.values()]
        clicked = [labels for labels in ranked if any(labels)]
        self.assertEqual(found["clicked_groups"], len(clicked))
        for k in (1, 5):
            gains = [gain(labels, k) / gain(sorted(labels, reverse=True), k) for labels in clicked]
            hits = sum(any(labels[:k]) for labels in clicked) / len(clicked)
            # Samples whose features are equal have equal logits, and no order.
            self.assertAlmostEqual(found[f"ndcg_at_{k}"], sum(gains) / len(gains), delta=0.05)
            self.assertAlmostEqual(found[f"hit_rate_at_{k}"], hits, delta=0.1)
            self.assertIn(f"NDCG@{k} {found[f'ndcg_at_{k}']:.4f}  hit rate@{k} {found[f'hit_rate_at_{k}']:.4f} by C1: "
                          f"{len(clicked)} groups with a click", out)

    def test_mistakes_are_found_before_anything_is_written(self):
        before = self.files()
        (self.folder / "ids.csv").write_text("label,I1,C1,C2\n1,2,3,4\n1,2,33,4\n")
        (self.folder / "other.csv").write_text("label,I1,C1\n1,2,3\n")
        for arguments, output, words in (
                ((), "scores.txt", "--output scores.txt: the name ends in none of .csv, .jsonl and .parquet: give --output-format csv, jsonl or parquet"),
                ((), "none/scores.csv", "there is no folder"),
                (("--data", "missing.csv"), "scores.csv", "missing.csv: there is no such file or folder"),
                (("--data", "packed.csv.gz"), "scores.csv", "packed.csv.gz: packed text must be preprocessed"),
                (("--ranks", 100000), "scores.csv", "--ranks 100000 is not possible"),
                (("--ranks", 200, "--global-batch-size", 100), "scores.csv", "--ranks 200 is more than --global-batch-size 100: give each rank at least one sample"),
                (("--load", "missing"), "scores.csv", "checkpoint missing does not exist"),
                (("--placement", "row,row,row"), "scores.csv", "--placement names 3 kinds for 2 tables"),
                (("--data", "other.csv"), "scores.csv", "other.csv has 1 column of ids, but there are 2 tables"),
                (("--data", "ids.csv"), "scores.csv", "ids.csv: line 3, column C1: id 33 is outside the table")):
            line = {"--load": "run", "--data": "test.csv", **dict(zip(arguments[::2], arguments[1::2])), "--output": output}
            _, err = self.trifold("score", *[word for pair in line.items() for word in pair], *ONE, status=2)
            self.assertIn(words, err)
        self.assertEqual([name for name in self.files() if name not in ("ids.csv", "other.csv")], before)
        _, err = self.evaluate("--data", "test.csv", "--json", "-", status=2)
        self.assertIn("--json -: the standard output cannot be used here; name a file", err)
        (self.folder / "again.csv").symlink_to("test.csv")
        before = (self.folder / "test.csv").read_bytes()
        for output in ("test.csv", "again.csv"):
            _, err = self.score(output=output, status=2)
            self.assertIn(f"--output {output} is --data test.csv, which this command reads: name another file", err)
        _, err = self.evaluate("--data", "test.csv", "--json", "again.csv", status=2)
        self.assertIn("--json again.csv is --data test.csv, which this command reads", err)
        (self.folder / "days").mkdir()
        (self.folder / "days/1.csv").write_bytes(before)
        for output in ("days/1.csv", "days/scores.csv"):
            _, err = self.score(data="days", output=output, status=2)
            self.assertIn(f"--output {output} is in --data days, a folder that this command reads: name a file elsewhere", err)
        self.assertEqual((self.folder / "days/1.csv").read_bytes(), before)
        self.assertEqual((self.folder / "test.csv").read_bytes(), before)
        _, err = self.evaluate("--data", "test.csv", "--group-by", "C3", status=2)
        self.assertIn("--group-by C3: test.csv has no such table; it has C1, C2", err)
        _, err = self.evaluate("--data", "test.csv", "--metric-at-k", "5", status=2)
        self.assertIn("--metric-at-k 5 has no effect without --group-by COLUMN", err)
        self.score("--id-policy", "modulo", data="ids.csv")
        self.assertEqual(len((self.folder / "scores.csv").read_text().splitlines()), 3)

    def test_an_old_output_outlives_a_run_that_fails(self):
        (self.folder / "scores.csv").write_text("old\n")
        (self.folder / "ids.csv").write_text("label,I1,C1,C2\n1,2,3,4\n1,2,33,4\n")
        self.score(data="ids.csv", status=2)
        self.assertEqual((self.folder / "scores.csv").read_text(), "old\n")

    def test_checkpoints_of_language_models_are_named(self):
        self.pretrain("--train-iters", 1, "--save", "gpt")
        _, err = self.trifold("score", "--load", "gpt", "--data", "test.csv", "--output", "-", status=2)
        self.assertIn("is a checkpoint of a language model, not of a recommender: trifold evaluate --data-path", err)
        _, err = self.trifold("evaluate", "--load", "run", "--data-path", "test.csv", "--split", "1,0,0", "--part", "train", status=2)
        self.assertIn("trifold evaluate --data", err)


if __name__ == "__main__":
    unittest.main()
