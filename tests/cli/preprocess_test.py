"""Tables with arbitrary columns become clicks: `preprocess` with options for the columns, and a model trained on the
result."""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import random
import shutil
import struct
import subprocess
import unittest
import zipfile

from program import ProgramTest

ADULT = ("--label", "income==>50K", "--dense", "age,hours-per-week,member", "--sparse", "job,home country", "--missing-values", "?", "--threads", 2)
JOBS = ('sales', 'craft, repair', 'say "no"', 'Käse', 'clerk')


def hash_of(text, seed=0):
    """64-bit FNV-1a that starts from the seed, and SplitMix64's finaliser."""
    mask = (1 << 64) - 1
    value = 0xcbf29ce484222325 ^ (seed * 0x9e3779b97f4a7c15 & mask)
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 & mask
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9 & mask
    value = (value ^ value >> 27) * 0x94d049bb133111eb & mask
    return value ^ value >> 31


def people(count, seed=1):
    """Rows of age, job, hours, member, country, remark and income, which follows from job and hours."""
    draw = random.Random(seed)
    for _ in range(count):
        job, hours = draw.randrange(len(JOBS)), draw.randrange(10, 80)
        rich = draw.random() < 1 / (1 + math.exp(-(job - 2) - (hours - 45) / 15))
        yield [draw.choice((draw.randrange(17, 90), "?")), JOBS[job], hours + 0.5, draw.choice(("True", "False", "")),
               draw.choice(("Peru", "Laos", "?", "")), 'a "free" remark, with commas', ">50K" if rich else "<=50K"]


HEADER = ["age", "job", "hours-per-week", "member", "home country", "remark", "income"]


