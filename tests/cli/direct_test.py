"""Samples that `recommend`, `score` and `evaluate` take as they are, preprocessed as the model's data were: the same as with `preprocess` before."""

import gzip
import json
import os
import random
import unittest

from program import ProgramTest

COLUMNS = ("--label", "y>0", "--dense", "age", "--sparse", "user,item", "--bag", "tags:|", "--threads", 2)
MODEL = ("--embedding-dim", 4, "--bottom-mlp", "6-4", "--top-mlp", "6-1", "--global-batch-size", 50, "--lr", 0.1, "--threads-per-rank", 1,
         "--embedding-optimizer", "rowwise-adagrad", "--sample-order", "stored")
HEADER = "y,age,user,item,tags\n"
IDS = {"dictionary": (), "hash": ("--ids", "hash", "--max-ind-range", 40), "keys": ("--ids", "keys"), "logmin": ("--dense-transform", "logmin"),
       "cut": ("--max-bag", 1)}


def samples(seed, count=300, first=0):
    draw = random.Random(seed)
    for _ in range(count):
        user, item = first + draw.randrange(30), draw.randrange(20)
        tags = "|".join(f"t{draw.randrange(9)}" for _ in range(draw.randrange(4)))
        yield [str(int(draw.random() < 0.2 + 0.6 * ((user + item) % 3 == 0))), str(draw.randrange(18, 80)), f"u{user}" if user % 7 else "", f"i{item}", tags]


