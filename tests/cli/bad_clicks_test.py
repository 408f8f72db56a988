"""More than a hundred mistakes in files of clicks: each gives one message with file, line, column and what would be right, exit status 2,
and no output, whichever command reads the file."""

import shutil
import unittest

from program import ProgramTest

LABEL = "is not a label: 0, 1, false or true"
NUMBER = "is not a number, false, true or one of --missing-values"
WEIGHTED = "is not a list of weighted texts such as a:0.5|b:2"
HASH = "is not a hash: up to 8 hexadecimal digits"
DECIMAL = "is not an id: a decimal number from 0 to 18446744073709551615"
QUOTE = "has a quote that is not closed before the next {}; double the quotes inside a field, and end each field on its line"


class Table:
    """A form of file: the options that read it, its lines that are right, and for each column what a field is not."""

    def __init__(self, name, options, header, right, wanted):
        self.name, self.options, self.header, self.right, self.wanted = name, options, header, right, wanted

    def with_field(self, place, field):
        return [*self.right[:place], field, *self.right[place + 1:]]


NAMED = Table("named.csv", "--label y --dense age,hours --sparse user --bag tags:|", "y,age,hours,user,tags", ["1", "20", "3.5", "u1", "a|b"], {0: LABEL, 1: NUMBER})
TABS = Table("named.tsv", "--label y --dense age --sparse user --separator tab --quoting quotes", "y\tage\tuser", ["True", "20", "u1"], {0: LABEL, 1: NUMBER})
RATING = Table("rating.csv", "--label rating>=4 --sparse user", "rating,user", ["4.5", "u1"], {0: "is not a number, which --label rating>=4 needs"})
INCOME = Table("income.csv", "--label income==high --sparse user --missing-values ?", "income,user", ["high", "u1"],
               {0: "is not a text, which --label income==high needs"})
NO_LABEL = Table("unknown.csv", INCOME.options, INCOME.header, INCOME.right, {0: "is one of --missing-values, and a sample needs its label"})
NAN_LABEL = Table("nan.csv", NAMED.options, NAMED.header, NAMED.right, {0: "is one of --missing-values, and a sample needs its label"})
WEIGHTS = Table("weights.csv", "--label y --sparse user --bag words:| --bag-weights words", "y,user,words", ["0", "u1", "a:1|b:0.5"], {2: WEIGHTED})
CRITEO = Table("criteo.tsv", "--data-format tsv", None, ["1", *map(str, range(13)), *["0123abcd"] * 26],
               {0: "is not a label: 0 or 1", 1: "is not a number", 13: "is not a number", 14: HASH, 39: HASH})
DECIMALS = Table("ids.csv", "--data-format csv", "label,I1,C1,C2", ["0", "5", "77", "18446744073709551615"],
                 {0: "is not a label: 0 or 1", 1: "is not a number", 2: DECIMAL, 3: DECIMAL})
HEX = Table("hashes.csv", "--data-format csv-hex", "label,I1,C1", ["0", "5", "ffffffff"], {0: "is not a label: 0 or 1", 1: "is not a number", 2: HASH})

# For each form and column, fields that are wrong.
FIELDS = (
    (NAMED, 0, ("2", "-1", "yes", "0.5", "", "tRue", "1 1", "1e400", "+2", "0x1", "clicked", "１")),
    (NAMED, 1, ("x", "1.2.3", "0x10", "1e999", "inf", "-inf", "--5", "5%", "$5", "1 000", "2024-01-01", "12:30", "1_000", "+-5", "1e", ".", "20 years", "yes")),
    (TABS, 0, ("2", "TRue", "no", "", "0,5")),
    (TABS, 1, ("1,5", "x", "'5'", "4e39", "20\u00a0")),
    (RATING, 0, ("good", "", "4,5", "inf", "4/5", "****")),
    (INCOME, 0, ("",)),
    (NO_LABEL, 0, ("?", " ?")),
    (NAN_LABEL, 0, ("nan", "NULL")),
    (WEIGHTS, 2, ("a", "a:", "a:x", "a:inf", "a:1|b", "a:1|b:1e39", "a:1|:x", "a=2", "a:0x1", "a:1,b:2|c")),
    (CRITEO, 0, ("2", "x", "", "1.5", "-1", "0x1", "yes")),
    (CRITEO, 1, ("x", "1.5x", "0x3", "1e99", "none", "inf", "1 2", "--1")),
    (CRITEO, 13, ("?", "NA")),
    (CRITEO, 14, ("xyz", "123456789", "-1", "0x12", "12 34", "1.5", "g")),
    (CRITEO, 39, ("0123abcdz", "user")),
    (DECIMALS, 0, ("2", "yes", "")),
    (DECIMALS, 1, ("five", "5e99", "TrUe")),
    (DECIMALS, 2, ("xyz", "1.5", "18446744073709551616", "7 8", "12e3", "1e-3", "0x1f", "7;8")),
    (DECIMALS, 3, ("NULL", "u7")),
    (HEX, 0, ("-", "10")),
    (HEX, 1, ("1..", "e")),
    (HEX, 2, ("fffffffff", "0xff", "xyz", "-f")),
)

