"""Tables with arbitrary columns become clicks: `preprocess` with options for the columns, and a model trained on the
result."""

import bz2
import csv
import gzip
import lzma
import math
import random
import shutil
import subprocess
import unittest

from preprocessed import ADULT, HEADER, PreprocessTest, hash_of, people, text_of


class Preprocess(PreprocessTest):
    def test_a_missing_value_may_be_a_number(self):
        rows = list(people(100))
        for name, missing in (("text.csv", "?"), ("number.csv", "-1")):
            self.write(name, text_of([[missing if value == "?" else value for value in row] for row in rows]))
        self.preprocess("text.csv", "text")
        self.preprocess("number.csv", "number", columns=(*ADULT[:-4], "--missing-values", "-1", "--threads", 2))
        self.assertEqual(self.folder_of("number")[1:], self.folder_of("text")[1:])

    def test_options_name_the_columns(self):
        rows = list(people(300))
        self.write("adult.csv", text_of(rows))
        self.preprocess("adult.csv", "clicks")
        manifest, labels, dense, ids = self.folder_of("clicks")
        self.assertEqual(labels, [int(row[-1] == ">50K") for row in rows])

        def number(value):
            return 0 if value in ("?", "") else {"True": 1, "False": 0}.get(value, value)
        wanted = [math.log1p(number(row[c])) for row in rows for c in (0, 2, 3)]
        for got, value in zip(dense, wanted, strict=True):
            self.assertAlmostEqual(got, value, delta=1e-6)
        for name, column in (("job", 1), ("home_country", 4)):
            order = {}
            expected = [0 if row[column] in ("?", "") else order.setdefault(row[column], 2 + len(order)) for row in rows]
            self.assertEqual(ids[name], expected)
        self.assertEqual([table["name"] for table in manifest["tables"]], ["job", "home_country"])

    def test_ways_to_write_the_same_table_give_the_same_clicks(self):
        rows = list(people(400))
        self.write("adult.csv", text_of(rows))
        self.preprocess("adult.csv", "clicks")
        wanted = self.folder_of("clicks")[1:]
        self.write("tabs.tsv", text_of(rows, "\t").replace("\r\n", "\n"))
        self.write("points.txt", "\ufeff" + text_of(rows, ";"))
        self.write("adult.csv.gz", gzip.compress(text_of(rows).encode()))
        self.write("parts/b.csv", text_of(rows[150:]))
        self.write("parts/a.csv.gz", gzip.compress(text_of(rows[:150]).encode()))
        self.write("parts/README.md", "not clicks")
        text = text_of(rows).encode()
        self.write("adult.csv.xz", lzma.compress(text[:3000]) + lzma.compress(text[3000:]))
        self.write("adult.csv.bz2", bz2.compress(text[:3000]) + bz2.compress(text[3000:]))
        turned = [row[::-1] for row in rows]
        self.write("turned.csv", text_of(turned, header=HEADER[::-1]))
        self.write("blanks.csv", text_of(rows).replace("\r\n", " \n"))
        cases = {"tabs.tsv": ("--separator", "tab"), "points.txt": ("--separator", ";"), "adult.csv.gz": (), "adult.csv.xz": (), "adult.csv.bz2": (), "parts": (), "turned.csv": (),
                 "blanks.csv": ("--threads", 1)}
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", self.folder / "adult.csv"], check=True)
            cases["adult.csv.zst"] = ()
        for source, more in cases.items():
            columns = [word for word in ADULT[:-2]] + (["--threads", 2] if "--threads" not in more else [])
            self.preprocess(source, "out", *more, columns=columns)
            self.assertEqual(self.folder_of("out")[1:], wanted, source)
            shutil.rmtree(self.folder / "out")
        self.preprocess(["parts/a.csv.gz", "parts/b.csv"], "out")
        self.assertEqual(self.folder_of("out")[1:], wanted)

    def test_labels_are_compared(self):
        rows = "user,item,rating\nu1,7,4.5\nu2,8,3\nu1,8,4\nu3,9,1\n"
        self.write("r.csv", rows)
        for rule, wanted in (("rating>=4", [1, 0, 1, 0]), ("rating>4", [1, 0, 0, 0]), ("rating<3", [0, 0, 0, 1]), ("rating<=3", [0, 1, 0, 1]),
                             ("rating==3.0", [0, 1, 0, 0]), ("rating!=3", [1, 0, 1, 1]), ("user==u1", [1, 0, 1, 0]), ("user!=u1", [0, 1, 0, 1])):
            columns = ("--label", rule, "--sparse", "item" if "user" in rule else "user,item", "--threads", 1)
            self.preprocess("r.csv", "out", columns=columns)
            _, labels, dense, _ = self.folder_of("out")
            self.assertEqual((labels, dense), (wanted, []), rule)
            shutil.rmtree(self.folder / "out")

    def test_rare_categories_and_later_data(self):
        self.write("a.csv", "y,c\n" + "".join(f"{i % 2},{name}\n" for i, name in enumerate("aabbbcd")))
        self.write("b.csv", "y,c\n1,b\n0,new\n1,\n0,a\n")
        columns = ("--label", "y", "--sparse", "c", "--threads", 1)
        self.preprocess("a.csv", "a", "--frequency-threshold", 2, columns=columns)
        self.assertEqual(self.folder_of("a")[3]["c"], [2, 2, 3, 3, 3, 1, 1])
        self.preprocess("b.csv", "b", "--dictionaries-of", "a", columns=columns)
        self.assertEqual(self.folder_of("b")[3]["c"], [3, 1, 0, 2])
        _, err = self.preprocess("b.csv", "x", "--dictionaries-of", "a", "--hash-seed", 3, columns=columns, status=2)
        self.assertIn("a was made with --hash-seed 0", err)
        hashed = ("--ids", "hash", "--max-ind-range", 1000)
        self.preprocess("a.csv", "h", *hashed, columns=columns)
        self.preprocess("a.csv", "again", *hashed, columns=columns)
        self.preprocess("a.csv", "seed", *hashed, "--hash-seed", 5, columns=columns)
        for folder, seed in (("h", 0), ("again", 0), ("seed", 5)):
            self.assertEqual(self.folder_of(folder)[3]["c"], [hash_of(name, seed) % 1000 for name in "aabbbcd"])

    def test_names_of_columns_may_have_commas(self):
        self.write("c.csv", 'y,"last, first",city\n1,ab,x\n0,cd,x\n')
        self.preprocess("c.csv", "out", columns=("--label", "y", "--sparse", '"last, first",city', "--threads", 1))
        self.assertEqual(self.folder_of("out")[3], {"last__first": [2, 3], "city": [2, 2]})
        _, err = self.preprocess("c.csv", "x", columns=("--label", "y", "--sparse", '"last,city'), status=2)
        self.assertIn("has a quote that is not closed; a name with commas stands between quotes", err)

    def test_names_of_columns_may_have_quotes(self):
        self.write("quoted.csv", '"y","u ""x"", z"\n1,a\n0,b\n')
        columns = ("--label", "y", "--sparse", '"u ""x"", z"', "--threads", 1)
        self.preprocess("quoted.csv", "out", columns=columns)
        self.assertEqual(self.folder_of("out")[3], {"u__x___z": [2, 3]})
        self.write("none.csv", "y,u\n0,a\n0,b\n")
        _, err = self.preprocess("none.csv", "x", columns=("--label", "y", "--sparse", "u", "--drop-negatives", 0.99999999), status=2)
        self.assertIn("none.csv: --drop-negatives 0.99999999 dropped all of the 2 samples, none of which has a click", err)

    def test_mistakes_name_file_line_and_column(self):
        good = text_of(people(50))
        self.write("good.csv", good)

        def line(number, old, new):
            lines = good.split("\r\n")
            self.assertIn(old, lines[number - 1])
            lines[number - 1] = lines[number - 1].replace(old, new, 1)
            return "\r\n".join(lines)
        hours = next(iter(people(1)))[2]
        cases = [(line(2, f",{hours},", ",many,"), "bad.csv:2: column hours-per-week: 'many' is not a number"),
                 (line(2, '"a ""free"" remark', '"a "free" remark'), "bad.csv:2: column remark: \"a \"free\" remark has a quote that is not closed"),
                 (good.rstrip() + "\r\n1,2\r\n", "bad.csv:52: column hours-per-week: missing; the line has 2 of 7 fields"),
                 (good.rstrip() + ",x\r\n", "bad.csv:51: column 8: the line has 8 fields, not 7"),
                 (good.rstrip() + "\r\n\r\n20\r\n", "bad.csv:53: column job: missing; the line has 1 of 7 fields")]
        for text, words in cases:
            self.write("bad.csv", text)
            _, err = self.preprocess("bad.csv", "out", "--max-malformed", 0, status=2)
            self.assertIn(words, err)
            _, err = self.preprocess("bad.csv", "out", "--max-malformed", 0.5)
            self.assertIn("1 of ", err)
            shutil.rmtree(self.folder / "out")
        for old, columns, words in (
                ("--dense", "age,heigth", "good.csv:1: --dense names the column 'heigth', but the header has age, job, hours-per-week"),
                ("--sparse", "job,income", "--sparse names the column 'income', which another option names already"),
                ("--sparse", "job,job", "--sparse names the column 'job', which another option names already"),
                ("--label", "income>50K", "'income>50K' compares with '50K', which is not a number: texts are compared by ==, != and ^="),
                ("--label", "income=x", "has none of the comparisons >= <= == != ^= > <"),
                ("--separator", ";;", "';;' is not a separator"),
                ("--separator", ";", "good.csv:1: --label names the column 'income', but the header has")):
            arguments = list(ADULT)
            if old in arguments:
                arguments[arguments.index(old) + 1] = columns
            else:
                arguments += [old, columns]
            _, err = self.preprocess("good.csv", "out", columns=arguments, status=2)
            self.assertIn(words, err)
        _, err = self.preprocess("good.csv", "out", columns=("--sparse", "job"), status=2)
        self.assertIn("--sparse job has no effect without --label COLUMN[>=VALUE],...: give --label COLUMN too", err)
        self.write("empty/x.md", "")
        _, err = self.preprocess("empty", "out", status=2)
        self.assertIn("empty is a folder without clicks: no name in it ends in .csv", err)
        for name, packed in (("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)):
            bytes_there = packed(good.encode() * 3)[:-20]
            self.write("cut.csv." + name, bytes_there)
            _, err = self.preprocess("cut.csv." + name, "out", status=2)
            self.assertRegex(err, rf"cut\.csv\.{name}: the \w+ file is truncated: it ends at byte {len(bytes_there)}, in the middle")
        self.assertFalse(list(self.folder.glob("out*")))

    def test_a_column_may_be_a_number_and_a_table(self):
        rows = list(people(60))
        self.write("once.csv", text_of(rows))
        self.write("twice.csv", text_of([[*row, row[0], row[2]] for row in rows], header=[*HEADER, "age again", "hours again"]))
        rest = ("--label", "income==>50K", "--missing-values", "?", "--threads", 2)
        self.preprocess("once.csv", "once", columns=("--dense", "age,hours-per-week", "--sparse", "job,age,hours-per-week", *rest))
        self.preprocess("twice.csv", "twice", columns=("--dense", "age,hours-per-week", "--sparse", "job,age again,hours again", *rest))
        for one, two in (("labels.bin",) * 2, ("dense.bin",) * 2, ("job.ids",) * 2, ("age.ids", "age_again.ids"), ("age.dict", "age_again.dict"),
                         ("hours-per-week.ids", "hours_again.ids")):
            self.assertEqual((self.folder / "once" / one).read_bytes(), (self.folder / "twice" / two).read_bytes(), one)
        self.preprocess("once.csv", "later", columns=("--dictionaries-of", "once"))
        self.assertEqual((self.folder / "later" / "age.ids").read_bytes(), (self.folder / "once" / "age.ids").read_bytes())

    def test_files_without_a_header(self):
        """The form of UCI's Adult: fields after comma and blank, ? where a value is missing, an empty line in the end, and in adult.test
        a first line of another kind and labels that end in a dot."""
        people_of = random.Random(3)

        def line(dot):
            rich = people_of.randrange(3) == 0
            return (f"{people_of.randrange(17, 90)}, {people_of.choice(('Private', 'State-gov', '?'))}, "
                    f"{'>' if rich else '<='}50K{dot}\n"), rich
        train, test = [line("") for _ in range(400)], [line(".") for _ in range(200)]
        self.write("adult.data", "".join(text for text, _ in train) + "\n")
        self.write("adult.test", "|1x3 Cross validator\n" + "".join(text for text, _ in test) + "\n")
        columns = ("--columns", "age,workclass,income", "--label", "income^=>50K", "--dense", "age", "--sparse", "workclass",
                   "--missing-values", "?", "--threads", 1)
        self.preprocess("adult.data", "train", columns=columns)
        self.preprocess("adult.test", "test", "--dictionaries-of", "train", "--max-malformed", 0.02, columns=("--threads", 1))
        for folder, rows in (("train", train), ("test", test)):
            _, labels, dense, ids = self.folder_of(folder)
            self.assertEqual(labels, [int(rich) for _, rich in rows])
            self.assertEqual([round(math.exp(value) - 1) for value in dense], [int(text.split(",")[0]) for text, _ in rows])
            self.assertEqual([id == 0 for id in ids["workclass"]], [" ?, " in text for text, _ in rows])
        # A header that is there after all, and columns that are not.
        self.write("named.csv", "age,workclass,income\n" + "".join(text for text, _ in train))
        self.preprocess("named.csv", "named", columns=columns)
        self.assertEqual(self.folder_of("named")[1:], self.folder_of("train")[1:])
        for change, words in ((("age,workclass", "adult.data: --label names the column 'income', but --columns has age, workclass")),
                              (("age,workclass,more,income", "column income: missing; the line has 3 of 4 fields"))):
            _, err = self.preprocess("adult.data", "x", columns=(columns[0], change, *columns[2:]), status=2)
            self.assertIn(words, err)
        _, err = self.preprocess("adult.data", "x", columns=("--columns", "a,b"), status=2)
        self.assertIn("--columns a,b has no effect without --label COLUMN[>=VALUE],...: give --label COLUMN too", err)

    def test_one_line_to_preprocess_and_one_to_train(self):
        self.write("train.csv", text_of(people(4000)))
        self.write("test.csv", text_of(people(2000, seed=2)))
        self.preprocess("train.csv", "train")
        self.preprocess("test.csv", "test", "--dictionaries-of", "train")
        self.trifold("recommend", "--train-data", "train", "--valid-data", "test", "--embedding-dim", 4, "--bottom-mlp", "8-4",
                     "--top-mlp", "8-1", "--global-batch-size", 100, "--train-epochs", 4, "--lr", 0.3, "--threads-per-rank", 1, "--log-json", "log.jsonl",
                     "--save", "run")
        trained = next(line for line in self.log() if "valid_auc" in line)
        # The best possible model ranks by the variables that determine income.
        self.assertGreater(trained["valid_auc"], 0.78)
        out, _ = self.trifold("evaluate", "--load", "run", "--data", "test", "--group-by", "home_country", "--threads-per-rank", 1)
        self.assertIn(f"AUC {trained['valid_auc']:.4f}", out)
        self.trifold("score", "--load", "run", "--data", "test", "--output", "scores.csv", "--ranks", 2, "--threads-per-rank", 1)
        self.assertEqual(len((self.folder / "scores.csv").read_text().splitlines()), 2001)


if __name__ == "__main__":
    unittest.main()
