"""Click data from the command line: properties of files, additional options, and combinations that are rejected."""

import json
import random
import unittest

from program import ProgramTest

MODEL = ("--embedding-dim 4 --bottom-mlp 8-4 --top-mlp 8-1 --global-batch-size 40 --lr 0.3 --threads-per-rank 1 "
         "--train-epochs 2").split()


class Clicks(ProgramTest):
    def write(self, name, text):
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def clicks(self, name, ids, lines=200, seed=1, header="label,I1,C1,C2"):
        """Samples whose label follows from the id in C1, which is one of `ids`."""
        draw = random.Random(seed)
        rows = [draw.choice(range(len(ids))) for _ in range(lines)]
        self.write(name, header + "\n" + "".join(f"{row % 2},{draw.randrange(9)},{ids[row]},{draw.randrange(5)}\n" for row in rows))

    def recommend(self, *arguments, without=(), **options):
        """Trains a small model; an option in `arguments` takes the place of its, one in `without` is left out."""
        kept = [word for name, value in zip(MODEL[::2], MODEL[1::2]) if name not in (*arguments, *without)
                for word in (name, value)]
        return self.trifold("recommend", *kept, *arguments, **options)

    def preprocess(self, source, target, *arguments):
        self.trifold("preprocess", "--input", source, "--output", target, *arguments)

    def refused(self, *arguments, words, command=None):
        before = self.files()
        _, err = (command or self.recommend)(*arguments, status=2)
        for word in words:
            self.assertIn(word, err)
        self.assertEqual(self.files(), before)
        return err

    def test_clicks_to_evaluate_on_mean_the_same(self):
        self.clicks("train.csv", range(10, 20))
        self.clicks("valid.csv", range(14, 60), seed=2, lines=1000)
        self.preprocess("train.csv", "train")
        self.preprocess("valid.csv", "other")
        self.preprocess("valid.csv", "valid", "--dictionaries-of", "train")
        for placement in ("table", "row", "column", "replicated"):
            where = ("--placement", placement, "--ranks", 2)
            err = self.refused("--train-data", "train", "--valid-data", "other", *where,
                                words=["table C1: rows: 48 in other, 12 in train", "table C1: ids: dictionary",
                                       "--dictionaries-of train"])
            self.assertNotIn("table C2: rows", err)
            self.recommend("--train-data", "train", "--valid-data", "valid", *where)
        self.preprocess("train.csv", "again", "--dense-transform", "log3")
        self.refused("--train-data", "train", "--valid-data", "again", words=["dense transform: log3 in again, log1p in train"])
        # Another dictionary with as many rows.
        self.clicks("moved.csv", range(30, 40))
        self.preprocess("moved.csv", "moved")
        self.refused("--train-data", "train", "--valid-data", "moved", words=["table C1: ids: dictionary"])
        self.recommend("--train-data", "train", "--valid-data", "valid.csv")  # preprocessed as train was

    def test_a_checkpoint_goes_on_with_its_own_clicks(self):
        self.clicks("train.csv", range(10, 20))
        self.clicks("moved.csv", range(30, 40))
        self.clicks("more.csv", range(10, 25))
        for name in ("train", "moved", "more"):
            self.preprocess(f"{name}.csv", name)
        self.preprocess("train.csv", "log3", "--dense-transform", "log3")
        self.recommend("--train-data", "train", "--train-iters", 4, "--save", "d", without=["--train-epochs"])
        more = ("--train-iters", 8, "--load", "d")

        def go_on(*arguments, **options):
            return self.recommend(*more, *arguments, without=["--train-epochs"], **options)
        self.refused("--train-data", "moved", words=["step_0000000004", "table C1: ids: dictionary"], command=go_on)
        self.refused("--train-data", "more", words=["table C1: rows: 17 in more, 12 in"], command=go_on)
        self.refused("--train-data", "log3", words=["dense transform: log3 in log3, log1p in"], command=go_on)
        self.refused("--train-data", "train", "--valid-data", "moved", words=["moved is encoded differently"], command=go_on)
        go_on("--train-data", "train")

    def test_ids_of_csv_are_decimal(self):
        # Six residues modulo 64; taken as hexadecimal, those of more than 8 digits would not be read at all.
        self.clicks("a.csv", [26, 99, 123456789, 98765432109, 18446744073709551615, 7], lines=600)
        rows = ("--table-rows", 64, "--valid-samples", 100)
        _, err = self.recommend("--train-data", "a.csv", *rows, status=2)
        self.assertRegex(err, r"a\.csv: line \d+, column C1: id (99|123456789|98765432109|18446744073709551615) is outside")
        self.recommend("--train-data", "a.csv", *rows, "--id-policy", "modulo", "--log-json", "log.jsonl", "--train-epochs", 20,
                       "--optimizer", "adam", "--embedding-optimizer", "adam", "--lr", 0.02)
        self.assertEqual(self.log()[-1]["valid_samples"], 100)
        self.assertGreater(self.log()[-1]["valid_auc"], 0.99)
        self.clicks("h.csv", ["80e26c9b", "68fd1e64", "0000000a"])
        self.refused("--train-data", "h.csv", "--table-rows", 64, words=["h.csv: its ids look hexadecimal", "--data-format csv-hex"])
        self.recommend("--train-data", "h.csv", "--table-rows", 64, "--data-format", "csv-hex", "--id-policy", "modulo")

    def test_quoted_headers_are_saved(self):
        self.clicks("q.csv", range(10), header='"label","I1","C1","C2"')
        self.recommend("--train-data", "q.csv", "--table-rows", 20, "--save", "d")
        out, _ = self.trifold("inspect", "d")
        self.assertIn("embedding.C1.weight", out)

    def test_names_no_checkpoint_can_hold(self):
        self.clicks("a.csv", range(10))
        self.preprocess("a.csv", "c")
        manifest = json.loads((self.folder / "c" / "clicks.json").read_text())
        manifest["tables"][0]["name"] = "the \x1b[31mpage"
        (self.folder / "c" / "clicks.json").write_text(json.dumps(manifest))
        (self.folder / "c" / "C1.ids").rename(self.folder / "c" / manifest["tables"][0]["name"].replace("/", ""))
        err = self.refused("--train-data", "c", "--save", "d", words=["is not a valid name for a table: names in checkpoints"])
        self.assertNotIn("\x1b", err)

    def test_options_given_with_a_folder(self):
        self.clicks("a.csv", range(10, 20))
        self.preprocess("a.csv", "c", "--dense-transform", "log3")  # 10 ids, and 4 that are not 0, and 2 more rows each
        for option, value, word in (("--table-rows", 7, "table C1 has 12 rows, but --table-rows is 7"),
                                    ("--table-rows", "12-6-6", "has 2 tables, but --table-rows has 3 values"),
                                    ("--dense-transform", "log1p", "its dense transform is log3"),
                                    ("--id-policy", "modulo", "--id-policy modulo has no effect"),
                                    ("--dense-features", 13, "it has 1 dense feature, but --dense-features is 13"),
                                    ("--table-max-ids", 2, "leave out --table-max-ids")):
            self.refused("--train-data", "c", option, value, words=[word])
        self.recommend("--train-data", "c", "--table-rows", "12-6", "--dense-transform", "log3", "--id-policy", "error",
                       "--dense-features", 1)
        (self.folder / "rows.cfg").write_text("[data]\ntable-rows = 3-4-5\n")
        self.recommend("--config", "rows.cfg", "--train-data", "c", "--table-rows", "data")
        out, _ = self.trifold("plan", "--config", "rows.cfg", "--train-data", "c", "--table-rows", "data", *MODEL[:6])
        self.assertRegex(out, r"C1 +12 ")

    def test_formats_are_recognised(self):
        line = "\t".join(["1"] + ["1"] * 13 + ["3"] * 26) + "\n"
        self.write("day_0", line * 20 + line.replace("1", "0", 1) * 20)
        self.recommend("--train-data", "day_0", "--table-rows", 8)
        self.clicks("a.csv", range(10))
        self.preprocess("a.csv", "c")
        self.write("bom.csv", b"\xef\xbb\xbf" + (self.folder / "a.csv").read_bytes())
        self.recommend("--train-data", "bom.csv", "--table-rows", 20)
        self.refused("--train-data", "missing.x", words=["missing.x: there is no such file or folder"])
        self.refused("--train-data", "a.csv", words=["give --table-rows"])
        self.recommend("--train-data", "c", "--valid-data", "a.csv")  # preprocessed as c was
        self.refused("--valid-data", "c", words=["give --valid-samples"])

    def test_nothing_of_a_file_reaches_a_terminal_unescaped(self):
        for name, content, word in (("a.csv", b"\x1f\x8b\x08\x00\xff\x1b[31m,", "holds gzip data"),
                                    ("b.csv", "label,C1\n1,5\n".encode("utf-16"), "is UTF-16 text"),
                                    ("c.csv", b"label,C1\x1b[31m,C\xff\n", "names no column of ids"),
                                    ("d.tsv", b"\x1b[31m\xff\xe2\x80\xae\tx\n", "\\x1b[31m\\xff\\u{202E}"),
                                    ("e.csv", b"l\x1b[31mabel,C1\n1,5\n", "has no column of labels")):
            self.write(name, content)
            for command in ("recommend", "preprocess"):
                arguments = ("--train-data", name, "--table-rows", 10) if command == "recommend" else ("--input", name, "--output", "out")
                _, err = self.trifold(command, *arguments, status=2)
                self.assertIn(word, err)
                self.assertTrue(all(c == "\n" or c.isprintable() for c in err), repr(err))

    def test_without_dense_features(self):
        self.write("n.csv", "label,C1,C2\n" + "".join(f"{i % 2},{i % 10},{i % 3}\n" for i in range(200)))
        rows = ("--train-data", "n.csv", "--table-rows", "10-3", "--valid-samples", 40)
        for interaction in ("dot", "cat", "cross", "fm"):
            self.recommend(*rows, "--interaction", interaction, "--log-json", f"{interaction}.jsonl")
        whole = self.losses("cat.jsonl")
        run = (*rows, "--interaction", "cat", "--ranks", 2, "--placement", "row,column", "--log-json", "parts.jsonl")
        self.recommend("--train-iters", 3, *run, "--save", "d", without=["--train-epochs"])
        self.recommend(*rows, "--interaction", "cat", "--load", "d", "--log-json", "parts.jsonl")
        parts = self.losses("parts.jsonl")
        self.assertEqual(len(parts), len(whole))
        for one, other in zip(whole, parts):
            self.assertLess(abs(one - other), 2e-5 * one)
        # Nobody checks the widths of a bottom MLP that there is not.
        few = (*rows, "--global-batch-size", 50, "--threads-per-rank", 1)
        self.trifold("recommend", *few, "--dense-features", 0, "--embedding-dim", 6, "--train-iters", 2, "--save", "w")
        self.trifold("recommend", *few, "--train-iters", 3, "--load", "w")
        out, _ = self.trifold("score", "--load", "w", "--data", "n.csv", "--output", "-")
        self.assertEqual(len(out.splitlines()), 201)
        self.preprocess("n.csv", "n")
        self.recommend("--train-data", "n", "--valid-samples", 40)
        out, _ = self.trifold("plan", "--dense-features", 0, "--table-rows", "10-3", "--embedding-dim", 8, "--ranks", 2)
        self.assertIn("predicted", out)
        self.recommend("--dense-features", 0, "--table-rows", "10-3", "--synthetic-samples", 400, "--valid-samples", 40)
        self.refused("--dense-features", 0, "--table-rows", "10", words=["give --interaction cat, or --interaction-self"])
        self.refused("--dense-features", 0, "--table-rows", "10", "--interaction", "fm", words=["so its vector has none to interact with"])


if __name__ == "__main__":
    unittest.main()