# Lines that are wrong as a whole: the form, the line, the column and the words.
LINES = (
    (NAMED, "1,20,3.5,u1", "column tags: ", "missing; the line has 4 of 5 fields"),
    (NAMED, "1", "column age: ", "missing; the line has 1 of 5 fields"),
    (NAMED, "1,20,3.5,u1,a,b", "column 6: ", "the line has 6 fields, not 5"),
    (NAMED, '1,20,3.5,"u1,a', "column user: ", QUOTE.format("','")),
    (NAMED, '1,20,3.5,u1,"a', "column tags: ", QUOTE.format("','")),
    (NAMED, '1,"20"x,3.5,u1,a', "column age: ", QUOTE.format("','")),
    (TABS, '1\t20\t"u1', "column user: ", QUOTE.format("tab")),
    (TABS, "1\t20", "column user: ", "missing; the line has 2 of 3 fields"),
    (TABS, "1,20,u1", "column y: ", LABEL),
    (RATING, "5", "column user: ", "missing; the line has 1 of 2 fields"),
    (WEIGHTS, "0,u1,a:1,b:2", "column 4: ", "the line has 4 fields, not 3"),
    (CRITEO, "1\t5", "column I2: ", "missing; the line has 2 of 40 fields, and needs at least 14"),
    (CRITEO, "\t".join(CRITEO.right + ["00000000"]), "column 41: ", "the line has 41 fields, not 40"),
    (DECIMALS, "0", "column I1: ", "missing; the line has 1 of 4 fields, and needs at least 2"),
    (DECIMALS, "0,1,2,3,4", "column 5: ", "the line has 5 fields, not 4"),
)

# Headers that are wrong: options, header, words.
HEADERS = (
    ("--data-format csv", "label,I1,C1,C1", "the header has column C1 twice"),
    ("--data-format csv", "label,I1,I1,C1", "the header has column I1 twice"),
    ("--data-format csv", "label,I1,C1,C3", "the header lacks a column before C3: columns are numbered from 0 or 1 without gaps"),
    ("--data-format csv", "label,I2,C1", "the header lacks a column before I2"),
    ("--data-format csv", "label,click,C1", "the header has 2 columns of labels"),
    ("--data-format csv", "label,age,user", "the header names no column of ids (C1, C2 ... or cat_0, cat_1 ...)"),
    ("--label y --sparse user", "label,user", "--label names the column 'y', but the header has label, user"),
    ("--label y --sparse user", "y,item", "--sparse names the column 'user', but the header has y, item"),
    ("--label y --sparse user", "y;user", "the header has y;user: give --separator if these are several names"),
    ("--label y --sparse user", "y,user,user", "the header has the column 'user' 2 times"),
    ("--label y --dense age --sparse user", "y,user", "--dense names the column 'age', but the header has y, user"),
    ("--label y --sparse user --bag tags:: --bag-weights tags", "y,user,tags", "--bag tags: the colon stands before weights"),
    ("--label y --sparse user --bag tags:|", "y,user", "--bag names the column 'tags', but the header has y, user"),
)


class BadClicks(ProgramTest):
    def refused(self, name, text, options, words):
        (self.folder / name).write_bytes(text.encode())
        _, stderr = self.trifold("preprocess", "--input", name, "--output", "out", "--threads", 1, *options.split(), status=2)
        for word in words:
            self.assertIn(word, stderr, (name, text))
        self.assertNotIn("out", [path.name for path in self.folder.iterdir()])
        self.assertTrue(stderr.startswith("trifold: "), stderr)
        return stderr

    def line_refused(self, table, line, column, words):
        separator = "," if table.name.endswith(".csv") else "\t"
        lines = ([table.header] if table.header else []) + [separator.join(table.right)] * 2
        text = "\n".join([*lines, line, *lines[-1:]]) + "\n"
        return self.refused(table.name, text, table.options, [f"{table.name}:{len(lines) + 1}: {column}", words])

    def names(self, table):
        if table.header:
            return table.header.replace("\t", ",").split(",")
        return ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]

    def test_a_hundred_mistakes(self):
        messages = set()
        for table, place, fields in FIELDS:
            separator = "," if table.name.endswith(".csv") else "\t"
            for field in fields:
                line = separator.join(f'"{part}"' if separator in part else part for part in table.with_field(place, field))
                messages.add(self.line_refused(table, line, f"column {self.names(table)[place]}: '", table.wanted[place]))
        for case in LINES:
            messages.add(self.line_refused(*case))
        for number, (options, header, words) in enumerate(HEADERS):
            name = f"header{number}.csv"
            messages.add(self.refused(name, header + "\n1,2,3,4\n", options, [f"{name}:1: ", words]))
        self.assertGreater(len(messages), 120)  # all different


