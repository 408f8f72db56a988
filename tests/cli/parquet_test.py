"""Preprocessing of Parquet files: every column type, the same clicks as from text, and the messages about invalid files.

Files are written by pyarrow, whose folder TRIFOLD_PYARROW names."""

import decimal
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import unittest

from program import TRIFOLD, ProgramTest

sys.path.insert(0, str(pathlib.Path(os.environ.get("TRIFOLD_PYARROW") or "none").parent))
try:
    import pyarrow
    import pyarrow.parquet
except ImportError as reason:
    pyarrow = None
    MISSING = f"pyarrow cannot be imported ({reason})"

MODULE = pathlib.Path(TRIFOLD).resolve().parents[1] / "lib" / "trifold_parquet.so"
SHOP = ("--label", "bought", "--dense", "price,age", "--sparse", "user,city", "--bag", "tags:|,seen", "--threads", 2)


def shop(count, seed=1):
    """Rows of bought, price, age, user, city, tags and seen."""
    draw = random.Random(seed)
    for _ in range(count):
        yield {"bought": draw.randrange(2), "price": draw.choice((None, draw.randrange(800) / 8)), "age": draw.choice((None, draw.randrange(18, 90))),
               "user": draw.choice((None, draw.randrange(-50, 50))), "city": draw.choice(("Oslo", "Lima, Peru", "", None)),
               "tags": draw.choice((None, [draw.choice("abcdef") for _ in range(draw.randrange(4))])),
               "seen": draw.choice((None, [draw.randrange(9) for _ in range(draw.randrange(5))]))}


def csv_of(rows):
    """The same as text: values of bags between |."""
    def field(value):
        if isinstance(value, list):
            value = "|".join(map(str, value))
        return "" if value is None else f'"{value}"' if "," in str(value) else str(value)
    rows = list(rows)
    return "".join(",".join(map(field, row)) + "\n" for row in [list(rows[0]), *(row.values() for row in rows)])


class MissingModule(ProgramTest):
    def test_the_message_names_the_way_to_read_parquet(self):
        # Alone in its folder the program finds no module, and works but for Parquet files.
        alone = self.folder / "alone" / "trifold"
        alone.parent.mkdir()
        shutil.copy2(TRIFOLD, alone)
        (self.folder / "a.parquet").write_bytes(b"PAR1")
        (self.folder / "a.csv").write_text("label,C1\n1,2\n0,3\n")
        environment = {name: value for name, value in os.environ.items() if name != "TRIFOLD_MODULE_PATH"}

        def run(source):
            return subprocess.run([alone, "preprocess", "--input", source, "--output", "out", "--threads", "1"], cwd=self.folder, env=environment,
                                  capture_output=True, text=True, timeout=60, check=False)
        done = run("a.parquet")
        self.assertEqual(done.returncode, 1, done.stderr)
        for words in ("a.parquet: the module trifold_parquet.so, which reads and writes Parquet files, cannot be loaded", "pip install pyarrow", "TRIFOLD_MODULE_PATH"):
            self.assertIn(words, done.stderr)
        self.assertEqual(run("a.csv").returncode, 0)

    def test_other_commands_lead_to_preprocess(self):
        for name in ("a.parquet", "a.npz", "a_labels.npy"):
            (self.folder / name).write_bytes(b"PAR1")
            _, err = self.trifold("recommend", "--train-data", name, status=2)
            self.assertIn("files must be preprocessed", err)


