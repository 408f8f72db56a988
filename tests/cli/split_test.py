"""One input becomes data sets for training, validation and test: by shares and by time, with dictionaries of the training part alone."""

import json
import random
import unittest

from program import ProgramTest

COLUMNS = ("--label", "y", "--sparse", "user")


class Split(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(7)
        self.rows = [(draw.randrange(2), f"u{draw.randrange(40)}", draw.randrange(90)) for _ in range(1000)]
        self.write("all.csv", self.rows)

    def write(self, name, rows, time=str):
        (self.folder / name).write_text("y,user,day\n" + "".join(f"{y},{user},{time(day)}\n" for y, user, day in rows))

    def preprocess(self, source, target, *more, **options):
        return self.trifold("preprocess", "--input", source, "--output", target, *COLUMNS, *more, **options)

    def content(self, folder):
        return {path.name: path.read_bytes() for path in (self.folder / folder).iterdir() if path.suffix != ".json"}

    def samples(self, folder):
        return json.loads((self.folder / folder / "clicks.json").read_text())["samples"]

    def test_by_time(self):
        order = sorted(day for _, _, day in self.rows)
        first, second = order[800], order[900]
        for name, time in (("numbers", str), ("dates", lambda day: f"2024-{1 + day // 28:02}-{1 + day % 28:02}"),
                           ("times", lambda day: f"2024-01-01T{day // 4:02}:{day % 4 * 15:02}:00.5+02:00")):
            self.write(name + ".csv", self.rows, time)
            out, err = self.preprocess(name + ".csv", name, "--split", "80,10,10", "--split-by", "day")
            self.assertEqual(out.split(), [f"{name}/train", f"{name}/valid", f"{name}/test"])
            parts = {"train": [row for row in self.rows if row[2] < first], "valid": [row for row in self.rows if first <= row[2] < second],
                     "test": [row for row in self.rows if row[2] >= second]}
            for part, rows in parts.items():
                self.write(f"{part}.csv", rows)
                like = () if part == "train" else ("--dictionaries-of", f"{name}-train")
                self.preprocess(f"{part}.csv", f"{name}-{part}", *like)
                self.assertEqual(self.content(f"{name}/{part}"), self.content(f"{name}-{part}"), (name, part))
            self.assertIn("train: rows before ", err)
        self.assertIn("valid: rows from 2024-01-01 ", err)

    def test_by_shares(self):
        self.preprocess("all.csv", "one", "--split", "80,10,10")
        self.preprocess("all.csv", "two", "--split", "8,1,1", "--threads", 1)
        self.preprocess("all.csv", "other", "--split", "80,20", "--seed", 5)
        parts = ("train", "valid", "test")
        counts = [self.samples(f"one/{part}") for part in parts]
        self.assertEqual(sum(counts), 1000)
        for count, wanted in zip(counts, (800, 100, 100)):
            self.assertLess(abs(count - wanted), 50)
        for part in parts:
            self.assertEqual(self.content(f"one/{part}"), self.content(f"two/{part}"))
        self.assertEqual(sorted(path.name for path in (self.folder / "other").iterdir()), ["train", "valid"])
        self.assertNotEqual(self.content("other/train"), self.content("one/train"))

    def test_ids_need_no_dictionary(self):
        for name, options in (("hash", ("--ids", "hash", "--max-ind-range", 100)), ("keys", ("--ids", "keys"))):
            self.preprocess("all.csv", name, "--split", "70,30", "--split-by", "day", *options)
            self.preprocess("all.csv", name + "-all", *options)
            whole, parts = self.content(name + "-all"), [self.content(f"{name}/{part}") for part in ("train", "valid")]
            width = len(whole["user.ids"]) // 1000
            rows = [whole["user.ids"][i * width:(i + 1) * width] for i in range(1000)]
            self.assertEqual(sorted(rows), sorted(part["user.ids"][i:i + width] for part in parts for i in range(0, len(part["user.ids"]), width)))

    def test_a_run_uses_the_parts(self):
        self.preprocess("all.csv", "parts", "--split", "80,10,10", "--split-by", "day", "--drop-negatives", 0.5)
        self.trifold("recommend", "--train-data", "parts/train", "--valid-data", "parts/valid", "--embedding-dim", 4, "--top-mlp", "4-1", "--interaction", "cat",
                     "--global-batch-size", 50, "--threads-per-rank", 1, "--save", "run")
        self.trifold("evaluate", "--load", "run", "--data", "parts/test", "--threads-per-rank", 1)
        # Negatives are dropped from the training part alone.
        self.preprocess("all.csv", "whole", "--split", "80,10,10", "--split-by", "day")
        self.assertEqual([self.samples(f"parts/{part}") < self.samples(f"whole/{part}") for part in ("train", "valid", "test")], [True, False, False])

    def test_mistakes_leave_nothing(self):
        self.write("same.csv", [(y, user, 5) for y, user, _ in self.rows])
        (self.folder / "there").mkdir()
        for source, target, options, words in (
                ("all.csv", "out", ("--split", "80"), "--split 80 names 1 part: give the shares of training and validation"),
                ("all.csv", "out", ("--split-by", "day"), "--split-by day has no effect without --split"),
                ("all.csv", "out", ("--split", "80,20", "--split-by", "time"), "--split-by names the column 'time'"),
                ("same.csv", "out", ("--split", "80,20", "--split-by", "day"), "--split-by day: too many of the 1000 rows have the same time"),
                ("all.csv", "out", ("--split", "80,20", "--split-by", "user"), "column user: 'u"),
                ("all.csv", "there", ("--split", "80,20"), "there already exists")):
            _, err = self.preprocess(source, target, *options, status=2)
            self.assertIn(words, err)
        self.assertNotIn("out", self.files())

    def test_a_part_without_rows(self):
        _, err = self.preprocess("all.csv", "parts", "--split", "1e6,1", status=2)
        self.assertIn("all.csv: a part gets none of the 1000 rows: give other shares with --split", err)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["all.csv"])


if __name__ == "__main__":
    unittest.main()