class UnreadableFolders(ProgramTest):
    """What cannot be read is not reported as missing. A link to itself stands for a folder without permission, which root can read."""

    def test_the_reason_is_reported(self):
        reason = "cannot be read: Too many levels of symbolic links"
        for folder, name in (("clicks", "clicks.json"), ("run", "manifest.json")):
            (self.folder / folder).mkdir()
            (self.folder / folder / name).symlink_to(name)
        (self.folder / "loop").symlink_to("loop")
        (self.folder / "day.csv").write_text("y,user\n1,a\n")
        for line, words in ((("preprocess", "--input", "day.csv", "--output", "out", "--dictionaries-of", "clicks"), f"clicks/clicks.json {reason}"),
                            (("score", "--load", "run", "--data", "day.csv", "--output", "-"), f"checkpoint run {reason}"),
                            (("score", "--load", "loop", "--data", "day.csv", "--output", "-"), f"checkpoint loop {reason}")):
            _, err = self.trifold(*line, status=2)
            self.assertEqual(err.strip(), f"trifold: {words}")


# A model for each form of file, and the options with which its files are read where they are not those of its clicks.
MODEL = ("--embedding-dim", 4, "--bottom-mlp", 4, "--top-mlp", "4-1", "--interaction", "cat", "--global-batch-size", 4, "--train-iters", 1, "--threads-per-rank", 1)


class BadPredictions(BadClicks):
    """The same mistakes in files that `score`, `evaluate` and `recommend` read as the model's clicks were."""

    test_a_hundred_mistakes = None

    def train(self, table):
        separator = "," if table.name.endswith(".csv") else "\t"
        lines = ([table.header] if table.header else []) + [separator.join(table.right)] * 8
        (self.folder / table.name).write_text("\n".join(lines) + "\n")
        name = table.name + ".clicks"
        self.trifold("preprocess", "--input", table.name, "--output", name, "--threads", 1, *table.options.split())
        self.trifold("recommend", "--train-data", name, *MODEL, "--save", table.name + ".run")

    def read_by(self, command, table):
        name, run = table.name + ".clicks", table.name + ".run"
        form = table.options.split() if table is HEX else ()
        return {"score": ("score", *form, "--load", run, "--data", table.name, "--output", "out.csv", "--threads-per-rank", 1),
                "evaluate": ("evaluate", *form, "--load", run, "--data", table.name, "--json", "out.json", "--threads-per-rank", 1),
                "recommend": ("recommend", *form, "--train-data", table.name, "--dictionaries-of", name, *MODEL, "--save", "out")}[command]

    def test_a_hundred_mistakes_of_data_to_predict(self):
        messages, commands = {}, ("score", "evaluate", "recommend")
        trained = set()
        for number, (table, place, fields) in enumerate(FIELDS):
            if table not in trained:
                self.train(table)
                trained.add(table)
            separator = "," if table.name.endswith(".csv") else "\t"
            for at, field in enumerate(fields):
                line = separator.join(f'"{part}"' if separator in part else part for part in table.with_field(place, field))
                lines = ([table.header] if table.header else []) + [separator.join(table.right)] * 2
                (self.folder / table.name).write_text("\n".join([*lines, line, *lines[-1:]]) + "\n")
                command = commands[(number + at) % 3]
                if place == 0:  # of the label, without which `score` and `evaluate` do
                    command = "recommend"
                out, err = self.trifold(*self.read_by(command, table), "--max-malformed", 0.5)
                for words in (f"{table.name}:{len(lines) + 1}: column {self.names(table)[place]}: '", table.wanted[place]):
                    self.assertIn(words, err, (command, table.name, field))
                self.assertEqual(err.count(f"{table.name}:"), 1, err)
                self.assertIn({"score": "3 predictions, and 1 row without one, by ", "evaluate": "3 samples, ", "recommend": "3 samples to train on"}[command], out + err, command)
                if command == "recommend":
                    shutil.rmtree(self.folder / "out")
                messages.setdefault(command, set()).add(err)
        self.assertGreater(min(len(found) for found in messages.values()), 20)
        self.assertGreater(sum(len(found) for found in messages.values()), 100)


if __name__ == "__main__":
    unittest.main()
