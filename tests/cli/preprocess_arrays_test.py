"""NumPy's arrays become clicks: files of TorchRec's layout, and dlrm's archives."""

import random
import shutil
import struct
import unittest
import zipfile

from preprocessed import PreprocessTest


def npy_of(kind, shape, values, order="False"):
    letter = {"<i4": "i", "<i8": "q", "<f4": "f", "<f8": "d", "|u1": "B", ">i4": "i"}[kind]
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    body = struct.pack(f"<{len(values)}{letter}", *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


class Arrays(PreprocessTest):
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
                (("x_labels.npy", "<i4", (2,), [1, 2]), "x_labels.npy:1: x_labels.npy: the label is 2, not 0 or 1"),
                (("x_sparse.npy", "<f8", (2, 1), [1, 1.5]), "x_labels.npy:1: x_sparse.npy: table 0 is 1.5, not an id, a whole number"),
                (("x_sparse.npy", "<i4", (3, 1), [1, 2, 3]), "x_sparse.npy: its shape is 3 x 1, that of x_labels.npy is 2: a row for each sample"),
                (("x_sparse.npy", "<i4", (2, 1), [1]), "x_sparse.npy has room for 1 elements, but its shape is 2 x 1: it is damaged"),
                (("x_sparse.npy", ">i4", (2, 1), [1, 2]), "x_sparse.npy: its elements are '>i4', not little-endian integers, booleans or floats of 2, 4 or 8 bytes"),
                (("x_sparse.npy", "<i4", (2, 1), [1, 2], "True"), "x_sparse.npy: its order is Fortran's"),
                (("x_dense.npy", "<f4", (2, 1), [1, float("inf")]), "x_labels.npy:1: x_dense.npy: dense feature 0 is inf, not a number")):
            self.npy("x_sparse.npy", "<i4", (2, 1), [1, 2])
            before = {path.name: path.read_bytes() for path in self.folder.glob("x_*.npy")}
            self.npy(*change)
            _, err = self.preprocess("x_labels.npy", "bad", columns=("--threads", 1), status=2)
            self.assertIn(words, err)
            for name, content in before.items():
                (self.folder / name).write_bytes(content)
        self.write("y_labels.npy", b"label,I1\n")
        for source, more, words in (("y_labels.npy", (), "y_labels.npy is not an array of NumPy's format .npy"),
                                    ("x_dense.npy", (), "x_dense.npy: name the file of the labels, NAME_labels.npy"),
                                    ("x_labels.npy", ("--label", "y", "--sparse", "c"), "arrays have no column names"),
                                    ("x_labels.npy", ("--data-format", "csv"), "is an array, which --data-format csv does not read")):
            _, err = self.preprocess(source, "bad", columns=("--threads", 1, *more), status=2)
            self.assertIn(words, err)
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
        self.npy("in/b_labels.npy", "<i4", (3, 1), [1, 0, 1])
        self.npy("in/b_dense.npy", "<f4", (3, 0), [])
        self.npz("in/b_sparse_multi_hot.npz", {"0": ("<i4", (3, 2), [5, 6, 5, 5, 7, 0]), "1": ("<i4", (3, 1), [9, 8, 9])}, False)
        self.preprocess("in", "out", columns=("--threads", 1))
        manifest, found = self.bags("out")
        self.assertEqual(found, {"C1": [[2, 3], [2, 2], [4, 0]], "C2": [[2], [3], [2]]})
        self.assertEqual((manifest["dense"], [table["most_ids"] for table in manifest["tables"]]), (0, [2, 1]))
        _, err = self.preprocess("in/b_sparse_multi_hot.npz", "x", columns=("--threads", 1), status=2)
        self.assertIn("name the file of the labels, NAME_labels.npy, next to it, to give bags", err)

    def test_invalid_archives(self):
        arrays = {"X_cat": ("<i4", (2, 1), [3, 4]), "X_int": ("<i4", (2, 1), [1, 2]), "y": ("<i4", (2,), [0, 1])}
        self.npz("good.npz", arrays)
        self.preprocess("good.npz", "out", columns=("--threads", 1))
        good = (self.folder / "good.npz").read_bytes()
        middle = good.index(b"X_cat.npy") + 60
        cases = [({"X_cat_t": arrays["X_cat"], "X_int": arrays["X_int"], "y": arrays["y"]}, "bad.npz has X_cat_t with one row for each table, from dlrm's first pass"),
                 ({"X_cat": arrays["X_cat"], "X_int": arrays["X_int"]}, "bad.npz has no array y; there are X_cat, X_int"),
                 ({**arrays, "X_int": ("<i4", (3, 1), [1, 2, 3])}, "bad.npz: X_int: its shape is 3 x 1, that of bad.npz: y is 2: a row for each sample"),
                 ({**arrays, "y": ("<i4", (2,), [0, 7])}, "bad.npz:1: bad.npz: y: the label is 7, not 0 or 1"),
                 ({**arrays, "X_cat": ("<f4", (2, 1), [3, 4.5])}, "bad.npz:1: bad.npz: X_cat: table 0 is 4.5, not an id, a whole number"),
                 ({**arrays, "y": ("<i4", (0,), []), "X_int": ("<i4", (0, 1), []), "X_cat": ("<i4", (0, 1), [])}, "bad.npz contains no samples"),
                 (b"label,C1\n", "bad.npz is not a file of NumPy's format .npz, a zip archive"),
                 (good[:-30], "bad.npz: the zip archive has no directory at its end: the file is truncated, or damaged"),
                 (good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1:], "bad.npz: X_cat cannot be read: ")]
        for content, words in cases:
            if isinstance(content, bytes):
                self.write("bad.npz", content)
            else:
                self.npz("bad.npz", content)
            _, err = self.preprocess("bad.npz", "bad", columns=("--threads", 1), status=2)
            self.assertIn(words, err)
        encrypted = bytearray(good)
        for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # in each member's header, and in the directory
            at = encrypted.find(signature)
            while at >= 0:
                encrypted[at + flags] |= 1
                at = encrypted.find(signature, at + 1)
        self.write("bad.npz", bytes(encrypted))
        _, err = self.preprocess("bad.npz", "bad", columns=("--threads", 1), status=2)
        self.assertIn("is encrypted, which is not supported", err)