def text_of(rows, delimiter=",", header=HEADER):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def npy_of(kind, shape, values, order="False"):
    letter = {"<i4": "i", "<i8": "q", "<f4": "f", "<f8": "d", "|u1": "B", ">i4": "i"}[kind]
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    body = struct.pack(f"<{len(values)}{letter}", *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


class Preprocess(ProgramTest):
    def preprocess(self, source, target, *arguments, columns=ADULT, **options):
        sources = source if isinstance(source, list) else [source]
        return self.trifold("preprocess", "--input", *sources, "--output", target, *columns, *arguments, **options)

    def write(self, name, text):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def folder_of(self, name):
        """Labels, dense numbers and ids of a folder of clicks."""
        folder = self.folder / name
        manifest = json.loads((folder / "clicks.json").read_text())
        labels = list((folder / "labels.bin").read_bytes())
        dense = [value for (value,) in struct.iter_unpack("<f", (folder / "dense.bin").read_bytes())]
        ids = {table["name"]: [value for (value,) in struct.iter_unpack({1: "<B", 2: "<H", 4: "<I"}[table["id_bytes"]],
                                                                          (folder / f"{table['name']}.ids").read_bytes())]
               for table in manifest["tables"]}
        return manifest, labels, dense, ids

    def test_a_missing_value_may_be_a_number(self):
        rows = list(people(100))
        for name, missing in (("text.csv", "?"), ("number.csv", "-1")):
            self.write(name, text_of([[missing if value == "?" else value for value in row] for row in rows]))
        self.preprocess("text.csv", "text")
        self.preprocess("number.csv", "number", columns=(*ADULT[:-4], "--missing-values", "-1", "--threads", 2))
        self.assertEqual(self.folder_of("number")[1:], self.folder_of("text")[1:])

    def test_columns_are_what_the_options_say(self):
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
        _, told = self.preprocess("b.csv", "x", "--dictionaries-of", "a", "--hash-seed", 3, columns=columns, status=2)
        self.assertIn("a was made with --hash-seed 0", told)
        hashed = ("--ids", "hash", "--max-ind-range", 1000)
        self.preprocess("a.csv", "h", *hashed, columns=columns)
        self.preprocess("a.csv", "again", *hashed, columns=columns)
        self.preprocess("a.csv", "seed", *hashed, "--hash-seed", 5, columns=columns)
        for folder, seed in (("h", 0), ("again", 0), ("seed", 5)):
            self.assertEqual(self.folder_of(folder)[3]["c"], [hash_of(name, seed) % 1000 for name in "aabbbcd"])

    def bags(self, name):
        """The bags of each table of bags, and those of one id as bags too."""
        manifest, labels, _, ids = self.folder_of(name)
        found = {}
        for table in manifest["tables"]:
            path = self.folder / name / f"{table['name']}.ends"
            ends = [end for (end,) in struct.iter_unpack("<Q", path.read_bytes())] if path.exists() else range(1, len(labels) + 1)
            found[table["name"]] = [ids[table["name"]][begin:end] for begin, end in zip([0, *ends], ends)]
        return manifest, found

    def test_a_field_may_hold_a_bag(self):
        rows = ["1,u1,Action|Comedy,new old", "0,u2,,old", '1,u1," Comedy | ""Sci""|NA|Comedy",', "0,u3,|Action|, "]
        self.write("movies.csv", "y,user,genres:token_seq,tags\n" + "".join(row + "\n" for row in rows))
        columns = ("--label", "y", "--sparse", "user", "--bag", "genres:token_seq:|,tags:space")
        genres = [[2, 3], [], [3, 4, 3], [2]]
        for threads in (1, 2):
            self.preprocess("movies.csv", "out", "--threads", threads, columns=columns)
            manifest, found = self.bags("out")
            self.assertEqual(manifest["version"], 3)
            self.assertEqual(found, {"user": [[2], [3], [2], [4]], "genres_token_seq": genres, "tags": [[2, 3], [3], [], []]})
            self.assertEqual([table.get("most_ids") for table in manifest["tables"]], [None, 3, 2])
            shutil.rmtree(self.folder / "out")
        self.preprocess("movies.csv", "rare", "--threads", 1, "--frequency-threshold", 2, columns=columns)
        self.assertEqual(self.bags("rare")[1]["genres_token_seq"], [[2, 3], [], [3, 1, 3], [2]])
        self.preprocess("movies.csv", "hash", "--threads", 1, "--ids", "hash", "--max-ind-range", 1000, columns=columns)
        self.assertEqual(self.bags("hash")[1]["tags"], [[hash_of("new") % 1000, hash_of("old") % 1000], [hash_of("old") % 1000], [], []])
        # Later data: longer bags, and unseen texts.
        self.write("later.csv", "y,user,genres:token_seq,tags\n1,u9,Drama|Comedy|Action|Comedy,old\n")
        self.preprocess("later.csv", "later", "--threads", 1, "--dictionaries-of", "rare", columns=columns)
        self.assertEqual(self.bags("later")[1]["genres_token_seq"], [[1, 3, 2, 3]])
        for more, words in (
                (("--sparse", "user,tags", "--bag", "genres:token_seq:|"), "column 2 is tags here, genres_token_seq in rare"),
                (("--sparse", "user", "--bag", "tags"), "--bag tags: the fields of a text need the character between their values: give tags:| or tags:space"),
                (("--sparse", "user", "--bag", ":|"), "':|' is no column with the character between its texts, like genres:|"),
                (("--sparse", "user", "--max-bag", 2), "--max-bag 2: movies.csv has no column of bags: leave it out, or name one with --bag"),
                (("--sparse", "user", "--bag", "genres:||"), "'||' is no separator: one character that is no quote, or space, tab or comma"),
                (("--sparse", "user", "--bag", "kinds:|"), "movies.csv:1: --bag names the column 'kinds'"),
                (("--sparse", "user,genres:token_seq,tags"), "column genres_token_seq is of --bag in rare: give the same")):
            given = ("--dictionaries-of", "rare") if "in rare" in words else ()
            _, told = self.preprocess("movies.csv", "x", "--threads", 1, *given, columns=("--label", "y", *more), status=2)
            self.assertIn(words, told)

    def npy(self, name, kind, shape, values, order="False"):
        """Writes an array of NumPy's format, version 1: `kind` as in '<i4', for struct '<i'."""
        self.write(name, npy_of(kind, shape, values, order))

    def test_arrays_are_as_text_with_the_same_numbers(self):
        draw = random.Random(9)
        rows = [(draw.randrange(2), [draw.randrange(50) for _ in range(3)], [draw.choice((0, 7, 1 << 31, (1 << 32) - 5)) for _ in range(2)])
                for _ in range(40000)]
        self.write("text.csv", "label,I1,I2,I3,C1,C2\n" + "".join(f"{y},{','.join(map(str, dense + ids))}\n" for y, dense, ids in rows))
        options = ("--threads", 2, "--drop-negatives", 0)
        self.preprocess("text.csv", "text", columns=options)
        labels = [y for y, _, _ in rows]
        dense = [x for _, numbers, _ in rows for x in numbers]
        ids = [i for _, _, numbers in rows for i in numbers]
        wrapped = [i - (1 << 32) if i >= 1 << 31 else i for i in ids]  # as int32 holds a hash, and what is made of it
        for kinds, stored in ((("<i4", "<f4", "<i4"), wrapped), (("|u1", "<f8", "<f8"), ids), (("<i8", "<i4", "<i8"), ids),
                              (("<i8", "<i4", "<i8"), wrapped), (("<i8", "<i4", "<f8"), wrapped)):
            self.npy("all/day_0_labels.npy", kinds[0], (len(rows), 1), labels)
            self.npy("all/day_0_dense.npy", kinds[1], (len(rows), 3), dense)
            self.npy("all/day_0_sparse.npy", kinds[2], (len(rows), 2), stored)
            for source in ("all", "all/day_0_labels.npy"):
                self.preprocess(source, "out", columns=options)
                self.assertEqual(self.folder_of("out")[1:], self.folder_of("text")[1:], kinds)
                shutil.rmtree(self.folder / "out")
        # Several files, of which the second has the labels in one dim.
        self.npy("all/day_1_labels.npy", "<i4", (2,), [1, 0])
        self.npy("all/day_1_dense.npy", "<f4", (2, 3), [1, float("nan"), 3, 4, 5, 6])
        self.npy("all/day_1_sparse.npy", "<i4", (2, 2), [7, 7, 7, 8])
        self.preprocess("all", "out", columns=options)
        _, found, numbers, _ = self.folder_of("out")
        self.assertEqual(found, labels + [1, 0])
        self.assertEqual(numbers[-5], 0)  # a missing number
        self.npy("x_labels.npy", "<i4", (2,), [1, 0])
        self.npy("x_dense.npy", "<f4", (2, 1), [1, 2])
        for change, words in (
                (("x_labels.npy", "<i4", (2, 2), [1, 0, 1, 0]), "x_labels.npy: its shape is 2 x 2, one label for each sample is needed"),
                (("x_labels.npy", "<i4", (2,), [1, 2]), "x_labels.npy: the label of sample 1 is 2, not 0 or 1"),
                (("x_sparse.npy", "<f8", (2, 1), [1, 1.5]), "x_sparse.npy: sample 1, table 0: 1.5 is no id, which is a whole number"),
                (("x_sparse.npy", "<i4", (3, 1), [1, 2, 3]), "x_sparse.npy: its shape is 3 x 1, that of x_labels.npy is 2: a row for each sample"),
                (("x_sparse.npy", "<i4", (2, 1), [1]), "x_sparse.npy: has room for 1 numbers, its shape is 2 x 1: it is damaged"),
                (("x_sparse.npy", ">i4", (2, 1), [1, 2]), "x_sparse.npy: its numbers are '>i4', not little-endian integers, booleans or floats of 2, 4 or 8 bytes"),
                (("x_sparse.npy", "<i4", (2, 1), [1, 2], "True"), "x_sparse.npy: is in Fortran's order"),
                (("x_dense.npy", "<f4", (2, 1), [1, float("inf")]), "x_dense.npy: sample 1, dense feature 0 is inf, not a number")):
            self.npy("x_sparse.npy", "<i4", (2, 1), [1, 2])
            before = {path.name: path.read_bytes() for path in self.folder.glob("x_*.npy")}
            self.npy(*change)
            _, told = self.preprocess("x_labels.npy", "bad", columns=("--threads", 1), status=2)
            self.assertIn(words, told)
            for name, content in before.items():
                (self.folder / name).write_bytes(content)
        self.write("y_labels.npy", b"label,I1\n")
        for source, more, words in (("y_labels.npy", (), "y_labels.npy: is no array of NumPy's format .npy"),
                                    ("x_dense.npy", (), "x_dense.npy: arrays are given by the file of their labels, NAME_labels.npy"),
                                    ("x_labels.npy", ("--label", "y", "--sparse", "c"), "arrays have no names of columns"),
                                    ("x_labels.npy", ("--data-format", "csv"), "is an array, which --data-format csv does not read")):
            _, told = self.preprocess(source, "bad", columns=("--threads", 1, *more), status=2)
            self.assertIn(words, told)
        self.assertFalse((self.folder / "bad").exists())

    def npz(self, name, arrays, packed=True):
        """Writes an archive as numpy.savez and savez_compressed do: arrays are (kind, shape, values)."""
        with zipfile.ZipFile(self.folder / name, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
            for member, array in arrays.items():
                with archive.open(f"{member}.npy", "w", force_zip64=True) as file:  # as NumPy asks for it
                    file.write(npy_of(*array))

    def test_archives_of_arrays_are_as_arrays(self):
        draw = random.Random(11)
        count = 70000  # two pieces for each of two threads, and more
        labels = [draw.randrange(2) for _ in range(count)]
        dense = [draw.randrange(50) for _ in range(count * 3)]
        ids = [draw.randrange(500) for _ in range(count * 2)]
        self.npy("a_labels.npy", "<i4", (count,), labels)
        self.npy("a_dense.npy", "<i4", (count, 3), dense)
        self.npy("a_sparse.npy", "<i4", (count, 2), ids)
        self.preprocess("a_labels.npy", "wanted", columns=("--threads", 2))
        wanted = self.folder_of("wanted")[1:]
        arrays = {"X_cat": ("<f8", (count, 2), ids), "X_int": ("<i4", (count, 3), dense), "y": ("<i4", (count,), labels), "counts": ("<i4", (2,), [500, 500])}
        (self.folder / "days").mkdir()
        for packed in (True, False):
            self.npz("days/kaggleAdDisplayChallenge_processed.npz", arrays, packed)
            for source in ("days", "days/kaggleAdDisplayChallenge_processed.npz"):
                self.preprocess(source, "out", columns=("--threads", 2))
                self.assertEqual(self.folder_of("out")[1:], wanted)
                shutil.rmtree(self.folder / "out")

    def test_archives_of_bags(self):
        self.npy("b_labels.npy", "<i4", (3, 1), [1, 0, 1])
        self.npy("b_dense.npy", "<f4", (3, 0), [])
        self.npz("b_sparse_multi_hot.npz", {"0": ("<i4", (3, 2), [5, 6, 5, 5, 7, 0]), "1": ("<i4", (3, 1), [9, 8, 9])}, False)
        self.preprocess(".", "out", columns=("--threads", 1))
        manifest, found = self.bags("out")
        self.assertEqual(found, {"C1": [[2, 3], [2, 2], [4, 0]], "C2": [[2], [3], [2]]})
        self.assertEqual((manifest["dense"], [table["most_ids"] for table in manifest["tables"]]), (0, [2, 1]))
        _, told = self.preprocess("b_sparse_multi_hot.npz", "x", columns=("--threads", 1), status=2)
        self.assertIn("bags are given by the file of their labels, NAME_labels.npy, beside it", told)

    def test_what_is_wrong_with_archives(self):
        arrays = {"X_cat": ("<i4", (2, 1), [3, 4]), "X_int": ("<i4", (2, 1), [1, 2]), "y": ("<i4", (2,), [0, 1])}
        self.npz("good.npz", arrays)
        self.preprocess("good.npz", "out", columns=("--threads", 1))
        good = (self.folder / "good.npz").read_bytes()
        middle = good.index(b"X_cat.npy") + 60
        cases = [({"X_cat_t": arrays["X_cat"], "X_int": arrays["X_int"], "y": arrays["y"]}, "bad.npz: has X_cat_t, a table a row, as dlrm's first pass writes it"),
                 ({"X_cat": arrays["X_cat"], "X_int": arrays["X_int"]}, "bad.npz: has no array y; there are X_cat, X_int"),
                 ({**arrays, "X_int": ("<i4", (3, 1), [1, 2, 3])}, "bad.npz: X_int: its shape is 3 x 1, that of bad.npz: y is 2: a row for each sample"),
                 ({**arrays, "y": ("<i4", (2,), [0, 7])}, "bad.npz: y: the label of sample 1 is 7, not 0 or 1"),
                 ({**arrays, "X_cat": ("<f4", (2, 1), [3, 4.5])}, "bad.npz: X_cat: sample 1, table 0: 4.5 is no id, which is a whole number"),
                 ({**arrays, "y": ("<i4", (0,), []), "X_int": ("<i4", (0, 1), []), "X_cat": ("<i4", (0, 1), [])}, "bad.npz: there is no sample in it"),
                 (b"label,C1\n", "bad.npz: is no file of NumPy's format .npz, which is a zip archive"),
                 (good[:-30], "bad.npz: the zip archive has no directory at its end: the file is truncated, or damaged"),
                 (good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1:], "bad.npz: X_cat: ")]
        for content, words in cases:
            if isinstance(content, bytes):
                self.write("bad.npz", content)
            else:
                self.npz("bad.npz", content)
            _, told = self.preprocess("bad.npz", "bad", columns=("--threads", 1), status=2)
            self.assertIn(words, told)
        with zipfile.ZipFile(self.folder / "bad.npz", "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("y.npy", npy_of(*arrays["y"]))
        _, told = self.preprocess("bad.npz", "bad", columns=("--threads", 1), status=2)
        self.assertIn("bad.npz: y: is packed by method 12 of zip archives; stored and deflated arrays are read", told)

    def test_ids_of_a_bag_may_have_weights(self):
        rows = ["1,u1,a:0.5|b:2", "0,u2,", "1,u1, b : -1.25 |NA|k:v:1e2", "0,u3,c:0|a:3|b:1"]
        self.write("w.csv", "y,user,words\n" + "".join(row + "\n" for row in rows))
        columns = ("--label", "y", "--sparse", "user", "--bag", "words:|", "--bag-weights", "words", "--threads", 2)
        self.preprocess("w.csv", "out", columns=columns)
        manifest, found = self.bags("out")
        self.assertEqual((manifest["version"], manifest["tables"][1]["weighted"]), (4, True))
        self.assertEqual(found["words"], [[2, 3], [], [3, 4], [5, 2, 3]])

        def weights(name):
            return [x for (x,) in struct.iter_unpack("<f", (self.folder / name / "words.weights").read_bytes())]
        self.assertEqual(weights("out"), [0.5, 2, -1.25, 100, 0, 3, 1])
        self.preprocess("w.csv", "cut", "--max-bag", 1, columns=columns)
        self.assertEqual((self.bags("cut")[1]["words"], weights("cut")), ([[2], [], [3], [4]], [0.5, -1.25, 0]))
        for text, words in (("a", "'a|b:1' is not texts with a weight each, like a:0.5|b:2"), ("a:x", "'a:x|b:1' is not texts"), ("a:inf", "'a:inf|b:1' is not"),
                            ("a:", "'a:|b:1' is not")):
            self.write("bad.csv", f"y,user,words\n1,u1,{text}|b:1\n")
            _, told = self.preprocess("bad.csv", "x", columns=columns, status=2)
            self.assertIn("bad.csv:2: column words: " + words, told)
        for more, words in ((("--bag-weights", "user"), "--bag-weights names the column 'user', which --bag does not name"),
                            (("--dictionaries-of", "out"), "column words is of --bag-weights in out: give the same")):
            _, told = self.preprocess("w.csv", "x", *more, columns=columns[:6] + columns[-2:], status=2)
            self.assertIn(words, told)

    def test_weights_train_in_every_placement(self):
        draw = random.Random(8)
        rows = []
        for _ in range(2000):
            words = [(draw.randrange(12), draw.choice((0, 0.25, 1, 3))) for _ in range(draw.randrange(6))]
            score = sum(weight * (word % 3 - 1) for word, weight in words)
            rows.append((int(draw.random() < 1 / (1 + math.exp(-2 * score))), draw.randrange(5), words))

        def write(name, text_of_word):
            self.write(f"{name}.csv", "y,user,words\n" + "".join(f"{y},u{user},{'|'.join(text_of_word(*word) for word in words)}\n" for y, user, words in rows))
        write("weights", lambda word, weight: f"w{word}:{weight}")
        write("ones", lambda word, _: f"w{word}:1")
        write("plain", lambda word, _: f"w{word}")
        columns = ("--label", "y", "--sparse", "user", "--bag", "words:|", "--threads", 2)
        for name in ("weights", "ones"):
            self.preprocess(f"{name}.csv", name, "--bag-weights", "words", columns=columns)
        self.preprocess("plain.csv", "plain", columns=columns)

        def train(name, log, *more, **options):
            return self.trifold("recommend", "--train-data", name, "--embedding-dim", 4, "--bottom-mlp", 4, "--top-mlp", "8-1", "--interaction", "cat", "--global-batch-size", 100,
                                "--train-epochs", 3, "--lr", 0.3, "--embedding-optimizer", "rowwise-adagrad", "--embedding-lr", 0.1, "--threads-per-rank", 1,
                                "--log-json", log, *more, **options)
        for name in ("weights", "ones", "plain"):
            train(name, f"{name}.jsonl", "--save", f"run_{name}")
        self.assertEqual(self.losses("ones.jsonl"), self.losses("plain.jsonl"))
        one = self.losses("weights.jsonl")
        self.assertLess(sum(one[-10:]), sum(self.losses("plain.jsonl")[-10:]) - 0.3)  # the weights tell what the words alone do not
        for placement in ("table", "row", "column", "replicated"):
            train("weights", f"{placement}.jsonl", "--ranks", 2, "--placement", placement)
            for got, wanted in zip(self.losses(f"{placement}.jsonl"), one, strict=True):
                self.assertLess(abs(got - wanted), 2e-5, placement)
        # Data with weights and without do not mix.
        _, told = train("weights", "x.jsonl", "--valid-data", "plain", status=2)
        self.assertIn("ids have weights in weights, none in plain", told)
        _, told = self.trifold("evaluate", "--load", "run_weights", "--data", "plain", "--threads-per-rank", 1, status=2)
        self.assertIn("none in plain", told)
        self.trifold("evaluate", "--load", "run_weights", "--data", "weights", "--threads-per-rank", 1)
        file = self.folder / "weights" / "words.weights"
        whole = file.read_bytes()
        for damaged, words in ((whole[:-4], f"words.weights: has {len(whole) - 4} bytes; the {len(whole) // 4} ids of"), (b"\0\0\xc0\x7f" + whole[4:], "is nan, not a number")):
            file.write_bytes(damaged)
            _, told = train("weights", "x.jsonl", status=2)
            self.assertIn(words, told)

    def test_bags_may_be_cut(self):
        self.write("w.csv", "y,words\n1,a b c d\n0,b\n1,\n0,c d e\n")
        _, told = self.preprocess("w.csv", "out", "--max-bag", 2, columns=("--label", "y", "--bag", "words:space", "--threads", 1))
        self.assertIn("table words: 2 of 4 bags had more than 2 ids; the first 2 were kept", told)
        manifest, found = self.bags("out")
        self.assertEqual(found["words"], [[2, 3], [3], [], [4, 5]])
        self.assertEqual((manifest["max_bag"], manifest["tables"][0]["cut_bags"], manifest["tables"][0]["most_ids"]), (2, 2, 2))

    def test_names_of_columns_may_have_commas(self):
        self.write("c.csv", 'y,"last, first",city\n1,ab,x\n0,cd,x\n')
        self.preprocess("c.csv", "out", columns=("--label", "y", "--sparse", '"last, first",city', "--threads", 1))
        self.assertEqual(self.folder_of("out")[3], {"last__first": [2, 3], "city": [2, 2]})
        _, told = self.preprocess("c.csv", "x", columns=("--label", "y", "--sparse", '"last,city'), status=2)
        self.assertIn("has a quote that is not closed; a name with commas stands between quotes", told)

    def test_bags_train_in_every_placement(self):
        draw = random.Random(3)

        def rows(count, most):
            for _ in range(count):
                words = [draw.randrange(12) for _ in range(draw.randrange(most))]
                score = sum(word % 3 - 1 for word in words)
                yield f"{int(draw.random() < 1 / (1 + math.exp(-1.5 * score)))},u{draw.randrange(5)},{'|'.join(f'w{word}' for word in words)}\n"
        for name, count, most in (("train", 3000, 6), ("test", 1500, 9)):
            self.write(f"{name}.csv", "y,user,words\n" + "".join(rows(count, most)))
        columns = ("--label", "y", "--sparse", "user", "--bag", "words:|", "--threads", 2)
        self.preprocess("train.csv", "train", columns=columns)
        self.preprocess("test.csv", "test", "--dictionaries-of", "train", columns=columns)
        line = ("recommend", "--train-data", "train", "--valid-data", "test", "--embedding-dim", 4, "--bottom-mlp", 4, "--top-mlp", "8-1", "--interaction", "cat",
                "--global-batch-size", 100, "--train-epochs", 4, "--lr", 0.3, "--embedding-optimizer", "rowwise-adagrad",
                "--embedding-lr", 0.1, "--threads-per-rank", 1)
        self.trifold(*line, "--log-json", "one.jsonl", "--save", "run")
        auc = next(entry["valid_auc"] for entry in self.log("one.jsonl") if "valid_auc" in entry)
        self.assertGreater(auc, 0.8)  # the words alone decide
        one = self.losses("one.jsonl")
        for number, placement in enumerate(("table", "row", "column", "replicated", "row,replicated")):
            name = f"{number}.jsonl"
            self.trifold(*line, "--ranks", 3 if placement == "row" else 2, "--placement", placement, "--log-json", name)
            for got, wanted in zip(self.losses(name), one, strict=True):
                self.assertLess(abs(got - wanted), 2e-5, placement)
        self.trifold(*line, "--pooling", "mean", "--log-json", "mean.jsonl")
        self.assertNotEqual(self.losses("mean.jsonl"), one)
        out, _ = self.trifold("evaluate", "--load", "run", "--data", "test", "--ranks", 2, "--threads-per-rank", 1)
        self.assertIn(f"AUC {auc:.4f}", out)

        # Bags of one text equal a column with one text.
        self.write("ids.csv", "y,user,item\n" + "".join(f"{draw.randrange(2)},u{draw.randrange(9)},{draw.randrange(9)}\n" for _ in range(500)))
        self.preprocess("ids.csv", "plain", columns=("--label", "y", "--sparse", "user,item"))
        self.preprocess("ids.csv", "bag", columns=("--label", "y", "--sparse", "user", "--bag", "item:|"))
        for data in ("plain", "bag"):
            self.trifold("recommend", "--train-data", data, "--embedding-dim", 4, "--bottom-mlp", 4, "--top-mlp", "8-1", "--interaction", "cat", "--global-batch-size", 50,
                         "--threads-per-rank", 1, "--log-json", f"{data}.jsonl")
        self.assertEqual(self.losses("bag.jsonl"), self.losses("plain.jsonl"))

        # Damage is reported with file and sample.
        ends = self.folder / "train" / "words.ends"
        whole = ends.read_bytes()
        for damaged, words in ((whole[:-8], "words.ends: has 23992 bytes; 3000 samples of 8 bytes need 24000"),
                               (whole[:-8] + struct.pack("<Q", 1 << 40), f"words.ends ends at id {1 << 40}, and an id has 1 byte: one of the files is truncated"),
                               (whole[:800] + struct.pack("<Q", 1 << 40) + whole[808:], "words.ends: sample 10")):
            ends.write_bytes(damaged)
            _, told = self.trifold(*line, status=2)
            self.assertIn(words, told)
        ends.write_bytes(whole)
        ids = self.folder / "train" / "words.ids"
        numbers = ids.read_bytes()
        for damaged in (numbers[:-1], numbers + b"\0", b""):
            ids.write_bytes(damaged)
            _, told = self.trifold(*line, status=2)
            self.assertIn(f"words.ids: has {len(damaged)} bytes; the last bag in train/words.ends ends at id {len(numbers)}", told)

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
                 (good.rstrip() + "\r\n1,2\r\n", "bad.csv:52: column hours-per-week: the line ends after 2 fields; 7 are expected"),
                 (good.rstrip() + ",x\r\n", "bad.csv:51: column 8: the line has 8 fields, not 7"),
                 (good.rstrip() + "\r\n\r\n", "bad.csv:52: the line is empty")]
        for text, words in cases:
            self.write("bad.csv", text)
            _, told = self.preprocess("bad.csv", "out", "--max-malformed", 0, status=2)
            self.assertIn(words, told)
            _, told = self.preprocess("bad.csv", "out", "--max-malformed", 0.5)
            self.assertIn("1 of ", told)
            shutil.rmtree(self.folder / "out")
        for old, columns, words in (
                ("--dense", "age,heigth", "good.csv:1: --dense names the column 'heigth', the header has age, job, hours-per-week"),
                ("--sparse", "job,age", "--sparse names the column 'age', which an option names before"),
                ("--label", "income>50K", "'income>50K' compares with '50K', which is not a number: texts are compared by == and !="),
                ("--label", "income=x", "has none of the comparisons >= <= == != > <"),
                ("--separator", ";;", "';;' is not a separator"),
                ("--separator", ";", "good.csv:1: --label names the column 'income', the header has")):
            arguments = list(ADULT)
            if old in arguments:
                arguments[arguments.index(old) + 1] = columns
            else:
                arguments += [old, columns]
            _, told = self.preprocess("good.csv", "out", columns=arguments, status=2)
            self.assertIn(words, told)
        _, told = self.preprocess("good.csv", "out", columns=("--sparse", "job"), status=2)
        self.assertIn("--sparse has an effect only if options name the columns: give --label COLUMN too", told)
        self.write("empty/x.md", "")
        _, told = self.preprocess("empty", "out", status=2)
        self.assertIn("empty: is a folder without clicks: no name in it ends in .csv", told)
        for name, packed in (("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)):
            bytes_there = packed(good.encode() * 3)[:-20]
            self.write("cut.csv." + name, bytes_there)
            _, told = self.preprocess("cut.csv." + name, "out", status=2)
            self.assertRegex(told, rf"cut\.csv\.{name}: the \w+ file is truncated: it ends at byte {len(bytes_there)}, in the middle")
        self.assertFalse((self.folder / "out").exists() or (self.folder / "out.partial").exists())

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