@unittest.skipIf(pyarrow is None, "pyarrow is missing: pip install pyarrow")
@unittest.skipUnless(MODULE.exists(), "trifold_parquet.so was not built: CMake found no Apache Arrow")
class Parquet(ProgramTest):
    def write(self, name, columns, **options):
        (self.folder / name).parent.mkdir(exist_ok=True)
        table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
        pyarrow.parquet.write_table(table, self.folder / name, **options)

    def preprocess(self, source, target, *columns, **options):
        sources = source if isinstance(source, list) else [source]
        if (self.folder / target).exists():
            shutil.rmtree(self.folder / target)
        return self.trifold("preprocess", "--input", *sources, "--output", target, *columns, **options)

    def content(self, name):
        """All files of a folder of clicks but its description, and the tables of that."""
        folder = self.folder / name
        manifest = json.loads((folder / "clicks.json").read_text())
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "clicks.json"}, manifest["tables"], manifest["samples"]

    def ids(self, folder, table):
        width = next(t["id_bytes"] for t in json.loads((self.folder / folder / "clicks.json").read_text())["tables"] if t["name"] == table)
        return [x for (x,) in struct.iter_unpack({1: "<B", 2: "<H", 4: "<I"}[width], (self.folder / folder / f"{table}.ids").read_bytes())]

    def test_a_file_gives_the_clicks_of_the_same_text(self):
        rows = list(shop(3000))
        (self.folder / "shop.csv").write_text(csv_of(rows))
        columns = ("--label", "bought", "--dense", "price,age", "--sparse", "user,city", "--bag", "tags:|,seen:|")
        self.preprocess("shop.csv", "text", *columns, "--threads", 2)
        wanted = self.content("text")
        table = pyarrow.Table.from_pylist(rows)
        arrow = pyarrow
        kinds = {
            "plain": table,
            "narrow": table.cast(arrow.schema([("bought", arrow.int8()), ("price", arrow.float32()), ("age", arrow.uint8()), ("user", arrow.int16()),
                                               ("city", arrow.large_string()), ("tags", arrow.large_list(arrow.string())), ("seen", arrow.list_(arrow.uint16()))])),
            "real": table.cast(arrow.schema([("bought", arrow.float64()), ("price", arrow.float32()), ("age", arrow.float32()), ("user", arrow.float64()),
                                             ("city", arrow.binary()), ("tags", arrow.list_(arrow.large_string())), ("seen", arrow.list_(arrow.float32()))])),
            "dictionary": table.set_column(4, "city", table["city"].dictionary_encode()).set_column(0, "bought", table["bought"].cast(arrow.bool_())),
            "text": table.set_column(5, "tags", arrow.array([None if row["tags"] is None else " |".join(row["tags"]) for row in rows]))
                         .set_column(3, "user", table["user"].cast(arrow.string())).set_column(1, "price", table["price"].cast(arrow.string())),
            "turned": table.select(table.column_names[::-1]).append_column("more", table["city"]),
        }
        for name, kind in kinds.items():
            for options in ({}, {"row_group_size": 700, "compression": "zstd", "use_dictionary": False, "write_page_checksum": True}):
                self.write(f"{name}.parquet", kind, **options)
                for threads in (1, 2):
                    self.preprocess(f"{name}.parquet", "out", *columns, "--threads", threads)
                    self.assertEqual(self.content("out"), wanted, (name, options))
        # Lists need no character; several files, a folder, and text beside them.
        self.preprocess("plain.parquet", "out", *SHOP[:-4], "--bag", "tags,seen", "--threads", 2)
        self.assertEqual(self.content("out"), wanted)
        self.write("parts/a.parquet", table.slice(0, 1300))
        self.write("parts/b.parquet", table.slice(1300), row_group_size=64)
        for source in ("parts", ["parts/a.parquet", "parts/b.parquet"]):
            self.preprocess(source, "out", *columns, "--threads", 2)
            self.assertEqual(self.content("out"), wanted)
        (self.folder / "parts/b.parquet").unlink()
        (self.folder / "parts/b.csv").write_text(csv_of(rows[1300:]))
        self.preprocess("parts", "out", *columns, "--threads", 2)
        self.assertEqual(self.content("out"), wanted)
        # Dictionaries of text are those of Parquet files, too.
        self.preprocess("plain.parquet", "out", *columns, "--dictionaries-of", "text", "--threads", 2)
        self.assertEqual(self.content("out"), wanted)

    def test_labels_missing_values_and_rows_left_out(self):
        self.write("r.parquet", {"rating": [4.5, 3.0, 4.0, None], "item": [7, 8, -1, 7], "age": [1.0, float("nan"), -1.0, 5.0], "kind": ["a", "b", None, "?"]})
        for rule, wanted in (("rating>=4", [1, 0, 1]), ("rating==3", [0, 1, 0]), ("rating!=3.0", [1, 0, 1])):
            _, err = self.preprocess("r.parquet", "out", "--label", rule, "--sparse", "item,kind", "--dense", "age", "--max-malformed", 0.5,
                                      "--missing-values", "?", "-1", "--threads", 1)
            self.assertIn("1 of 4 lines is malformed and left out", err)
            self.assertIn(f"r.parquet:3: row group 0, column rating: 'null' is not a number, which --label {rule} needs", err)
            self.assertEqual(list((self.folder / "out" / "labels.bin").read_bytes()), wanted)
            self.assertEqual(struct.unpack("<3f", (self.folder / "out" / "dense.bin").read_bytes())[1:], (0, 0))
            self.assertEqual(self.ids("out", "item"), [2, 3, 0])
            self.assertEqual(self.ids("out", "kind"), [2, 3, 0])
        table = pyarrow.table({"who": ["u1", "u2", "u1"], "ok": [True, False, True], "c": [0.5, 1.0, 2.0],
                               "big": pyarrow.array([1 << 63, (1 << 64) - 1, 5], pyarrow.uint64())})
        self.write("t.parquet", table)
        self.preprocess("t.parquet", "out", "--label", "who==u1", "--sparse", "big,ok", "--threads", 1)
        self.assertEqual((list((self.folder / "out" / "labels.bin").read_bytes()), self.ids("out", "big"), self.ids("out", "ok")), ([1, 0, 1], [2, 3, 4], [2, 3, 2]))
        self.preprocess("t.parquet", "out", "--label", "ok==True", "--sparse", "who", "--threads", 1)
        self.assertEqual(list((self.folder / "out" / "labels.bin").read_bytes()), [1, 0, 1])
        self.preprocess("t.parquet", "out", "--label", "ok", "--sparse", "c", "--threads", 1)
        self.assertEqual(self.ids("out", "c"), [2, 3, 4])

    def test_columns_with_the_usual_names_need_no_options(self):
        rows = [(i % 2, [i, i + 1], [i % 5, -(i % 3)]) for i in range(100)]
        columns = {"label": [y for y, _, _ in rows], "I1": [d[0] for _, d, _ in rows], "I2": [d[1] for _, d, _ in rows],
                   "C1": pyarrow.array([c[0] for _, _, c in rows], pyarrow.int32()), "C2": pyarrow.array([c[1] for _, _, c in rows], pyarrow.int32())}
        self.write("narrow.parquet", columns)
        columns["C2"] = columns["C2"].cast(pyarrow.int64())
        self.write("wide.parquet", columns)
        columns["C2"] = pyarrow.array([c[1] % (1 << 32) for _, _, c in rows], pyarrow.uint32())
        self.write("unsigned.parquet", columns)
        names = ("label", "I1", "I2", "C1", "C2")
        (self.folder / "text.csv").write_text(",".join(names) + "\n" + "".join(f"{y},{d[0]},{d[1]},{c[0]},{c[1] % (1 << 32)}\n" for y, d, c in rows))
        self.preprocess("text.csv", "text", "--threads", 1)
        for name in ("narrow", "wide", "unsigned"):  # -1 is the same id whatever its type
            self.preprocess(f"{name}.parquet", "out", "--threads", 1)
            self.assertEqual(self.content("out"), self.content("text"), name)
        # Lists are bags, whose tables come last.
        columns["C1"] = pyarrow.array([[c[0], c[0] + 1] for _, _, c in rows], pyarrow.list_(pyarrow.int64()))
        self.write("lists.parquet", columns)
        self.preprocess("lists.parquet", "out", "--threads", 1)
        self.assertEqual([(table["name"], table.get("most_ids")) for table in self.content("out")[1]], [("C2", None), ("C1", 2)])

    def test_long_bags_can_be_cut(self):
        bags = [[1, 2], list(range(500)), [], [7]] + [[3]] * 60
        self.write("long.parquet", {"y": [0, 1] * 32, "words": bags})
        columns = ("--label", "y", "--bag", "words", "--threads", 1)
        _, err = self.preprocess("long.parquet", "out", *columns)
        self.assertIn("table words: sample 1 has 500 ids, a bag 8.8 on average", err)
        self.assertIn("--max-bag N keeps the first N ids of each", err)
        _, err = self.preprocess("long.parquet", "cut", *columns, "--max-bag", 3)
        self.assertIn("table words: 1 of 64 bags were longer than --max-bag 3; their first ids were kept", err)
        manifest = json.loads((self.folder / "cut" / "clicks.json").read_text())
        self.assertEqual((manifest["max_bag"], manifest["tables"][0]["cut_bags"], manifest["tables"][0]["most_ids"]), (3, 1, 3))
        self.assertEqual(self.ids("cut", "words")[:6], [2, 3, 4, 2, 3, 5])

    def test_texts_of_lists_may_have_weights(self):
        rows = [["a:0.5", "b:2"], None, ["b:-1", None, "", "c:1"]]
        self.write("w.parquet", {"y": [0, 1, 0], "words": rows, "numbers": [[1], [2], [3]]})
        self.preprocess("w.parquet", "out", "--label", "y", "--bag", "words", "--bag-weights", "words", "--threads", 1)
        self.assertEqual(self.ids("out", "words"), [2, 3, 3, 4])
        self.assertEqual(struct.unpack("<4f", (self.folder / "out" / "words.weights").read_bytes()), (0.5, 2, -1, 1))
        _, err = self.preprocess("w.parquet", "out", "--label", "y", "--bag", "numbers", "--bag-weights", "numbers", "--threads", 1, status=2)
        self.assertIn("column numbers of --bag-weights is list of int64; it needs texts with weights, like a:0.5", err)
        self.write("x.parquet", {"y": [0], "words": [["a:0.5", "b"]]})
        _, err = self.preprocess("x.parquet", "out", "--label", "y", "--bag", "words", "--bag-weights", "words", "--threads", 1, status=2)
        self.assertIn("x.parquet:0: row group 0, column words: 'b' is not a text with a weight, like a:0.5", err)

    def test_maps_and_parallel_lists_are_weighted_bags(self):
        maps = [[("a", 0.5), ("b", 2.0)], None, [("b", -1.0), ("k:v", 100.0)], []]
        words = [["a", "b"], None, ["b", None, "k:v"], []]
        weights = [[0.5, 2], None, [-1, 7, 100], []]
        map_type = pyarrow.map_(pyarrow.string(), pyarrow.float32())
        text = ["a:0.5|b:2", "", "b:-1|k:v:100", ""]
        for name, columns in (("map", {"words": pyarrow.array(maps, map_type)}), ("slice", {"words": pyarrow.array([[("z", 1.0)], *maps], map_type).slice(1)}),
                              ("lists", {"words": words, "w": weights}), ("texts", {"words": ["a|b", "", "b||k:v", ""], "w": ["0.5|2", "", "-1|7|100", ""]}),
                              ("text", {"words": text})):
            self.write(name + ".parquet", pyarrow.table({"y": [0, 1, 0, 1], **columns}))
            bag = ("--bag", "words" if name in ("map", "slice", "lists") else "words:|", "--bag-weights", "words:w" if "w" in columns else "words")
            self.preprocess(name + ".parquet", name, "--label", "y", *bag, "--threads", 1)
            for file in ("words.ids", "words.ends", "words.weights", "words.dict"):
                self.assertEqual((self.folder / name / file).read_bytes(), (self.folder / "map" / file).read_bytes(), (name, file))
        self.assertEqual(self.ids("map", "words"), [2, 3, 3, 4])
        self.assertEqual(struct.unpack("<4f", (self.folder / "map" / "words.weights").read_bytes()), (0.5, 2, -1, 100))
        self.write("uneven.parquet", {"y": [0], "words": [["a"]], "w": [[1.0, 2.0]]})
        _, err = self.preprocess("uneven.parquet", "x", "--label", "y", "--bag", "words", "--bag-weights", "words:w", "--threads", 1, status=2)
        self.assertIn("a bag has another number of values than of weights", err)
        _, err = self.preprocess("map.parquet", "x", "--label", "y", "--bag", "words", "--threads", 1, status=2)
        self.assertIn("column words is map, which holds a bag and its weights: name it with --bag and --bag-weights", err)

    def test_dates_and_timestamps_are_those_of_text(self):
        seconds = [1711908330, None, 1711908330 - 86400 * 100, -1]
        text = ["2024-03-31 18:05:30", "", "2023-12-22 18:05:30", "1969-12-31 23:59:59"]
        columns = ("--label", "y", "--dense", "t@days", "--sparse", "t,t@weekday,t@hour", "--threads", 1)
        (self.folder / "t.csv").write_text("y,t\n" + "".join(f"{i % 2},{time}\n" for i, time in enumerate(text)))
        self.preprocess("t.csv", "csv", *columns)
        for unit, factor in (("s", 1), ("ms", 1000), ("us", 10 ** 6), ("ns", 10 ** 9)):
            times = pyarrow.array([None if s is None else s * factor for s in seconds], pyarrow.timestamp(unit))
            self.write(f"{unit}.parquet", pyarrow.table({"y": [0, 1, 0, 1], "t": times}))
            self.preprocess(f"{unit}.parquet", unit, *columns)
            for file in ("dense.bin", "t.ids", "t.dict", "t_weekday.ids", "t_weekday.dict", "t_hour.ids", "t_hour.dict"):
                self.assertEqual((self.folder / unit / file).read_bytes(), (self.folder / "csv" / file).read_bytes(), (unit, file))
        self.write("date.parquet", pyarrow.table({"y": [0, 1], "t": pyarrow.array([19813, None], pyarrow.date32())}))
        (self.folder / "date.csv").write_text("y,t\n0,2024-03-31\n1,\n")
        for kind in ("csv", "parquet"):
            self.preprocess(f"date.{kind}", f"date-{kind}", *columns)
        for file in ("dense.bin", "t.dict", "t_weekday.dict"):
            self.assertEqual((self.folder / "date-parquet" / file).read_bytes(), (self.folder / "date-csv" / file).read_bytes(), file)
        _, err = self.preprocess("s.parquet", "x", "--label", "y", "--dense", "t", "--sparse", "y", "--threads", 1, status=2)
        self.assertIn("a label is no feature", err)
        _, err = self.preprocess("s.parquet", "x", "--label", "y", "--dense", "t", "--sparse", "t", "--threads", 1, status=2)
        self.assertIn("column t is timestamp: --dense takes a part of it, such as t@days, t@hour or t@weekday", err)

    def test_mistakes_are_named(self):
        rows = pyarrow.Table.from_pylist(list(shop(50)))
        self.write("shop.parquet", rows.append_column("day", pyarrow.array([0] * 50, pyarrow.duration("s"))))
        for old, new, words in (
                ("price,age", "price,agee", "shop.parquet: --dense names the column 'agee', but the file has bought, price, age, user, city, tags, seen, day"),
                ("user,city", "user,tags", "--bag names the column 'tags', which another option names already"),
                ("tags:|,seen", "tags:|,city,seen", "--bag names the column 'city', which another option names already"),
                ("user,city", "user,day", "shop.parquet: column day is duration; columns of whole numbers, numbers, decimals, bool, text, dates, timestamps"),
                ("price,age", "seen", "shop.parquet: column seen is list of int64, not one value a row: a label and a number are one value"),
                ("tags:|,seen", "tags,user", "--bag names the column 'user', which another option names already"),
                ("bought", "city>=4", "--sparse names the column 'city', which another option names already")):
            columns = [new if word == old else word for word in SHOP]
            _, err = self.preprocess("shop.parquet", "out", *columns, status=2)
            self.assertIn(words, err)
        for columns, words in (
                (("--label", "bought", "--sparse", "tags"), "column tags is list of string, not one value a row: name it with --bag"),
                (("--label", "bought", "--sparse", "city", "--dense", "seen"), "column seen is list of int64, not one value a row"),
                (("--label", "bought", "--bag", "city"), "column city of --bag is string, not a list: give the character between its texts, like city:|"),
                (("--label", "bought", "--bag", "age"), "column age of --bag is int64, neither a list nor a text of several values: name it with --sparse"),
                (("--label", "city", "--sparse", "user"), "is not a label: 0, 1, false or true"),
                (("--label", "bought", "--dense", "city", "--sparse", "user"), "column city: 'Oslo' is not a number"),
                (("--data-format", "csv"), "shop.parquet is a Parquet file, which --data-format csv does not read: leave it out"),
                ((), "shop.parquet: the file names no column of ids (C1, C2 ... or cat_0, cat_1 ...)")):
            _, err = self.preprocess("shop.parquet", "out", *columns, "--threads", 1, status=2)
            self.assertIn(words, err)
        self.write("hex.parquet", {"label": [0, 1], "C1": ["4f", "aa"]})
        _, err = self.preprocess("hex.parquet", "out", "--threads", 1, status=2)
        self.assertIn("hex.parquet: column C1 is string, not whole numbers: --label, --dense and --sparse name columns of any type", err)
        self.write("nested.parquet", {"y": [0, 1], "c": [{"a": 1}, {"a": 2}], "d": [[[1]], [[2]]]})
        for column, words in (("c", "column c is struct;"), ("d", "column d is list of list of int64")):
            _, err = self.preprocess("nested.parquet", "out", "--label", "y", "--bag" if column == "d" else "--sparse", column, "--threads", 1, status=2)
            self.assertIn(words, err)
        self.write("none.parquet", {"y": pyarrow.array([], pyarrow.int8()), "c": pyarrow.array([], pyarrow.int8())})
        _, err = self.preprocess("none.parquet", "out", "--label", "y", "--sparse", "c", "--threads", 1, status=2)
        self.assertIn("none.parquet contains no samples", err)

    def test_decimals_and_texts_of_other_types(self):
        """Decimals are numbers, and texts may be views or of a fixed size: the clicks of the same text."""
        arrow, number = pyarrow, decimal.Decimal
        prices, big = ["1.50", "-2.25", None, "7.00", "99999999.99"], ["18446744073709551", "3", "-4", None, "3"]
        users, codes = ["a", "a name longer than twelve bytes", None, "", "a"], ["abcd", "efgh", "abcd", None, "wxyz"]
        self.write("types.parquet", {"y": [0, 1, 0, 1, 0], "price": arrow.array([None if x is None else number(x) for x in prices], arrow.decimal128(10, 2)),
                                     "big": arrow.array([None if x is None else number(x) for x in big], arrow.decimal128(38, 0)),
                                     "half": arrow.array([None if x is None else number(x).quantize(number("1.00")) for x in big], arrow.decimal128(38, 2)),
                                     "user": arrow.array(users, arrow.string_view()), "code": arrow.array(codes).cast(arrow.binary()).cast(arrow.binary(4))})
        rows = zip("01010", prices, big, big, users, codes)
        (self.folder / "types.csv").write_text("y,price,big,half,user,code\n" + "".join(",".join(x or "" for x in row) + "\n" for row in rows))
        columns = ("--label", "y", "--dense", "half", "--dense-transform", "none", "--sparse", "big,price,user,code", "--threads", 1)
        for source in ("types.csv", "types.parquet"):
            self.preprocess(source, source[6:], *columns)
        self.assertEqual(self.content("csv"), self.content("parquet"))

    def test_decimals_of_more_digits_than_a_double_are_exact(self):
        """A number of any size is the id of its text, with the digits of its type; a column of whole ids takes no fraction, although the nearest double
        is whole."""
        def column(*texts, digits):
            return pyarrow.array([decimal.Decimal(text) for text in texts], pyarrow.decimal128(38, digits))

        wide = ["90000000000000000001", "90000000000000000002", "90000000000000000001", "-7"]
        self.write("wide.parquet", {"y": [0, 1, 0, 1], "wide": column(*wide, digits=0), "zeros": column(*wide, digits=4)})
        (self.folder / "wide.csv").write_text("y,wide,zeros\n" + "".join(f"{i % 2},{text},{text}\n" for i, text in enumerate(wide)))
        for source in ("wide.csv", "wide.parquet"):
            self.preprocess(source, source[5:], "--label", "y", "--sparse", "wide,zeros", "--threads", 1)
        self.assertEqual(self.content("csv"), self.content("parquet"))
        cents = ["12345678901234567.89", "-0.05", "12345678901234567.88", "2.50"]
        self.write("cents.parquet", {"y": [0, 1, 0, 1], "cents": column(*cents, digits=2)})
        (self.folder / "cents.csv").write_text("y,cents\n" + "".join(f"{i % 2},{text}\n" for i, text in enumerate(cents)))
        for source in ("cents.csv", "cents.parquet"):
            self.preprocess(source, source[6:], "--label", "y", "--sparse", "cents", "--threads", 1)
        self.assertEqual(self.content("csv"), self.content("parquet"))
        self.assertEqual(self.ids("csv", "cents"), [2, 3, 4, 5])
        self.write("whole.parquet", {"label": [0, 1], "C1": column(*cents[:2], digits=2)})
        _, err = self.preprocess("whole.parquet", "out", "--max-malformed", 1, "--threads", 1, status=2)
        for text in cents[:2]:
            self.assertIn(f"column C1: '{text}' is not an id: a whole number", err)

    def test_files_that_do_not_go_together(self):
        good = {"y": [0, 1], "age": [1.0, 2.0], "user": ["a", "b"], "x" * 300: [1, 2]}
        self.write("good.parquet", good)
        shutil.copy(self.folder / "good.parquet", self.folder / "good.csv")
        self.write("wide.parquet", {**good, "age": pyarrow.array([decimal.Decimal(1)] * 2, pyarrow.decimal256(50, 0))})
        self.write("lacks/a.parquet", good)
        self.write("lacks/b.parquet", {"y": [0], "user": ["a"]})
        self.write("other/a.parquet", good)
        self.write("other/b.parquet", {**good, "user": [{"a": 1}] * 2})
        self.write("unnamed/a.parquet", {"label": [0, 1], "C1": [1, 2]})
        self.write("unnamed/b.parquet", {"label": [0, 1], "C1": [[1], [2]]})
        self.write("unlabeled.parquet", {"C1": [1, 2]})
        self.write("empty.parquet", pyarrow.table({}))
        named = ("--label", "y", "--dense", "age", "--sparse", "user")
        for source, columns, words in (
                ("good.csv", named, "good.csv is a Parquet file: to read it, let its name end in .parquet"),
                ("wide.parquet", named, "wide.parquet: column age is decimal; columns of whole numbers, numbers, decimals, bool, text"),
                ("lacks", named, "lacks/b.parquet: --dense names the column 'age', but the file has y, user"),
                ("other", named, "other/b.parquet: column user is struct"),
                ("unnamed", (), "unnamed/b.parquet has 0 dense columns and 1 columns of ids (1 of bags), unnamed/a.parquet has 0 and 1 (0)"),
                ("unlabeled.parquet", (), "unlabeled.parquet has no column of labels (label, click or clicked) among C1"),
                ("empty.parquet", named, "empty.parquet: --label names the column 'y', but the file has none"),
                ("good.parquet", (*named[:-1], "x" * 300), "has a name of 300 bytes; that of a table, which names its files, has at most 200")):
            _, err = self.preprocess(source, "out", *columns, "--threads", 1, status=2)
            self.assertIn(words, err)
            self.assertEqual(err.count("trifold: "), 1)
            self.assertFalse((self.folder / "out").exists())

    def test_damage_is_one_message(self):
        self.write("good.parquet", pyarrow.Table.from_pylist(list(shop(4000))), row_group_size=1000, write_page_checksum=True, compression="none")
        good = (self.folder / "good.parquet").read_bytes()
        columns = ("--label", "bought", "--dense", "price,age", "--sparse", "user,city", "--bag", "tags,seen", "--threads", 1)
        about = pyarrow.parquet.ParquetFile(self.folder / "good.parquet").metadata
        column = about.row_group(2).column(1)
        place = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 10

        def refused(data, words):
            (self.folder / "bad.parquet").write_bytes(data)
            _, err = self.preprocess("bad.parquet", "out", *columns, status=2)
            self.assertIn(words, err)
            self.assertFalse((self.folder / "out").exists())
        refused(b"", "bad.parquet: the file is empty")
        refused(b"label,C1\n1,2\n", "bad.parquet cannot be read as Parquet: ")
        refused(good[:-100], "bad.parquet cannot be read as Parquet: ")
        refused(good[:-8] + (10 ** 9).to_bytes(4, "little") + b"PAR1", "bad.parquet cannot be read as Parquet: ")
        refused(good[:-4] + b"PARE", "bad.parquet cannot be read as Parquet: ")  # encrypted
        refused(good[:place] + bytes([good[place] ^ 255]) + good[place + 1:], "bad.parquet: row group 2 (of 4) cannot be read: ")
        # Never more than a message, wherever a byte is wrong.
        draw = random.Random(7)
        for number in range(40):
            damaged = bytearray(good)
            for _ in range(draw.choice((1, 3, 30))):
                first = len(good) - 3000 if number % 2 else 0
                damaged[draw.randrange(first, len(good))] = draw.randrange(256)
            (self.folder / "bad.parquet").write_bytes(damaged)
            if (self.folder / "out").exists():
                shutil.rmtree(self.folder / "out")
            done = subprocess.run([TRIFOLD, "preprocess", "--input", "bad.parquet", "--output", "out", *map(str, columns)], cwd=self.folder,
                                  capture_output=True, text=True, errors="replace", timeout=60, check=False)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            self.assertEqual(done.stderr.count("trifold: "), 0 if done.returncode == 0 else 1, done.stderr)

    def test_predictions_are_those_of_text(self):
        draw = random.Random(4)
        (self.folder / "a.csv").write_text("label,I1,C1,C2\n" + "".join(f"{draw.randrange(2)},{draw.randrange(9)},{draw.randrange(9)},{draw.randrange(30)}\n" for _ in range(1500)))
        (self.folder / "new.csv").write_text("I1,C1,C2\n" + "".join(f"{draw.randrange(9)},{draw.randrange(9)},{draw.randrange(30)}\n" for _ in range(700)))
        one = ("--threads-per-rank", 1)
        for more, kind in (((), "float"), (("--f64",), "double")):
            self.trifold("recommend", "--train-data", "a.csv", "--table-rows", 40, "--id-policy", "modulo", "--embedding-dim", 4, "--bottom-mlp", 4,
                         "--top-mlp", "8-1", "--global-batch-size", 100, "--save", f"run_{kind}", *more, *one)
            for data, ranks in (("a.csv", 1), ("new.csv", 2)):
                score = ("score", "--load", f"run_{kind}", "--data", data, "--global-batch-size", 256, "--ranks", ranks, *one)
                text, _ = self.trifold(*score, "--output", "-")
                self.trifold(*score, "--output", "scores.parquet")
                table = pyarrow.parquet.read_table(self.folder / "scores.parquet")
                names = text.splitlines()[0].split(",")
                self.assertEqual([(field.name, str(field.type)) for field in table.schema],
                                 [(name, {"sample": "int64", "label": "int8", "probability": kind}[name]) for name in names])
                lines = [line.split(",") for line in text.splitlines()[1:]]
                for c, name in enumerate(names):
                    got = table[name].cast(pyarrow.float64()).to_pylist()
                    wanted = [float(line[c]) for line in lines]
                    self.assertTrue(all(abs(g - w) < 1e-7 for g, w in zip(got, wanted, strict=True)), name)
        # To the standard output, byte by byte; and nothing where the output has no such name.
        done = subprocess.run([TRIFOLD, *map(str, score), "--output", "-", "--output-format", "parquet"], cwd=self.folder, capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stdout, (self.folder / "scores.parquet").read_bytes())

    def test_rows_without_label_are_predicted_and_columns_kept(self):
        one = ("--threads-per-rank", 1)
        (self.folder / "a.csv").write_text("click,user,age\n" + "".join(f"{i % 2},{i % 5},{i % 9}\n" for i in range(60)))
        self.trifold("preprocess", "--input", "a.csv", "--output", "a", "--label", "click", "--dense", "age", "--sparse", "user", "--threads", 1)
        self.trifold("recommend", "--train-data", "a", "--embedding-dim", 4, "--bottom-mlp", 4, "--top-mlp", "4-1", "--interaction", "cat", "--global-batch-size", 20, "--save", "run", *one)
        columns = {"click": [1.0, None, 0.0, float("nan")], "user": [1, 2, None, 4], "order": ["a", "", None, "d, e"], "age": [1, 2, None, 4]}
        pyarrow.parquet.write_table(pyarrow.table(columns), self.folder / "new.parquet")
        (self.folder / "new.csv").write_text('click,user,order,age\n1,1,a,1\n,2,,2\n0,,,\n,4,"d, e",4\n')
        texts = []
        for source in ("new.parquet", "new.csv"):
            score = ("score", "--load", "run", "--data", source, "--keep", "user,order", *one)
            texts.append(self.trifold(*score, "--output", "-")[0])
            self.trifold(*score, "--output", "out.parquet")
            table = pyarrow.parquet.read_table(self.folder / "out.parquet")
            self.assertEqual([(field.name, str(field.type)) for field in table.schema],
                             [("sample", "int64"), ("user", "string"), ("order", "string"), ("label", "int8"), ("probability", "float")])
            self.assertEqual(table["label"].to_pylist(), [1, None, 0, None])
            self.assertEqual(table["user"].to_pylist(), ["1", "2", None, "4"])
            self.assertEqual(table["order"].to_pylist(), ["a", None, None, "d, e"])
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(len(texts[0].splitlines()), 5)
        # A malformed row has a number, and no prediction.
        pyarrow.parquet.write_table(pyarrow.table({"click": ["1"] * 201, "user": [1] * 201, "age": ["30"] * 200 + ["young"]}), self.folder / "bad.parquet")
        _, err = self.trifold("score", "--load", "run", "--data", "bad.parquet", "--output", "out.parquet", "--keep", "user", *one)
        table = pyarrow.parquet.read_table(self.folder / "out.parquet")
        self.assertIn("200 predictions, and 1 row without one, by", err)
        self.assertEqual(table["sample"].to_pylist(), list(range(201)))
        self.assertEqual(table.slice(199, 2)["probability"].is_null().to_pylist(), [False, True])

    def test_memory_does_not_grow_with_the_file(self):
        count = 1 << 20
        draw = random.Random(2)
        block = pyarrow.array([draw.randrange(1 << 20) for _ in range(1 << 16)], pyarrow.int64())
        column = pyarrow.chunked_array([block] * (count >> 16))
        table = pyarrow.table({"label": pyarrow.array([0, 1] * (count // 2), pyarrow.int8()), **{f"C{i}": column for i in range(1, 9)}})
        peaks = {}
        for rows in (count // 8, count):  # in one row group: 8 and 64 MiB of ids
            self.write("big.parquet", table.slice(0, rows), row_group_size=count, use_dictionary=False, compression="none")
            _, err = self.preprocess("big.parquet", "out", "--threads", 1, prefix=("/usr/bin/env", "python3", "-c", PEAK))
            peaks[rows] = int(err.rsplit("peak ", 1)[1])
        self.assertLess(peaks[count] - peaks[count // 8], 24 << 10, peaks)


# Runs the rest of the command line, and says how many KiB were resident at most.
PEAK = """import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(status)"""


if __name__ == "__main__":
    unittest.main()