def norm_of(rows, sums, kind, labels=1, records=None):
    """A file of HugeCTR's Norm format: rows of (label, dense numbers, a list of keys for each slot); keys as "I" or "q"."""
    header = struct.pack("<8q", int(sums), len(rows) if records is None else records, labels, len(rows[0][1]), len(rows[0][2]), 0, 0, 0)

    def block(data):
        return struct.pack("<i", len(data)) + data + bytes([sum(data) % 256]) if sums else data
    return block(header) + b"".join(
        block(struct.pack(f"<{1 + len(dense)}f", label, *dense) + b"".join(struct.pack(f"<i{len(keys)}{kind}", len(keys), *keys) for keys in slots))
        for label, dense, slots in rows)


class HugeCtrNorm(PreprocessTest):
    def rows(self, bags, count=40000):
        draw = random.Random(4)

        def keys(most):
            return [draw.randrange(1, most) for _ in range(draw.randrange(4) if bags else 1)]
        return [(draw.randrange(2), [draw.randrange(50), draw.randrange(9)], [keys(500), keys(1 << 32), keys(7)]) for _ in range(count)]

    def test_records_are_as_text_with_the_same_numbers(self):
        rows = self.rows(False)
        self.write("text.csv", "label,I1,I2,C1,C2,C3\n" + "".join(f"{y},{a},{b},{','.join(str(keys[0]) for keys in slots)}\n" for y, (a, b), slots in rows))
        options = ("--threads", 2)
        self.preprocess("text.csv", "text", columns=options)
        for sums in (False, True):
            for kind in ("I", "q"):
                self.write("norm/a.data", norm_of(rows[:30000], sums, kind))
                self.write("norm/b.data", norm_of(rows[30000:], sums, kind))
                for source in ("norm", ["norm/a.data", "norm/b.data"]):
                    self.preprocess(source, "out", columns=options)
                    self.assertEqual(self.folder_of("out")[1:], self.folder_of("text")[1:], (sums, kind))
                    shutil.rmtree(self.folder / "out")

    def test_slots_of_several_keys(self):
        rows = self.rows(True, 500)
        for sums in (False, True):
            for kind in ("I", "q"):
                self.write("bags.data", norm_of(rows, sums, kind))
                self.preprocess("bags.data", "out", columns=("--threads", 1))
                found = self.bags("out")[1]
                for slot in range(3):
                    numbers = {}
                    wanted = [[numbers.setdefault(key, len(numbers) + 2) for key in slots[slot]] for _, _, slots in rows]
                    self.assertEqual(found[f"C{slot + 1}"], wanted)
                shutil.rmtree(self.folder / "out")

    def test_files_that_are_damaged(self):
        rows = self.rows(False, 50)
        plain, summed = norm_of(rows, False, "I"), norm_of(rows, True, "I")
        size = (len(plain) - 64) // 50
        for data, words in (
                (plain[:40], "x.data has 40 bytes, the header of a HugeCTR file has 64"),
                (b"label,I1,C1\n\0" * 20, "x.data is not a Norm file of HugeCTR: its header says check"),
                (struct.pack("<8q", 0, 50, 1, 1 << 33, 3, 0, 0, 0) + plain[64:], f"x.data is not a Norm file of HugeCTR: its header says check 0, 50 records, 1 labels, {1 << 33} dense"),
                (plain[:-3], f"x.data: sample 49, at byte {64 + 49 * size}: slot 2 has 1 keys, which exceed the record"),
                (norm_of(rows, False, "q")[:-3], f"x.data: sample 49, at byte {64 + 49 * (size + 12)}: slot 2 has 1 keys, which exceed the record"),
                (plain + b"12345678", "x.data has 8 bytes after its 50 records"),
                (norm_of(rows, False, "I", records=51), f"x.data: sample 50, at byte {len(plain)}: it ends before slot 0"),
                (norm_of(rows, False, "I", labels=2), "x.data has 2 labels per sample; only files with one are supported"),
                (norm_of([(3, *row[1:]) for row in rows], False, "I"), "x.data:0: the label is 3, not 0 or 1"),
                (norm_of([(0, [float("inf"), 1], row[2]) for row in rows], True, "q"), "x.data:0: dense feature 0 is inf, not a number"),
                (summed[:100] + bytes([summed[100] ^ 1]) + summed[101:], "its bytes do not match the checksum after them: it is damaged"),
                (summed[:68] + bytes([summed[68] ^ 1]) + summed[69:], "x.data: its header does not match the checksum after it: it is damaged"),
                (summed[:-2], "x.data: sample 49, at byte "),
                (summed[:69] + struct.pack("<i", 1 << 30) + summed[73:], f"x.data: sample 0, at byte 69: its length is {1 << 30} bytes, the file has")):
            self.write("x.data", data)
            _, err = self.preprocess("x.data", "out", columns=("--threads", 1), status=2)
            self.assertIn(words, err)
        self.write("x.data", plain)
        for options, words in ((("--label", "y", "--sparse", "C1"), "a file of HugeCTR has no column names, so --label has no effect"),
                               (("--data-format", "csv"), "which --data-format csv does not read")):
            _, err = self.preprocess("x.data", "out", columns=options, status=2)
            self.assertIn(words, err)
        self.assertNotIn("out", self.files())

    def test_text_may_have_the_same_ending(self):
        text = "label,I1,C1\n" + "".join(f"{i % 2},{i},{i % 5}\n" for i in range(40))
        for name in ("text.csv", "text.data"):
            self.write(name, text)
            self.preprocess(name, name[5:], columns=("--threads", 1))
        self.assertEqual(self.folder_of("data")[1:], self.folder_of("csv")[1:])
        self.write("mixed/a.data", norm_of(self.rows(False, 20), False, "I"))
        self.write("mixed/notes.data", text)
        self.preprocess("mixed", "mixed_out", columns=("--threads", 1))
        self.assertEqual(len(self.folder_of("mixed_out")[1]), 20)

    def test_keys_of_8_bytes_that_look_like_4(self):
        """With keys of 4 bytes two of these records are three, the second without a key; only the third's label, 1e-45, tells."""
        self.write("x.data", norm_of([(1, [0.0], [[7]])] * 1500, False, "q"))
        self.preprocess("x.data", "out", columns=("--threads", 1))
        self.assertEqual(self.folder_of("out")[1:], ([1] * 1500, [0.0] * 1500, {"C1": [2] * 1500}))

    def test_all_files_decide_which_tables_are_bags(self):
        single, several = self.rows(False, 30), self.rows(True, 30)
        self.write("a.data", norm_of(single, False, "I"))
        self.write("b.data", norm_of(several, True, "q"))
        for order in (["a.data", "b.data"], ["b.data", "a.data"]):
            self.preprocess(order, "out", columns=("--threads", 1))
            self.assertEqual({len(bags) for bags in self.bags("out")[1].values()}, {60})
            self.preprocess("a.data", "later", columns=("--threads", 1, "--dictionaries-of", "out"))
            self.assertEqual({len(bag) for bags in self.bags("later")[1].values() for bag in bags}, {1})
            for name in ("out", "later"):
                shutil.rmtree(self.folder / name)


if __name__ == "__main__":
    unittest.main()
