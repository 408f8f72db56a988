"""Rows without a label: all of them are scored, in the order and by the numbers of the input, with columns that are passed through; training
and evaluation leave them out, or take them as negative."""

import csv
import json
import random
import unittest
import zipfile

from program import ProgramTest

ONE = ("--threads-per-rank", 1)
MODEL = ("--embedding-dim", 4, "--top-mlp", "4-1", "--interaction", "cat", "--optimizer", "adagrad", "--global-batch-size", 16, *ONE)
COLUMNS = ("--label", "click", "--sparse", "user", "--threads", 2)


class Unlabelled(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("train.csv", [("click", "user")] + [(i % 2, f"u{i % 7}") for i in range(60)])
        self.trifold("preprocess", "--input", "train.csv", "--output", "train", *COLUMNS)
        self.trifold("recommend", "--train-data", "train", *MODEL, "--save", "run")

    def write(self, name, rows, separator=","):
        (self.folder / name).write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))

    def score(self, data, *arguments, output="scores.csv", **options):
        _, err = self.trifold("score", "--load", "run", "--data", data, "--output", output, *ONE, *arguments, **options)
        return err

    def rows(self, name="scores.csv"):
        with open(self.folder / name, encoding="utf-8") as file:
            return list(csv.DictReader(file))


class Scores(Unlabelled):
    def expected(self):
        """The probability of each user."""
        self.write("users.csv", [("user",)] + [(f"u{i}",) for i in range(7)])
        self.score("users.csv", output="users.out.csv")
        return {f"u{i}": row["probability"] for i, row in enumerate(self.rows("users.out.csv"))}

    def test_every_row_has_a_prediction_under_its_number(self):
        users = self.expected()
        labels = ["1", "", "0", "NA", "later", ""]
        self.write("new.csv", [("click", "user")] + [(label, f"u{i}") for i, label in enumerate(labels)])
        for ranks in (1, 2):
            err = self.score("new.csv", "--ranks", ranks)
            self.assertIn("6 predictions by", err)
            self.assertNotIn("malformed", err)
            self.assertEqual([(row["sample"], row["label"]) for row in self.rows()], list(zip("012345", ("1", "", "0", "", "", ""))))
            self.assertEqual([row["probability"] for row in self.rows()], [users[f"u{i}"] for i in range(6)])
        self.score("new.csv", output="scores.jsonl")
        self.assertEqual([line["label"] for line in self.log("scores.jsonl")], [1, None, 0, None, None, None])

    def test_columns_are_passed_through_in_every_format(self):
        names = ["a, b", 'say "no"', "", "Käse", "x"]
        with open(self.folder / "new.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("order", "click", "user")] + [(name, "", f"u{i}") for i, name in enumerate(names)])
        self.score("new.csv", "--keep", "order,user")
        self.assertEqual([(row["order"], row["user"]) for row in self.rows()], [(name, f"u{i}") for i, name in enumerate(names)])
        self.assertEqual(list(self.rows()[0]), ["sample", "order", "user", "label", "probability"])
        self.score("new.csv", "--keep", "order", output="scores.jsonl")
        self.assertEqual([line["order"] for line in self.log("scores.jsonl")], [name or None for name in names])
        # A data set has the columns of preprocess --keep, and samples without a label.
        self.trifold("preprocess", "--input", "new.csv", "--output", "new", "--dictionaries-of", "train", "--unlabelled", "keep", "--keep", "user,order")
        self.score("new", "--keep", "order", output="set.csv")
        self.assertEqual([row["order"] for row in self.rows("set.csv")], names)
        self.assertEqual([row["probability"] for row in self.rows("set.csv")], [row["probability"] for row in self.rows()])
        self.assertIn("--keep names the column 'order', which `trifold preprocess --keep` has to keep", self.score("train", "--keep", "order", status=2))
        self.assertIn("--keep names the column 'day'", self.score("new.csv", "--keep", "day", status=2))

    def test_malformed_rows_keep_their_numbers(self):
        users = self.expected()
        rows = [(i % 2, f"u{i % 7}") for i in range(300)]
        rows[0] = rows[150] = rows[299] = (1, "u1", "more")
        self.write("new.csv", [("click", "user"), *rows])
        err = self.score("new.csv", "--keep", "user")
        self.assertIn("297 predictions, and 3 rows without one, by", err)
        for i, row in enumerate(self.rows()):
            there = i not in (0, 150, 299)
            self.assertEqual(row, {"sample": str(i), "user": f"u{i % 7}" if there else "", "label": str(i % 2) if there else "",
                                   "probability": users[f"u{i % 7}"] if there else ""})

    def test_text_that_is_read_as_it_is(self):
        self.write("numbers.csv", [("label", "C1", "note")] + [(i % 2, i % 5, "") for i in range(60)])
        self.trifold("recommend", "--train-data", "numbers.csv", "--table-rows", 5, "--dense-features", 0, *MODEL, "--save", "numbers")
        self.write("new.csv", [("label", "C1", "note")] + [("1" if i == 0 else "", i % 5, f"n{i}") for i in range(5)])
        self.trifold("score", "--load", "numbers", "--data", "new.csv", "--output", "scores.csv", "--keep", "note", *ONE)
        self.assertEqual([(row["sample"], row["note"], row["label"]) for row in self.rows()], [(str(i), f"n{i}", "1" if i == 0 else "") for i in range(5)])
        _, err = self.trifold("evaluate", "--load", "numbers", "--data", "new.csv", *ONE)
        self.assertIn("4 of 5 rows have no label and are left out", err)

    def test_arrays_need_no_labels(self):
        draw = random.Random(2)
        ids = [draw.randrange(1, 5) for _ in range(60)]

        def npz(name, labels):
            with zipfile.ZipFile(self.folder / name, "w") as file:
                arrays = {"X_int": ("<f4", (60, 0), b""), "X_cat": ("<i4", (60, 1), b"".join(i.to_bytes(4, "little") for i in ids))}
                if labels:
                    arrays["y"] = ("<i4", (60,), b"".join((i % 2).to_bytes(4, "little") for i in ids))
                for key, (kind, shape, data) in arrays.items():
                    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
                    file.writestr(key + ".npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)
        npz("train.npz", True)
        npz("new.npz", False)
        self.trifold("preprocess", "--input", "train.npz", "--output", "arrays", "--threads", 1)
        self.trifold("recommend", "--train-data", "arrays", *MODEL, "--save", "arrays-run")
        for data in ("train.npz", "new.npz"):
            self.trifold("score", "--load", "arrays-run", "--data", data, "--output", data + ".csv", *ONE)
        self.assertEqual([row["probability"] for row in self.rows("new.npz.csv")], [row["probability"] for row in self.rows("train.npz.csv")])
        self.assertNotIn("label", self.rows("new.npz.csv")[0])
        _, err = self.trifold("score", "--load", "arrays-run", "--data", "new.npz", "--output", "x.csv", "--keep", "y", *ONE, status=2)
        self.assertIn("its columns have no names, so --keep has no effect", err)


class OtherCommands(Unlabelled):
    def manifest(self, name):
        return json.loads((self.folder / name / "clicks.json").read_text())

    def mixed(self):
        """60 rows, a third of them without a label."""
        self.write("mixed.csv", [("click", "user")] + [("" if i % 3 == 0 else i % 2, f"u{i % 7}") for i in range(60)])
        self.write("labelled.csv", [("click", "user")] + [(i % 2, f"u{i % 7}") for i in range(60) if i % 3])
        self.write("negative.csv", [("click", "user")] + [(0 if i % 3 == 0 else i % 2, f"u{i % 7}") for i in range(60)])

    def test_preprocess_does_as_it_is_told(self):
        self.mixed()

        def preprocess(source, target, *options, status=0):
            return self.trifold("preprocess", "--input", source, "--output", target, *COLUMNS, *options, status=status)[1]
        self.assertIn("malformed", preprocess("mixed.csv", "x", status=2))
        self.assertIn("20 of 60 rows have no label and are left out", preprocess("mixed.csv", "skip", "--unlabelled", "skip"))
        self.assertIn("20 of 60 rows have no label and count as negative", preprocess("mixed.csv", "zero", "--unlabelled", "negative"))
        self.assertIn("20 of 60 samples have no label", preprocess("mixed.csv", "keep", "--unlabelled", "keep"))
        preprocess("labelled.csv", "labelled")
        preprocess("negative.csv", "negative")
        for made, wanted in (("skip", "labelled"), ("zero", "negative")):
            for name in ("labels.bin", "user.ids", "user.dict"):
                self.assertEqual((self.folder / made / name).read_bytes(), (self.folder / wanted / name).read_bytes(), (made, name))
        manifest = self.manifest("keep")
        self.assertEqual((manifest["samples"], manifest["unlabelled"], manifest["version"]), (60, 20, 8))
        self.assertEqual([label == 255 for label in (self.folder / "keep" / "labels.bin").read_bytes()], [i % 3 == 0 for i in range(60)])

    def test_training_and_evaluation_leave_them_out(self):
        self.mixed()
        for name, source, more in (("keep", "mixed.csv", ("--unlabelled", "keep")), ("labelled", "labelled.csv", ())):
            self.trifold("preprocess", "--input", source, "--output", name, "--dictionaries-of", "train", *more)
            _, err = self.trifold("recommend", "--train-data", name, *MODEL, "--save", name + "-run", "--log-json", name + ".jsonl", "--log-interval", 1)
            self.assertEqual("20 of 60 samples of keep have no label and are left out" in err, name == "keep")
        self.assertEqual(self.losses("keep.jsonl"), self.losses("labelled.jsonl"))
        results = {}
        for data, more in (("keep", ()), ("mixed.csv", ()), ("labelled.csv", ()), ("negative.csv", ()), ("mixed.csv", ("--unlabelled", "negative")),
                           ("keep", ("--unlabelled", "negative"))):
            self.trifold("evaluate", "--load", "run", "--data", data, "--json", "e.json", "--ranks", 2, *more, *ONE)
            found = json.loads((self.folder / "e.json").read_text())
            results[data, *more] = [found[key] for key in ("auc", "log_loss", "samples")]
        self.assertEqual(results["keep",], results["labelled.csv",])
        self.assertEqual(results["mixed.csv",], results["labelled.csv",])
        for data in ("mixed.csv", "keep"):
            self.assertEqual(results[data, "--unlabelled", "negative"], results["negative.csv",])
        _, err = self.trifold("evaluate", "--load", "run", "--data", "mixed.csv", "--unlabelled", "malformed", *ONE, status=2)
        self.assertIn("malformed", err)


if __name__ == "__main__":
    unittest.main()
