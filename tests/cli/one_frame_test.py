"""One table is one data set, whatever file holds it: the files of tests/data/one_frame, which pandas, pyarrow, duckdb and NumPy wrote of one
frame (tools/reference/one_frame.py), give the same bytes."""

import json
import os
import pathlib
import shutil
import struct
import unittest

from program import TRIFOLD, ProgramTest

FILES = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tests" / "data" / "one_frame"
MODULE = pathlib.Path(TRIFOLD).resolve().parents[1] / "lib" / "trifold_parquet.so"
SHOP = ("--label", "rating>=3.1", "--dense", "price,score,age,cents,member", "--sparse", "user,tenth,wide,item,hash,small,city,kind,day",
        "--bag", "tags:|", "--missing-values", "-1", "-99.9", "NA", "--dense-transform", "none")
FLAGS = ("--label", "rating>=3.1", "--sparse", "member,cents,score,age,price")


class OneFrame(ProgramTest):
    def content(self, name):
        """All files of a data set but for the names of its sources."""
        files = {path.name: path.read_bytes() for path in sorted((self.folder / name).iterdir())}
        manifest = json.loads(files.pop("clicks.json"))
        for key in ("sources", "columns"):  # lines have numbers of their own, separators differ
            manifest.pop(key, None)
        return manifest, files

    def same(self, stem, first, columns):
        """Preprocesses all files of a stem, compares them with the first, and returns it."""
        names = sorted(path.name for path in FILES.glob(f"{stem}_*"))
        self.assertGreater(len(names), 8)
        if not MODULE.exists():
            print("Parquet files are left out: trifold_parquet.so was not built, as CMake found no Apache Arrow")
            names = [name for name in names if not name.endswith(".parquet")]
        names.remove(first)
        wanted = None
        for name in (first, *names):
            tabs = ("--separator", "tab") if name.endswith(".tsv") else ()
            _, err = self.trifold("preprocess", "--input", FILES / name, "--output", name, "--threads", 1, *columns, *tabs)
            self.assertNotIn("malformed", err)
            content = self.content(name)
            shutil.rmtree(self.folder / name)
            if wanted is None:
                wanted = content
            self.assertEqual(content[0], wanted[0], name)
            for file, data in wanted[1].items():
                self.assertEqual(content[1][file], data, (name, file))
        return wanted[1]

    def test_columns_of_any_type(self):
        files = self.same("shop", "shop_minimal.csv", SHOP)
        expected = json.loads((FILES / "shop.json").read_text(encoding="utf-8"))
        rows = len(expected["labels"])
        self.assertEqual(list(files["labels.bin"]), expected["labels"])
        self.assertEqual(list(struct.unpack(f"<{5 * rows}f", files["dense.bin"])), [value for row in expected["dense"] for value in row])
        # Oslo, Lima, Tokyo, missing, Sao Paulo, Al, missing, missing, Sao Paulo, missing, 2, 2, 2, 007, 1.10, 1.1
        self.assertEqual(list(files["city.ids"])[:17], [2, 2, 3, 4, 0, 5, 6, 0, 0, 5, 0, 7, 7, 7, 8, 9, 10])

    def test_flags_and_numbers_as_ids(self):
        self.same("shop", "shop_all.csv", FLAGS)

    def test_columns_with_the_usual_names(self):
        files = self.same("numbered", "numbered_minimal.csv", ("--dense-transform", "log3"))
        self.assertEqual(list(files["C1.ids"])[:9], [2, 0, 3, 4, 5, 6, 7, 2, 0])

    def test_later_days_in_another_format(self):
        self.trifold("preprocess", "--input", FILES / "shop_minimal.csv", "--output", "first", "--threads", 1, *SHOP)
        self.trifold("preprocess", "--input", FILES / "shop_pyarrow.csv", "--output", "later", "--dictionaries-of", "first", "--dense-transform", "none", "--threads", 1)
        self.assertEqual(self.content("later")[1], self.content("first")[1])


if __name__ == "__main__":
    unittest.main()
