"""Raw clicks as they come: one limit of malformed lines for all commands, blank lines and empty parts, plain quotes, later days of older folders."""

import gzip
import json
import math
import struct
import unittest

from program import ProgramTest

MODEL = ("--embedding-dim", 4, "--bottom-mlp", 4, "--top-mlp", "4-1", "--optimizer", "adagrad", "--global-batch-size", 64, "--threads-per-rank", 1)


class RawClicks(ProgramTest):
    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def preprocess(self, source, output, *options, status=0):
        return self.trifold("preprocess", "--input", source, "--output", output, "--threads", 1, *options, status=status)

    def manifest(self, name):
        return json.loads((self.folder / name / "clicks.json").read_text())

    def floats(self, name):
        data = (self.folder / name).read_bytes()
        return list(struct.unpack(f"<{len(data) // 4}f", data))


class Folders(RawClicks):
    def test_suffixes_have_no_case_and_other_files_are_named(self):
        lines = "click,x,u\n" + "".join(f"{i % 2},{i},u{i % 5}\n" for i in range(20))
        self.write("days/a.csv", lines)
        self.write("days/b.CSV", lines)
        self.write("days/c.Csv.GZ", gzip.compress(lines.encode()))
        self.write("days/README.md", "read me\n")
        _, err = self.preprocess("days", "clicks", "--label", "click", "--dense", "x", "--sparse", "u")
        self.assertEqual(self.manifest("clicks")["samples"], 60)
        self.assertIn("not read: README.md\n", err)
        self.trifold("recommend", "--train-data", "clicks", *MODEL[:-4], "--global-batch-size", 20, "--train-iters", 2, "--save", "run")
        _, err = self.trifold("score", "--load", "run", "--data", "days", "--output", "S.CSV")
        self.assertIn("not read: README.md", err)
        self.assertEqual(len((self.folder / "S.CSV").read_text().splitlines()), 61)


class Malformed(RawClicks):
    def setUp(self):
        super().setUp()
        good = [f"{i % 2},{i},u{i % 5}" for i in range(100)]
        self.write("good.csv", "click,x,u\n" + "\n".join(good) + "\n")
        commas = [f'{i % 2},"1,{i}",u1' if i % 4 else f"maybe,{i},u1" for i in range(99)]
        self.write("bad.csv", "click,x,u\n" + "\n".join([*commas, good[0]]) + "\n")
        self.write("some.csv", "click,x,u\n" + "\n".join([*good[:95], *commas[1:4], commas[5], "1,2", ""]) + "\n")
        self.columns = ("--label", "click", "--dense", "x", "--sparse", "u")
        self.preprocess("good.csv", "train", *self.columns)
        self.trifold("recommend", "--train-data", "train", *MODEL, "--save", "run")

    def test_one_limit_for_all_commands(self):
        for command in (("preprocess", "--input", "bad.csv", "--output", "x", *self.columns), ("evaluate", "--load", "run", "--data", "bad.csv"),
                        ("score", "--load", "run", "--data", "bad.csv", "--output", "s.csv"),
                        ("recommend", "--train-data", "bad.csv", "--dictionaries-of", "train", *MODEL),
                        ("recommend", "--train-data", "train", "--valid-data", "bad.csv", *MODEL)):
            _, err = self.trifold(*command, status=2)
            self.assertIn("more than 1 % of the lines are malformed (--max-malformed 0.01); ", err)
            if command[0] == "score":  # which needs no label
                self.assertIn("74 of 100 lines are malformed and left out (column x is not a number: 74)", err)
            else:
                self.assertIn("99 of 100 lines are malformed and left out (column x is not a number: 74, column click is not a label: 25)", err)
                self.assertIn("bad.csv:2: column click: 'maybe' is not a label", err)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name in ("x", "s.csv")], [])

    def test_another_limit_is_said_once_and_inherited(self):
        counted = "5 of 100 lines are malformed and left out (column x is not a number: 4, too few fields: 1)"
        self.trifold("evaluate", "--load", "run", "--data", "some.csv", status=2)
        for command in (("evaluate", "--load", "run", "--data", "some.csv"), ("score", "--load", "run", "--data", "some.csv", "--output", "s.csv"),
                        ("recommend", "--train-data", "some.csv", "--dictionaries-of", "train", *MODEL)):
            out, err = self.trifold(*command, "--max-malformed", 0.05)
            lines = [line for line in (out + err).splitlines() if "malformed" in line]
            self.assertEqual(len(lines), 1, lines)
            self.assertIn(counted + "; the first: some.csv:97: column x: '1,1' is not a number", lines[0])
        self.assertEqual(len((self.folder / "s.csv").read_text().splitlines()), 101)  # a malformed row has an empty prediction
        _, err = self.preprocess("some.csv", "days", *self.columns, "--max-malformed", 0.05)
        self.assertIn(counted, err)
        self.assertEqual((self.manifest("days")["max_malformed"], self.manifest("days")["sources"][0]["lines"]), (0.05, 100))
        self.preprocess("some.csv", "later", "--dictionaries-of", "days")
        self.assertEqual(self.manifest("later")["max_malformed"], 0.05)
        self.preprocess("some.csv", "strict", "--dictionaries-of", "later", "--max-malformed", 0.02, status=2)
        self.trifold("recommend", "--train-data", "days", *MODEL, "--save", "lenient")
        self.trifold("evaluate", "--load", "lenient", "--data", "some.csv")
        self.trifold("recommend", "--train-data", "some.csv", "--dictionaries-of", "train", "--max-malformed", 0.05, *MODEL, "--save", "asked")
        self.trifold("evaluate", "--load", "asked", "--data", "some.csv")

    def test_text_without_preprocessing(self):
        rows = [f"{i % 2},{i},{i % 5}" for i in range(95)] + ["x,1,2"] * 5
        self.write("plain.csv", "label,I1,C1\n" + "\n".join(rows) + "\n")
        model = ("--train-data", "plain.csv", "--table-rows", 10, *MODEL)
        _, err = self.trifold("recommend", *model, status=2)
        self.assertIn("more than 1 % of the lines are malformed", err)
        out, err = self.trifold("recommend", *model, "--max-malformed", 0.05)
        self.assertIn("5 of 100 lines are malformed and left out (column label is not a label: 5)", out + err)


