"""Recommenders of users' histories: columns that share a table, and bags that are pooled by attention to a candidate."""

import json
import random
import unittest

from preprocessed import PreprocessTest

COLUMNS = ("--label", "y", "--dense", "age", "--sparse", "user,item", "--bag", "history:|", "--share-table", "history:item", "--threads", 2)
MODEL = ("--embedding-dim", 4, "--bottom-mlp", "6-4", "--top-mlp", "8-1", "--global-batch-size", 50, "--threads-per-rank", 1, "--lr", 0.1,
         "--optimizer", "adagrad", "--embedding-optimizer", "adagrad", "--lr-decay-style", "constant", "--interaction", "cat")
DIN = ("--attention", "history:item", "--attention-mlp", "6-1")
SAMPLES = 1000


def clicks(seed, items=12):
    """A user clicks if the history has an item of the candidate's kind."""
    draw = random.Random(seed)
    for _ in range(SAMPLES):
        item = draw.randrange(items)
        history = [draw.randrange(items) for _ in range(draw.randrange(5))]
        likes = sum(seen % 4 == item % 4 for seen in history)
        yield [int(draw.random() < (0.9 if likes else 0.1)), draw.randrange(18, 80), f"u{draw.randrange(30)}", f"i{item}",
               "|".join(f"i{seen}" for seen in history)]