class Direct(ProgramTest):
    def setUp(self):
        super().setUp()
        self.one, self.two = list(samples(1)), list(samples(2, first=8))
        self.write("one.csv", self.one)
        self.write("two.csv", self.two)
        (self.folder / "tmp").mkdir()
        os.environ["TMPDIR"] = str(self.folder / "tmp")
        self.addCleanup(os.environ.pop, "TMPDIR")

    def write(self, name, rows, header=HEADER):
        (self.folder / name).write_text(header + "".join(",".join(row) + "\n" for row in rows))

    def preprocess(self, source, target, *options):
        return self.trifold("preprocess", "--input", source, "--output", target, *options)

    def recommend(self, data, *options, **more):
        return self.trifold("recommend", "--train-data", data, *MODEL, *options, **more)

    def score(self, run, data, *options, **more):
        return self.trifold("score", "--load", run, "--data", data, "--output", "-", "--threads-per-rank", 1, *options, **more)[0]

    def trained(self, kind):
        """A model of day one; and day two, preprocessed for it."""
        options = (*COLUMNS, *IDS[kind])
        self.preprocess("one.csv", f"{kind}1", *options)
        self.preprocess("two.csv", f"{kind}2", *(options if kind in ("hash", "keys") else ("--dictionaries-of", f"{kind}1")),
                        *(IDS[kind] if kind in ("logmin", "cut") else ()))
        rows = ("--table-rows", 40) if kind == "keys" else ()
        self.recommend(f"{kind}1", *rows, "--save", f"{kind}-run")
        return rows

    def clean(self):
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_every_kind_of_ids(self):
        for kind in IDS:
            rows = self.trained(kind)
            expected = self.score(f"{kind}-run", f"{kind}2")
            self.assertEqual(len(expected.splitlines()), 301)
            for options in ((), ("--ranks", 2), ("--dictionaries-of", f"{kind}1")):
                self.assertEqual(self.score(f"{kind}-run", "two.csv", *options), expected, kind)
            # Without labels, or with those columns alone that the model needs.
            self.write("unlabeled.csv", [row[1:] for row in self.two], HEADER[2:])
            bare = ["sample,probability"] + [",".join(line.split(",")[::2]) for line in expected.splitlines()[1:]]
            self.assertEqual(self.score(f"{kind}-run", "unlabeled.csv").splitlines(), bare, kind)
            reports = []
            for data in (f"{kind}2", "two.csv"):
                self.trifold("evaluate", "--load", f"{kind}-run", "--data", data, "--group-by", "item", "--json", "e.json", "--threads-per-rank", 1)
                reports.append(json.loads((self.folder / "e.json").read_text()))
                for key in list(reports[-1]):
                    if "second" in key or key == "data":
                        del reports[-1][key]
            self.assertEqual(*reports)
            # Training on it, and evaluating a run with it.
            for name, data in (("folder", (f"{kind}2",)), ("text", ("two.csv", "--dictionaries-of", f"{kind}1"))):
                self.recommend(*data, *rows, "--finetune", "--load", f"{kind}-run", "--save", f"{kind}-{name}")
                self.recommend(f"{kind}1", *rows, "--valid-data", data[0], "--log-json", f"{name}.jsonl")
            out, _ = self.trifold("inspect", f"{kind}-folder", "--diff", f"{kind}-text")
            self.assertRegex(out, r"all \d+ tensors are bitwise equal", kind)
            aucs = [[line["valid_auc"] for line in self.log(f"{name}.jsonl") if "valid_auc" in line] for name in ("folder", "text")]
            self.assertEqual(*aucs)
            self.assertEqual(self.score(f"{kind}-text", "two.csv"), self.score(f"{kind}-folder", f"{kind}2"))
            self.clean()

    def test_files_folders_and_bad_lines(self):
        self.trained("dictionary")
        expected = self.score("dictionary-run", "dictionary2")
        (self.folder / "packed.csv.gz").write_bytes(gzip.compress((self.folder / "two.csv").read_bytes()))
        (self.folder / "parts").mkdir()
        self.write("parts/a.csv", self.two[:100])
        self.write("parts/b.csv", self.two[100:])
        self.write("two.test", self.two)  # a name that says nothing
        for data in ("packed.csv.gz", "parts", "two.test"):
            self.assertEqual(self.score("dictionary-run", data), expected)
        self.write("bad.csv", [*self.two[:1], ["1", "old", "u1", "i1", ""], *self.two[1:]])
        out, stderr = self.trifold("score", "--load", "dictionary-run", "--data", "bad.csv", "--output", "-", "--threads-per-rank", 1)
        rows = [line.split(",", 1) for line in expected.splitlines()[1:]]
        numbered = [f"0,{rows[0][1]}", "1,,", *(f"{int(number) + 1},{rest}" for number, rest in rows[1:])]
        self.assertEqual(out.splitlines()[1:], numbered)  # the bad row keeps its number
        self.assertIn("bad.csv:3: ", stderr)
        # Two runs, one stopped: the data are the same to the second one.
        given = ("--dictionaries-of", "dictionary1", "--ranks", 2)
        self.recommend("two.csv", *given, "--save", "whole")
        self.recommend("two.csv", *given, "--save", "part", "--exit-interval", 2)
        self.recommend("two.csv", *given, "--load", "part", "--save", "part")
        self.assertIn("tensors are bitwise equal", self.trifold("inspect", "whole", "--diff", "part")[0])
        self.assertEqual(self.score("part", "two.csv"), self.score("part", "dictionary2"))
        self.clean()

    def test_criteos_lines_and_several_labels(self):
        draw = random.Random(5)
        lines = ["\t".join([str(draw.randrange(2)), *(str(draw.randrange(9)) for _ in range(13)), *(f"{draw.randrange(30):x}" for _ in range(26))]) for _ in range(200)]
        (self.folder / "train.txt").write_text("\n".join(lines) + "\n")
        (self.folder / "test.txt").write_text("\n".join(line.split("\t", 1)[1] for line in lines) + "\n")
        self.preprocess("train.txt", "criteo")
        self.recommend("criteo", "--save", "criteo-run")
        expected = [",".join(line.split(",")[::2]) for line in self.score("criteo-run", "criteo").splitlines()]
        self.assertEqual(self.score("criteo-run", "test.txt").splitlines(), expected)
        self.write("labels.csv", [[str(i % 2), *row] for i, row in enumerate(self.one)], "like," + HEADER)
        self.write("plain.csv", [row[1:] for row in self.one], HEADER[2:])
        self.preprocess("labels.csv", "labels", "--label", "like,y>0", *COLUMNS[2:])
        self.recommend("labels", "--save", "labels-run")
        whole = [line.split(",") for line in self.score("labels-run", "labels").splitlines()]
        self.assertEqual([line.split(",") for line in self.score("labels-run", "plain.csv").splitlines()], [[line[0], *line[3:]] for line in whole])
        self.clean()

    def test_what_does_not_fit_is_refused(self):
        self.trained("dictionary")
        self.trained("hash")
        self.write("narrow.csv", [row[:3] for row in self.two], "y,age,user\n")
        self.write("unlabeled.csv", [row[1:] for row in self.two], HEADER[2:])
        for data, options, words in (
                ("narrow.csv", (), "names the column 'item'"),
                ("nowhere.csv", (), "nowhere.csv"),
                ("two.csv", ("--dictionaries-of", "nowhere"), "nowhere is not a folder of clicks: it has no nowhere/clicks.json"),
                ("two.csv", ("--dictionaries-of", "hash1"), "was not trained on clicks like those of two.csv"),
                ("dictionary2", ("--dictionaries-of", "dictionary1"), "--dictionaries-of dictionary1 has no effect on dictionary2"),
                ("two.csv", ("--id-policy", "modulo"), "--id-policy modulo has no effect")):
            _, stderr = self.trifold("score", "--load", "dictionary-run", "--data", data, "--output", "-", *options, status=2)
            self.assertIn(words, stderr)
        _, stderr = self.trifold("evaluate", "--load", "dictionary-run", "--data", "unlabeled.csv", status=2)
        self.assertIn("unlabeled.csv", stderr)
        for options, words in ((("unlabeled.csv", "--dictionaries-of", "dictionary1"), "names the column 'y'"),
                               (("dictionary1", "--dictionaries-of", "dictionary1"), "--dictionaries-of dictionary1 has no effect"),
                               (("two.csv", "--dictionaries-of", "dictionary1", "--table-rows", 7), "but --table-rows is 7")):
            _, stderr = self.recommend(*options, status=2)
            self.assertIn(words, stderr)
        # The folder of the training data is gone: the message says what would be right.
        (self.folder / "dictionary1").rename(self.folder / "moved")
        _, stderr = self.trifold("score", "--load", "dictionary-run", "--data", "two.csv", "--output", "-", status=2)
        self.assertIn("--dictionaries-of", stderr)
        self.assertEqual(self.score("dictionary-run", "two.csv", "--dictionaries-of", "moved"), self.score("dictionary-run", "dictionary2"))
        os.environ["TMPDIR"] = str(self.folder / "not-there")
        _, stderr = self.trifold("score", "--load", "dictionary-run", "--data", "two.csv", "--dictionaries-of", "moved", "--output", "-", status=2)
        self.assertIn("TMPDIR", stderr)
        self.clean()


if __name__ == "__main__":
    unittest.main()
