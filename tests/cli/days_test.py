"""Recommenders from day to day: dictionaries that grow, and runs that go on with another day's data."""

import json
import random
import struct
import unittest

from program import ProgramTest

COLUMNS = ("--label", "y", "--dense", "age", "--sparse", "user,item", "--threads", 1)
MODEL = ("--embedding-dim", 4, "--bottom-mlp", "6-4", "--top-mlp", "6-1", "--global-batch-size", 50, "--lr", 0.1, "--eps", 1e-6, "--threads-per-rank", 1,
         "--embedding-optimizer", "rowwise-adagrad", "--optimizer", "adagrad", "--sample-order", "stored", "--log-interval", 1)
SAMPLES = 600  # of a day


def day(number, scale=1):
    """Clicks of one day: every day has users and items that the days before did not have, and `scale` times as many."""
    draw = random.Random(number)
    for _ in range(SAMPLES):
        user, item = (draw.randrange(scale * first, scale * end) for first, end in ((10 * number, 30 + 20 * number), (15 * number, 20 + 15 * number)))
        yield f"{int(draw.random() < 0.2 + 0.6 * ((user + item) % 3 == 0))},{draw.randrange(18, 80)},u{user},i{item}\n"


class Days(ProgramTest):
    def setUp(self):
        super().setUp()
        days = ["".join(day(number)) for number in (1, 2)]
        for name, text in (("one", days[0]), ("two", days[1]), ("both", "".join(days))):
            (self.folder / f"{name}.csv").write_text("y,age,user,item\n" + text)

    def preprocess(self, source, target, *options, columns=COLUMNS, **more):
        return self.trifold("preprocess", "--input", source, "--output", target, *columns, *options, **more)

    def recommend(self, data, *options, **more):
        """An option takes the place of the model's."""
        kept = [word for pair in zip(MODEL[::2], MODEL[1::2]) if pair[0] not in options for word in pair]
        return self.trifold("recommend", "--train-data", data, *kept, *options, **more)

    def grown(self):
        self.preprocess("one.csv", "one")
        self.preprocess("two.csv", "two", "--dictionaries-of", "one", "--grow-dictionaries")

    def rows(self, folder):
        return [table["rows"] for table in json.loads((self.folder / folder / "clicks.json").read_text())["tables"]]

    def near(self, one, other, tolerance=1e-9):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, delta=tolerance)

    def test_known_ids_keep_their_numbers(self):
        self.preprocess("one.csv", "one")
        _, stderr = self.preprocess("two.csv", "two", "--dictionaries-of", "one", "--grow-dictionaries", columns=())  # the columns of one
        old, new = self.rows("one"), self.rows("two")
        self.assertIn(f"table user: {old[0]} ids known, {new[0] - old[0]} new", stderr)
        self.assertGreater(new[0], old[0])
        self.preprocess("both.csv", "both")
        for name in ("user", "item"):
            dictionaries = [(self.folder / folder / f"{name}.dict").read_bytes() for folder in ("one", "two", "both")]
            self.assertTrue(dictionaries[1].startswith(dictionaries[0]))
            self.assertEqual(dictionaries[1], dictionaries[2])
        for options, words in (
                (("--grow-dictionaries",), "--grow-dictionaries has no effect without --dictionaries-of DIR"),
                (("--dictionaries-of", "one", "--frequency-threshold", 2), "give --grow-dictionaries too"),
                (("--dictionaries-of", "one", "--grow-dictionaries", "--missing-values", "?"), "--missing-values are ? in these options")):
            _, stderr = self.preprocess("two.csv", "x", *options, status=2)
            self.assertIn(words, stderr)
        _, stderr = self.preprocess("two.csv", "x", "--dictionaries-of", "one", columns=("--label", "y", "--dense", "user", "--sparse", "age,item"), status=2)
        self.assertIn("column 1 is age here, user in one", stderr)
        self.assertFalse((self.folder / "x").exists())

    def test_two_runs_equal_one_over_both_days(self):
        """With the state of every optimizer; on one mesh the same bits, on others within rounding."""
        self.preprocess("both.csv", "both")
        for name in ("one", "two"):
            self.preprocess(f"{name}.csv", name, "--dictionaries-of", "both")
        for dense, sparse in (("adagrad", "rowwise-adagrad"), ("adam", "adam"), ("sgd", "adagrad")):
            optimizers = ("--optimizer", dense, "--embedding-optimizer", sparse, "--lr", 0.02, "--f64")
            self.recommend("both", *optimizers, "--save", f"whole-{dense}", "--log-json", f"{dense}.jsonl")
            self.recommend("one", *optimizers, "--save", f"first-{dense}")
            for ranks, placement in ((1, "auto"), (2, "row"), (4, "column"), (2, "replicated"), (4, "table")):
                name = f"{dense}-{ranks}-{placement}"
                self.recommend("two", *optimizers, "--finetune", "--load", f"first-{dense}", "--save", name, "--log-json", f"{name}.jsonl", "--ranks", ranks,
                               "--placement", placement)
                self.near(self.losses(f"{dense}.jsonl")[SAMPLES // 50:], self.losses(f"{name}.jsonl"))
            out, _ = self.trifold("inspect", f"whole-{dense}", "--diff", f"{dense}-1-auto")
            self.assertRegex(out, r"all \d+ tensors are bitwise equal")

    def test_grown_tables_on_every_mesh_and_placement(self):
        self.grown()
        self.preprocess("both.csv", "both")
        start = ("--f64", "--embedding-init-range", 0.1)  # so that new rows begin as they do in one run over both
        self.recommend("one", *start, "--save", "first", "--ranks", 2)
        self.recommend("both", *start, "--log-json", "whole.jsonl", "--save", "whole")
        curves = []
        for ranks, placement in ((1, "auto"), (2, "row"), (4, "row"), (2, "column"), (4, "table"), (3, "replicated"), (2, "row,replicated")):
            name = f"{ranks}-{placement}"
            _, stderr = self.recommend("two", "--finetune", "--load", "first", "--save", name, "--log-json", f"{name}.jsonl", "--ranks", ranks,
                                     "--placement", placement)
            curves.append(self.losses(f"{name}.jsonl"))
        new = [b - a for a, b in zip(self.rows("one"), self.rows("two"))]
        self.assertIn(f"table user: {self.rows('one')[0]} rows of the checkpoint and {new[0]} new ones", stderr)
        for curve in curves:
            self.near(curves[0], curve)
            self.near(self.losses("whole.jsonl")[SAMPLES // 50:], curve)
        # The run goes on from its own checkpoints, which have the larger tables.
        self.recommend("two", "--finetune", "--load", "first", "--save", "part", "--exit-interval", 5, "--log-json", "part.jsonl", "--ranks", 2)
        self.recommend("two", "--load", "part", "--save", "part", "--log-json", "part.jsonl", "--placement", "row", "--ranks", 2)
        self.near(self.losses("part.jsonl"), curves[0])
        self.trifold("reshard", "--load", "1-auto", "--save", "again", "--files", 3)
        self.trifold("evaluate", "--load", "again", "--data", "two", "--json", "again.json", "--threads-per-rank", 1)
        # Data with the older dictionaries mean the same to the grown model.
        self.preprocess("both.csv", "old", "--dictionaries-of", "one")
        self.preprocess("one.csv", "one-grown", "--dictionaries-of", "two")
        for data in ("one", "one-grown"):
            self.trifold("score", "--load", "1-auto", "--data", data, "--output", f"{data}-scores.csv", "--threads-per-rank", 1)
        self.assertEqual((self.folder / "one-scores.csv").read_text(), (self.folder / "one-grown-scores.csv").read_text())
        self.trifold("evaluate", "--load", "1-auto", "--data", "old", "--ranks", 2, "--placement", "row", "--threads-per-rank", 1)
        self.recommend("two", "--valid-data", "old", "--train-iters", 2)

    def test_grown_tables_in_files(self):
        """The bits of tables in memory, though the checkpoint has values for some of the rows only."""
        for number, name in ((1, "one"), (2, "two")):
            (self.folder / f"{name}.csv").write_text("y,age,user,item\n" + "".join(day(number, scale=20)))
        self.grown()
        self.assertGreater(self.rows("two")[0], 1.4 * self.rows("one")[0])
        for optimizer in (("rowwise-adagrad", "--embedding-weight-decay", 0.1), ("adam", "--embedding-weight-decay", 0.1), ("ftrl", "--ftrl-l1", 0.01)):
            # Some hundred rows of a thousand.
            stored = ("--table-storage", ".", "--table-cache", 4e-5 if optimizer[0] == "rowwise-adagrad" else 8e-5)
            rule = ("--embedding-dim", 64, "--bottom-mlp", "6-64", "--global-batch-size", 10, "--embedding-optimizer", *optimizer)
            self.recommend("one", *rule, *stored, "--save", f"first-{optimizer[0]}")
            start = (*rule, "--finetune", "--load", f"first-{optimizer[0]}")
            for ranks, placement in ((1, "row"), (2, "row"), (4, "column"), (4, "row")):
                where, name = ("--ranks", ranks, "--placement", placement), f"{optimizer[0]}-{ranks}-{placement}"
                self.recommend("two", *start, *where, "--save", f"{name}-memory")
                _, stderr = self.recommend("two", *start, *where, *stored, "--save", f"{name}-files")
                self.assertRegex(stderr, r"tables in files \d")
                self.assertIn("rows of the checkpoint and", stderr)
                out, _ = self.trifold("inspect", f"{name}-memory", "--diff", f"{name}-files")
                self.assertRegex(out, r"all \d+ tensors are bitwise equal")
        # A grown model goes on in files, and predicts from them.
        self.recommend("two", *start, *stored, "--save", "part", "--exit-interval", 25, "--ranks", 2)
        self.recommend("two", *rule, *stored, "--load", "part", "--save", "part", "--ranks", 2)
        self.recommend("two", *start, "--save", "whole", "--ranks", 2)
        out, _ = self.trifold("inspect", "part", "--diff", "whole")
        self.assertRegex(out, r"all \d+ tensors are bitwise equal")
        for name, options in (("memory", ()), ("files", stored)):
            self.trifold("score", "--load", "part", "--data", "one", "--global-batch-size", 10, "--output", f"{name}.csv", "--threads-per-rank", 1, *options)
        self.assertEqual((self.folder / "memory.csv").read_text(), (self.folder / "files.csv").read_text())

    def test_new_rows_are_those_of_a_fresh_table(self):
        """A step on samples without them leaves new rows as they began."""
        self.grown()
        self.recommend("one", "--save", "first")
        self.recommend("two", "--seed", 7, "--finetune", "--load", "first", "--train-iters", 1, "--lr", 1e-30, "--embedding-lr", 1e-30, "--save", "tuned")
        self.recommend("two", "--seed", 7, "--train-iters", 1, "--lr", 1e-30, "--embedding-lr", 1e-30, "--save", "fresh")
        known = self.rows("one")[0]
        old, tuned, fresh = (self.table(run, "user") for run in ("first", "tuned", "fresh"))
        self.assertEqual((len(old), len(tuned)), (4 * known, 4 * self.rows("two")[0]))
        self.near(tuned[:4 * known], old, 1e-12)
        self.near(tuned[4 * known:], fresh[4 * known:], 1e-12)

    def table(self, run, name):
        """The numbers of a table in the newest checkpoint of a run of one rank."""
        newest = sorted(path for path in (self.folder / run).iterdir() if path.name.startswith("step_"))[-1]
        manifest = json.loads((newest / "manifest.json").read_text())
        tensor = next(one for one in manifest["tensors"] if one["name"] == f"param/embedding.{name}.weight")
        (piece,) = tensor["pieces"]
        data = (newest / manifest["files"][piece["file"]]["name"]).read_bytes()
        count = tensor["shape"][0] * tensor["shape"][1]
        return struct.unpack_from(f"<{count}f", data, piece["byte_offset"])

    def test_what_does_not_fit_is_refused(self):
        self.grown()
        self.preprocess("two.csv", "other")
        self.recommend("one", "--save", "first")
        self.recommend("two", "--save", "grown")
        for data, options, words in (
                ("two", ("--load", "first"), "Tables have grown: --finetune continues with larger tables"),
                ("one", ("--load", "grown", "--finetune"), f"table user: {self.rows('one')[0]} rows in one, {self.rows('two')[0]} in grown"),
                ("other", ("--load", "first", "--finetune"), "table user: ids: dictionary"),
                ("two", ("--load", "first", "--finetune", "--embedding-dim", 8, "--bottom-mlp", "6-8"), "embedding_dim: in the checkpoint 4, requested 8"),
                ("two", ("--load", "first", "--finetune", "--optimizer", "adam"), "optimizer: in the checkpoint \"adagrad\", requested \"adam\""),
                ("one", ("--load", "first", "--sample-order", "shuffled", "--train-epochs", 2), "was trained with --sample-order stored"),
                ("one", ("--load", "first", "--finetune", "--save", "first"), "--finetune begins at step 0"),
                ("one", ("--finetune",), "--finetune has no effect without --load DIR")):
            _, stderr = self.recommend(data, *options, status=2)
            self.assertIn(words, stderr, options)
        _, stderr = self.trifold("score", "--load", "first", "--data", "two", "--output", "x.csv", status=2)
        self.assertIn("table user: rows: ", stderr)


if __name__ == "__main__":
    unittest.main()