class History(PreprocessTest):
    def table(self, name, rows):
        self.write(name, "y,age,user,item,history\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))

    def clicks(self, name, seed=1, items=12, more=()):
        rows = list(clicks(seed, items))
        self.table(f"{name}.csv", rows)
        self.preprocess(f"{name}.csv", name, *more, columns=COLUMNS)
        return rows

    def auc(self, *arguments):
        out, _ = self.trifold("evaluate", *arguments, "--threads-per-rank", 1)
        return float(out.split()[1])

    def test_one_dictionary(self):
        rows = self.clicks("clicks")
        manifest, bags = self.bags("clicks")
        self.assertEqual(manifest["version"], 7)
        tables = {table["name"]: table for table in manifest["tables"]}
        self.assertEqual(tables["history"]["shares"], "item")
        self.assertEqual(tables["history"]["rows"], tables["item"]["rows"])
        self.assertFalse((self.folder / "clicks" / "history.dict").exists())
        ids = {}
        for row, item, history in zip(rows, bags["item"], bags["history"]):
            for text, number in zip([row[3], *filter(None, row[4].split("|"))], [*item, *history]):
                self.assertEqual(ids.setdefault(text, number), number)
        self.assertEqual(sorted(ids.values()), list(range(2, 14)))

    def test_values_of_one_column_alone(self):
        """One is rare among items and frequent in histories, one is only in histories: both have one id."""
        self.table("t.csv", [[1, 20, "u", "a", "b|c"], [0, 20, "u", "b", "b|c"], [0, 20, "u", "a", "d"]])
        for memory in (1, 0.0001):
            self.preprocess("t.csv", f"t{memory}", "--frequency-threshold", 2, "--dictionary-memory", memory, columns=COLUMNS)
            manifest, bags = self.bags(f"t{memory}")
            self.assertEqual(bags["item"], [[2], [3], [2]])
            self.assertEqual(bags["history"], [[3, 4], [3, 4], [1]])
            self.assertEqual([table["rows"] for table in manifest["tables"]], [3, 5, 5])

    def test_training_and_predictions(self):
        self.clicks("clicks")
        self.clicks("valid", 2, more=("--dictionaries-of", "clicks"))
        losses = []
        for ranks, placement in ((1, "auto"), (2, "row"), (3, "column"), (2, "replicated"), (4, "auto")):
            self.trifold("recommend", "--train-data", "clicks", *MODEL, *DIN, "--train-epochs", 12, "--ranks", ranks, "--placement", placement, "--save",
                         f"run{ranks}{placement}", "--log-json", "log.jsonl", "--log-interval", 1)
            losses.append(self.losses())
            (self.folder / "log.jsonl").unlink()
        for other in losses[1:]:
            self.assertLess(max(abs(a - b) for a, b in zip(losses[0], other)), 2e-4)
        with_attention = self.auc("--load", "run1auto", "--data", "valid", "--ranks", 2)
        self.assertGreater(with_attention, 0.8)
        self.trifold("recommend", "--train-data", "clicks", *MODEL, "--train-epochs", 12, "--save", "summed")
        self.assertGreater(with_attention, self.auc("--load", "summed", "--data", "valid") + 0.02)
        for data in ("valid", "valid.csv"):
            self.trifold("score", "--load", "run1auto", "--data", data, "--output", f"{data}-scores.csv", "--threads-per-rank", 1)
        self.assertEqual((self.folder / "valid-scores.csv").read_text(), (self.folder / "valid.csv-scores.csv").read_text())

    def test_options_come_from_the_checkpoint(self):
        self.clicks("clicks")
        run = ("recommend", "--train-data", "clicks", *MODEL, "--save", "run")
        self.trifold(*run, *DIN, "--wide", "--pooling", "mean", "--train-iters", 10)
        self.trifold(*run, "--train-iters", 20, "--load", "run")
        self.trifold("recommend", "--train-data", "clicks", *MODEL, *DIN, "--wide", "--pooling", "mean", "--train-iters", 20, "--save", "once",
                     "--ranks", 2)
        scores = []
        for name in ("run", "once"):
            self.trifold("score", "--load", name, "--data", "clicks", "--output", f"{name}.csv", "--threads-per-rank", 1)
            scores.append([float(line.split(",")[2]) for line in (self.folder / f"{name}.csv").read_text().splitlines()[1:]])
        self.assertLess(max(abs(a - b) for a, b in zip(*scores)), 1e-5)
        _, err = self.trifold(*run, "--train-iters", 30, "--load", "run", "--attention", "history:user", status=2)
        self.assertIn("attention", err)

    def test_tomorrow(self):
        self.clicks("day1")
        self.clicks("day2", 2, 20, more=("--dictionaries-of", "day1", "--grow-dictionaries"))
        first, second = (self.bags(name)[0]["tables"] for name in ("day1", "day2"))
        self.assertEqual([table["rows"] for table in first[1:]], [14, 14])
        self.assertEqual([table["rows"] for table in second[1:]], [22, 22])
        run = (*MODEL, *DIN, "--train-iters", 10)
        self.trifold("recommend", "--train-data", "day1", *run, "--save", "run1")
        _, stderr = self.trifold("recommend", "--train-data", "day2", *run, "--finetune", "--load", "run1", "--save", "run2", "--ranks", 2)
        self.assertIn("table item: 14 rows of the checkpoint and 8 new ones", stderr)
        self.trifold("evaluate", "--load", "run2", "--data", "day1", "--threads-per-rank", 1)

    def test_plan(self):
        self.clicks("clicks")
        out, _ = self.trifold("plan", "--train-data", "clicks", "--table-rows", "data", *MODEL, *DIN, "--ranks", 2, "--measure-steps", 2)
        self.assertIn("item", out)
        self.assertNotIn("history", out[:out.index("\nrehearse ")])  # it has no table

    def test_synthetic_clicks(self):
        synthetic = ("--table-rows", "300-200-200", "--table-max-ids", "1-1-10", "--dense-features", 3, *MODEL, "--attention", "C3:C2")
        log = ("--train-iters", 3, "--log-json", "log.jsonl", "--log-interval", 1)
        self.trifold("recommend", *synthetic, *log, "--ranks", 2)
        self.assertEqual(len(self.losses()), 3)

    def test_mistakes(self):
        self.clicks("clicks")
        for arguments, words in ((["--attention", "history:item,history:user"], "has two pairs for the column history"),
                                 (["--attention", "history"], "is not a list of pairs of columns, such as history:item"),
                                 (["--attention", "item:item"], "pairs the column item with itself"),
                                 (["--attention", "story:item"], "the data have no table story; they have user, item, history"),
                                 (["--attention", "history:item,item:user"], "cannot itself be pooled by attention"),
                                 (["--attention", "history:item", "--attention-mlp", "5-2"], "does not end with 1, the weight of a vector"),
                                 (["--attention-mlp", "5-1"], "--attention-mlp 5-1 has no effect without --attention")):
            _, err = self.trifold("recommend", "--train-data", "clicks", *MODEL, *arguments, "--train-iters", 1, status=2)
            self.assertIn(words, err)
        for share, more, words in (("history:items", (), "--share-table: items is not a column of --sparse or --bag: name one of "),
                                   ("stories:item", (), "--share-table: stories is not a column of --sparse or --bag: name one of "),
                                   ("history:item,item:user", (), "uses the table of user, so no column can share its own"),
                                   ("history:item", ("--ids", "keys"), "with --ids keys each column has its own table")):
            columns = [share if word == "history:item" else word for word in COLUMNS]
            _, err = self.preprocess("clicks.csv", "other", *more, columns=columns, status=2)
            self.assertIn(words, err)
        manifest = self.folder / "clicks" / "clicks.json"
        stored = json.loads(manifest.read_text())
        stored["tables"][2]["shares"] = "user"
        manifest.write_text(json.dumps(stored))
        _, err = self.trifold("recommend", "--train-data", "clicks", *MODEL, "--train-iters", 1, status=2)
        self.assertIn('clicks/clicks.json: table history "shares" user, which must be a table', err)


if __name__ == "__main__":
    unittest.main()