class Texts(RawClicks):
    def test_blank_lines_are_no_samples(self):
        wanted = None
        for name, text in (("plain", "click,u\n1,a\n0,b\n"), ("ends", "click,u\n1,a\n0,b\n\n"), ("windows", "\r\nclick,u\r\n\r\n1,a\r\n \t\r\n0,b\r\n\r\n")):
            self.write("t.csv", text)
            _, err = self.preprocess("t.csv", name, "--label", "click", "--sparse", "u")
            self.assertNotIn("malformed", err)
            manifest = self.manifest(name)
            wanted = wanted or manifest
            self.assertEqual(manifest, wanted)
        self.write("t.csv", "\n\nclick,u\n\n1,a\n\n2,b\n")
        _, err = self.preprocess("t.csv", "x", "--label", "click", "--sparse", "u", status=2)
        self.assertIn("1 of 2 lines is malformed", err)
        self.assertIn("t.csv:7: column click: '2' is not a label", err)

    def test_blanks_around_names_and_signs_of_numbers(self):
        wanted = None
        for name, text in (("plain", "click,x,u\n3,1,a\n2,-2,b\n"), ("blank", "click, x ,\tu\n3,1,a\n2,-2,b\n"), ("quoted", '"click"," x"," u "\n"+3","+1"," a "\n2,-2.0," b"\n')):
            self.write("t.csv", text)
            self.preprocess("t.csv", name, "--label", "click>=+3", "--dense", "x", "--sparse", "u", "--dense-transform", "none")
            content = [(self.folder / name / file).read_bytes() for file in ("labels.bin", "dense.bin", "u.ids", "u.dict")]
            wanted = wanted or content
            self.assertEqual(content, wanted, name)

    def test_empty_parts_of_a_folder(self):
        self.write("parts/a.csv", "")
        self.write("parts/b.csv", "click,x,u\n1,+3,a\n0,-1,b\n")
        self.write("parts/c.csv", b"\xef\xbb\xbf")
        self.write("parts/d.csv.gz", gzip.compress(b""))
        self.write("parts/e.csv.gz", b"")
        self.write("parts/f.csv", "\r\n\n")
        self.write("parts/g.csv", "click,x,u\n")
        self.write("parts/h.csv", "click,x,u\n1,2.5,a\n")
        columns = ("--label", "click", "--dense", "x", "--sparse", "u", "--dense-transform", "none")
        self.preprocess("parts", "out", *columns)
        self.assertEqual(self.floats("out/dense.bin"), [3, -1, 2.5])
        self.trifold("recommend", "--train-data", "parts", "--dictionaries-of", "out", *MODEL, "--save", "run")
        self.trifold("evaluate", "--load", "run", "--data", "parts")
        self.trifold("score", "--load", "run", "--data", "parts", "--output", "s.csv")
        for name in "bgh":
            (self.folder / "parts" / f"{name}.csv").unlink()
        _, err = self.preprocess("parts", "x", *columns, status=2)
        self.assertIn("a.csv: the file is empty", err)

    def test_quotes_that_are_plain_characters(self):
        titles = ["First", '"Second', 'Third "x"', '"Weird" Al', '"Fifth"']
        self.write("t.tsv", "label\ttitle\n" + "".join(f"{i % 2}\t{title}\n" for i, title in enumerate(titles)))
        columns = ("--label", "label", "--sparse", "title", "--separator", "tab")
        for name, quoting in (("auto", ()), ("none", ("--quoting", "none"))):
            self.preprocess("t.tsv", name, *columns, *quoting)
            self.assertEqual((self.manifest(name)["samples"], self.manifest(name)["columns"]["quoting"]), (5, "none"))
        _, err = self.preprocess("t.tsv", "x", *columns, "--quoting", "quotes", status=2)
        self.assertIn("give --quoting none if quotes are plain characters", err)
        self.assertIn("column title has an unclosed quote: 2", err)
        # A quoted field with a quote or a tab in it is one of a file that quotes its fields, in any of the parts.
        self.write("parts/a.tsv", 'label\ttitle\n0\tFirst\n')
        self.write("parts/b.tsv", 'label\ttitle\n1\t"Fi""rst"\n0\t"First"\n')
        self.preprocess("parts", "quoted", *columns)
        self.assertEqual(list((self.folder / "quoted" / "title.ids").read_bytes()), [2, 3, 2])
        # Later days are read as the first one was.
        self.write("later.tsv", 'label\ttitle\n0\t"Fifth"\n')
        self.preprocess("later.tsv", "later", "--dictionaries-of", "auto")
        self.assertEqual(list((self.folder / "later" / "title.ids").read_bytes()), [6])

    def test_the_minimum_of_logmin(self):
        for name, numbers in (("above", [100, 200, 300]), ("below", [-3, 0, 5]), ("none", [None, 4, 9])):
            self.write("t.csv", "click,x,u\n" + "".join(f"1,{'' if x is None else x},a\n" for x in numbers))
            self.preprocess("t.csv", name, "--label", "click", "--dense", "x", "--sparse", "u", "--dense-transform", "logmin")
            numbers = [x or 0 for x in numbers]  # a missing number is 0
            self.assertEqual(self.manifest(name)["dense_least"], min(numbers))
            for value, x in zip(self.floats(f"{name}/dense.bin"), numbers):
                self.assertAlmostEqual(value, math.log(x - min(numbers) + 2), places=5)
        self.write("t.csv", "click,u\n1,a\n")
        self.preprocess("t.csv", "ids", "--label", "click", "--sparse", "u", "--dense-transform", "logmin")
        self.assertEqual(self.manifest("ids")["dense_least"], 0)

    def test_folders_of_earlier_versions_keep_their_texts(self):
        """Texts of ids were hashed as they are written; later days of such a folder go on so."""
        self.write("day1.csv", 'click,u\n1,2\n0,3.0\n1," a"\n')
        columns = ("--label", "click", "--sparse", "u")
        self.preprocess("day1.csv", "new", *columns)
        old = self.manifest("new")
        self.assertEqual(old.pop("texts_as_written"), False)
        old.pop("max_malformed")
        (self.folder / "new").rename(self.folder / "old")
        (self.folder / "old" / "clicks.json").write_text(json.dumps(old))
        self.write("day2.csv", "click,u\n1,2.0\n0,2\n1,3\n")
        self.preprocess("day2.csv", "later", "--dictionaries-of", "old", "--grow-dictionaries")
        self.assertEqual(list((self.folder / "later" / "u.ids").read_bytes()), [5, 2, 3])
        self.assertEqual(self.manifest("later")["texts_as_written"], True)


if __name__ == "__main__":
    unittest.main()
