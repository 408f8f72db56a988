"""Recommenders whose tables give rows to values as they come: the same on every mesh, from day to day, after stops, and in predictions."""

import json
import math
import random
import struct
import unittest
import zlib

from preprocessed import hash_of
from program import ProgramTest

COLUMNS = ("--label", "y", "--dense", "age", "--sparse", "user,item", "--bag", "tags:|", "--ids", "keys", "--threads", 2)
BATCH = 50
MODEL = ("--table-rows", "30-22-40", "--embedding-dim", 4, "--bottom-mlp", "6-4", "--top-mlp", "6-1", "--global-batch-size", BATCH, "--lr", 0.1,
         "--threads-per-rank", 1, "--embedding-optimizer", "rowwise-adagrad", "--optimizer", "adagrad", "--sample-order", "stored",
         "--lr-decay-style", "constant", "--log-interval", 1)
SAMPLES = 600  # of a day
TABLES = ("user", "item", "tags")
MESHES = ((1, "auto"), (2, "row"), (4, "row"), (2, "column"), (3, "replicated"), (4, "table"), (4, "row,column,replicated"))


def day(number):
    """Clicks of one day; some users come on two days, many on one, and some values are missing."""
    draw = random.Random(number)
    for _ in range(SAMPLES):
        user, item = int(draw.paretovariate(0.7)) % 200 + 15 * number, draw.randrange(15 * number, 20 + 15 * number)
        tags = "|".join(f"t{draw.randrange(10 + 12 * number)}" for _ in range(draw.randrange(4)))
        yield [str(int(draw.random() < 0.2 + 0.6 * ((user + item) % 3 == 0))), str(draw.randrange(18, 80)), f"u{user}" if draw.random() < 0.95 else "",
               f"i{item}", tags]


def texts_of(rows, table):
    """The values of a table's column, a list for each sample."""
    column = {"user": 2, "item": 3, "tags": 4}[table]
    return [[value for value in row[column].split("|") if value] for row in rows]


class Owners:
    """The owners of a table's rows, by the rules in clicks/keys/key_table.h, for a table of one bucket. Where two keys are equally old and rare,
    places decide; then the simulation gives up (`sure`)."""

    def __init__(self, places, admission, eviction):
        self.places, self.admission, self.eviction = places, admission, eviction
        self.known, self.counts, self.batch, self.sure = {}, {}, 0, True
        self.counted = admission > 1 or eviction == "rarest"  # keys without a row

    def see(self, key):
        self.known[key] = (self.known[key][0] + 1, self.batch)

    def room(self, count):
        if len(self.known) < self.places:
            return True
        if self.eviction == "none":
            return False
        rank = (lambda key: self.known[key][::-1]) if self.eviction == "oldest" else (lambda key: self.known[key])
        old = sorted((key for key in self.known if self.known[key][1] != self.batch), key=rank)
        if not old or self.eviction == "rarest" and self.known[old[0]][0] > count:
            return False
        self.sure = self.sure and (len(old) == 1 or rank(old[0]) != rank(old[1]))
        self.counts[old[0]] = self.known.pop(old[0])[0]
        return True

    def take(self, keys):
        self.batch += 1
        unknown = []
        for key in keys:
            if key in self.known:
                self.see(key)
            else:
                unknown.append(key)
        for key in unknown:
            if key in self.known:
                self.see(key)
                continue
            count = self.counts.get(key, 0) + 1 if self.counted else 1
            self.counts[key] = count
            if count >= self.admission and self.room(count):
                self.known[key] = (count, self.batch)


class Keys(ProgramTest):
    def setUp(self):
        super().setUp()
        self.days = [list(day(number)) for number in (1, 2)]
        self.write("one", self.days[0])
        self.write("two", self.days[1])
        self.write("both", self.days[0] + self.days[1])

    def write(self, name, rows, columns=COLUMNS):
        (self.folder / f"{name}.csv").write_text("y,age,user,item,tags\n" + "".join(",".join(row) + "\n" for row in rows))
        return self.trifold("preprocess", "--input", f"{name}.csv", "--output", name, *columns)

    def recommend(self, data, *options, **more):
        """An option takes the place of the model's."""
        kept = [word for pair in zip(MODEL[::2], MODEL[1::2]) if pair[0] not in options for word in pair]
        return self.trifold("recommend", "--train-data", data, *kept, *options, **more)

    def tensor(self, run, name, form):
        """The numbers of a tensor that is one piece, in the newest checkpoint of a run."""
        newest = sorted(path for path in (self.folder / run).iterdir() if path.name.startswith("step_"))[-1]
        manifest = json.loads((newest / "manifest.json").read_text())
        (piece,) = next(one for one in manifest["tensors"] if one["name"] == name)["pieces"]
        shape = next(one for one in manifest["tensors"] if one["name"] == name)["shape"]
        count = 1
        for size in shape:
            count *= size
        data = (newest / manifest["files"][piece["file"]]["name"]).read_bytes()
        return struct.unpack_from(f"<{count}{form}", data, piece["byte_offset"])

    def owners(self, run, table):
        """{key: (count, last batch, row)}"""
        words = self.tensor(run, f"keys/embedding.{table}.weight", "Q")
        return {key: (packed & 0xffffffff, packed >> 32, row + 2) for row, (key, packed) in enumerate(zip(words[::2], words[1::2])) if key}

    def near(self, one, other, tolerance=1e-9):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, delta=tolerance)

    def same_bits(self, one, other):
        out, _ = self.trifold("inspect", one, "--diff", other)
        self.assertRegex(out, r"all \d+ tensors are bitwise equal")

    def test_folder_has_the_hashes(self):
        manifest = json.loads((self.folder / "one" / "clicks.json").read_text())
        self.assertEqual(manifest["version"], 6)
        for table in manifest["tables"]:
            self.assertTrue(table["keys"] and not table["dictionary"] and "rows" not in table)
            keys = struct.unpack(f"<{(self.folder / 'one' / (table['name'] + '.ids')).stat().st_size // 8}Q",
                                 (self.folder / "one" / f"{table['name']}.ids").read_bytes())
            column = [texts or ([""] if table["name"] != "tags" else []) for texts in texts_of(self.days[0], table["name"])]
            self.assertEqual(list(keys), [hash_of(text) if text else 0 for texts in column for text in texts])

    def test_owners_are_those_of_a_simulation(self):
        compared = 0
        for admission, eviction in ((1, "oldest"), (1, "none"), (3, "oldest"), (2, "rarest"), (1, "rarest")):
            name = f"{admission}-{eviction}"
            # Batches of one sample, whose keys are hardly ever equally old.
            self.recommend("one", "--key-admission", admission, "--key-eviction", eviction, "--save", name, "--ranks", 1, "--global-batch-size", 1,
                           "--train-iters", 500)
            for table, rows in zip(TABLES, (30, 22, 40)):
                expected = Owners(rows - 2, admission, eviction)
                for texts in texts_of(self.days[0][:500], table):
                    if texts:
                        expected.take([hash_of(text) for text in texts])
                found = {key: entry[:2] for key, entry in self.owners(name, table).items()}
                if not expected.sure:
                    self.assertEqual(len(found), len(expected.known))
                    continue
                self.assertEqual(found, expected.known, (name, table))
                compared += 1
        self.assertGreaterEqual(compared, 8)

    def test_curves_are_the_same_on_every_mesh(self):
        for eviction in (("oldest",), ("rarest", "--key-admission", 2)):
            curves = []
            for ranks, placement in MESHES:
                name = f"{eviction[0]}-{ranks}-{placement}"
                self.recommend("both", "--valid-data", "two", "--eval-interval", 7, "--f64", "--key-eviction", *eviction, "--ranks", ranks,
                               "--placement", placement, "--save", name, "--log-json", f"{name}.jsonl")
                curves.append((self.losses(f"{name}.jsonl"), [line["valid_auc"] for line in self.log(f"{name}.jsonl") if "valid_auc" in line]))
                for table in TABLES:
                    self.assertEqual(self.owners(name, table), self.owners(f"{eviction[0]}-1-auto", table))
            self.assertGreater(len(curves[0][1]), 2)
            for losses, aucs in curves:
                self.near(curves[0][0], losses)
                self.near(curves[0][1], aucs)
            # Users came that the first day did not have, and took rows from others.
            after = set(self.owners(f"{eviction[0]}-1-auto", "user"))
            self.assertTrue(after - {hash_of(text) for texts in texts_of(self.days[0], "user") for text in texts})

    def test_two_days_in_two_runs_equal_one_run(self):
        for dense, sparse in (("adagrad", "rowwise-adagrad"), ("adam", "adam"), ("sgd", "ftrl")):
            start = ("--optimizer", dense, "--embedding-optimizer", sparse, "--lr", 0.02, "--f64", "--key-admission", 2)
            self.recommend("both", *start, "--save", f"whole-{sparse}", "--log-json", f"{sparse}.jsonl")
            self.recommend("one", *start, "--save", f"first-{sparse}", "--ranks", 2)
            self.recommend("one", *start, "--save", f"bits-{sparse}")
            for ranks, placement in ((1, "auto"), (2, "row"), (4, "column"), (2, "replicated"), (4, "table")):
                name = f"{sparse}-{ranks}-{placement}"
                begin = f"bits-{sparse}" if ranks == 1 else f"first-{sparse}"
                self.recommend("two", *start, "--finetune", "--load", begin, "--save", name, "--log-json", f"{name}.jsonl", "--ranks", ranks,
                               "--placement", placement)
                self.near(self.losses(f"{sparse}.jsonl")[SAMPLES // BATCH:], self.losses(f"{name}.jsonl"))
            self.same_bits(f"whole-{sparse}", f"{sparse}-1-auto")

    def test_stops_and_saves_leave_no_trace(self):
        """Though the next batch's keys were taken already when a checkpoint was made."""
        rule = ("--key-admission", 2, "--key-eviction", "rarest", "--ranks", 2, "--sample-order", "shuffled", "--train-epochs", 2)
        self.recommend("one", *rule, "--save", "whole", "--save-interval", 5)
        self.recommend("one", *rule, "--save", "async", "--save-interval", 5, "--async-save")
        self.same_bits("whole/step_0000000010", "async/step_0000000010")
        for steps in (5, 10):
            self.recommend("one", *rule, "--save", f"stop-{steps}", "--exit-interval", steps)
            self.same_bits(f"stop-{steps}", f"whole/step_{steps:010}")
            self.recommend("one", *rule, "--load", f"stop-{steps}", "--save", f"on-{steps}")
            self.same_bits(f"on-{steps}", "whole")
        short = ("--train-iters", 5, *rule[:-2])
        self.recommend("one", *short, "--save", "short")  # nothing was fetched behind its last step
        self.same_bits("short", "whole/step_0000000005")
        other = ("--key-admission", 2, "--key-eviction", "rarest", "--ranks", 4, *rule[6:])
        self.recommend("one", *other, "--load", "stop-5", "--save", "other", "--placement", "column")
        for table in TABLES:
            self.assertEqual(self.owners("other", table), self.owners("whole", table))
        self.trifold("reshard", "--load", "whole", "--save", "again", "--files", 3)
        self.same_bits("whole", "again")
        self.trifold("reshard", "--load", "whole", "--save", "small", "--files", 3, "--no-save-optim")
        scores = [self.trifold("score", "--load", run, "--data", "two", "--output", "-", "--threads-per-rank", 1)[0] for run in ("whole", "small")]
        self.assertEqual(*scores)

    def as_before(self, run):
        """Makes the newest checkpoint of a run one of an earlier version, without counts of batches and of forgotten keys."""
        folder = sorted((self.folder / run).glob("step_*"))[-1]
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["crc32"], manifest["state"]["key_batches"]
        manifest["tensors"] = [tensor for tensor in manifest["tensors"] if not tensor["name"].startswith("key_counts/")]
        for index, file in enumerate(manifest["files"]):
            if file["role"] != "shard":
                continue
            frame, at, data = 0, 0, (folder / file["name"]).read_bytes()
            pieces = [(piece["byte_offset"], math.prod(piece["extent"]) * {"f32": 4, "f64": 8, "i64": 8}[tensor["dtype"]])
                      for tensor in manifest["tensors"] for piece in tensor["pieces"] if piece["file"] == index]
            for begin, size in sorted(pieces):
                frame, at = zlib.crc32(data[at:begin], frame), begin + size
            file["frame_crc32"] = f"{zlib.crc32(data[at:], frame):08x}"
        text = json.dumps(manifest)[:-1] + ',\n"crc32": "'
        (folder / "manifest.json").write_text(text + f'{zlib.crc32(text.encode()):08x}"\n}}\n')

    def test_batches_without_a_known_key_count(self):
        """All rows are taken by the first batch; then come batches of other keys, or without any, before the first ones come again."""
        columns = ("--label", "y", "--dense", "age", "--sparse", "user,item", "--ids", "keys")
        known = [["1", "20", f"u{i % 10}", f"i{i % 3}"] for i in range(2 * BATCH)]
        others = [["0", "30", f"v{i}", ""] for i in range(5 * BATCH)]
        self.write("gap", [[*row, ""] for row in known + others + known], (*columns, "--threads", 1))
        for eviction, admission in (("none", 1), ("none", 2), ("oldest", 1), ("oldest", 2), ("rarest", 1)):
            name = f"{eviction}-{admission}"
            rule = ("--table-rows", "12-10", "--key-eviction", eviction, "--key-admission", admission)
            self.recommend("gap", *rule, "--save", name)
            for meshes in ((1, 1), (2, 4)):
                run = f"{name}-{meshes[0]}"
                self.recommend("gap", *rule, "--save", run, "--exit-interval", 6, "--ranks", meshes[0], "--placement", "row")
                self.trifold("reshard", "--load", run, "--save", f"{run}-again", "--files", 2)
                self.recommend("gap", *rule, "--load", f"{run}-again", "--save", run, "--ranks", meshes[1], "--placement", "column")
                for table in ("user", "item"):
                    self.assertEqual(self.owners(run, table), self.owners(name, table))
            self.recommend("gap", *rule, "--save", f"{name}-bits", "--exit-interval", 6)
            self.recommend("gap", *rule, "--save", f"{name}-bits", "--auto-resume")
            self.same_bits(name, f"{name}-bits")
            state = json.loads((sorted((self.folder / name).glob("step_*"))[-1] / "manifest.json").read_text())["state"]
            self.assertEqual(state["key_batches"], [9, 4])
            self.recommend("gap", *rule, "--save", f"{name}-file", "--exit-interval", 6, "--table-storage", ".")
            self.recommend("gap", *rule, "--save", f"{name}-file", "--auto-resume", "--table-storage", ".")
            self.same_bits(name, f"{name}-file")

    def test_checkpoints_without_batches_and_counts_still_load(self):
        rule = ("--key-admission", 2, "--key-eviction", "rarest", "--train-epochs", 2)
        self.recommend("one", *rule, "--save", "old", "--exit-interval", 5)
        self.as_before("old")
        self.recommend("one", *rule, "--load", "old", "--save", "old")
        self.recommend("two", *rule, "--load", "old", "--finetune", "--save", "new")
        self.assertEqual(len(self.owners("old", "user")), 28)

    def test_counts_outlast_the_keys_that_wait(self):
        """Two rows, and more keys that come once than wait for a row: those that come twice get one, whatever came between, and again when they lost it."""
        columns = ("--label", "y", "--sparse", "user", "--ids", "keys")
        rows = lambda users: [["0", "", user, "", ""] for user in users]
        rule = ("--table-rows", 4, "--key-admission", 2, "--global-batch-size", 1, "--interaction", "cat")
        once = [f"once{i}" for i in range(400)]
        for eviction, users, owners in (("none", ("a", "b", "c", "a", "d", "b", "a"), "ab"), ("none", ("a", *once[:200], "b", *once[200:], "a", "b"), "ab"),
                                        ("oldest", ("a", "a", "b", "b", "c", "c", *once, "a"), "ac"),
                                        ("rarest", ("a", "a", "b", "b", "b", "c", "c", "c", *once, "a", "a"), "ac")):
            data, run = f"few-{eviction}-{len(users)}", f"run-{eviction}-{len(users)}"
            self.write(data, rows(users), columns)
            self.recommend(data, *rule, "--key-eviction", eviction, "--save", run)
            self.assertEqual(set(self.owners(run, "user")), {hash_of(user) for user in owners}, (eviction, users[:9]))

    def test_a_row_begins_anew_with_its_owner(self):
        """One row for one user: what another one left there, in values and state, is gone."""
        sample = lambda user: ["1", "30", user, "i1", ""]
        columns = ("--label", "y", "--dense", "age", "--sparse", "user", "--ids", "keys")
        self.write("first", [sample("u1")], columns)
        self.write("last", [sample("u2")], columns)
        self.write("turns", [sample("u1"), sample("u2")], columns)
        for optimizer, kind in (("rowwise-adagrad", "rowwise_adagrad_sum"), ("adagrad", "adagrad_sum")):
            rule = ("--table-rows", 3, "--global-batch-size", 1, "--lr", 1e-30, "--embedding-lr", 0.5, "--optimizer", "sgd", "--embedding-optimizer", optimizer)
            for ranks, placement in ((1, "row"), (2, "replicated")):
                for data in ("first", "last", "turns"):
                    self.recommend(data, *rule, "--save", f"{data}-{optimizer}-{ranks}", "--ranks", ranks, "--placement", placement)
                values, sums = ([self.tensor(f"{data}-{optimizer}-{ranks}", f"{name}/embedding.user.weight", "f") for data in ("last", "turns")]
                                for name in ("param", kind))
                self.assertEqual(values[0][8:], values[1][8:])
                self.assertEqual(sums[0][-1:], sums[1][-1:])
                self.assertNotEqual(values[0][8:], self.tensor(f"first-{optimizer}-{ranks}", "param/embedding.user.weight", "f")[:4])
                self.assertEqual(list(self.owners(f"turns-{optimizer}-{ranks}", "user")), [hash_of("u2")])

    def test_predictions_take_the_rows_of_the_checkpoint(self):
        self.recommend("both", "--save", "run", "--ranks", 2)
        owners = self.owners("run", "user")
        users = {text for texts in texts_of(self.days[0] + self.days[1], "user") for text in texts}
        evicted = next(user for user in sorted(users) if hash_of(user) not in owners)
        known = next(user for user in sorted(users) if hash_of(user) in owners)
        sample = lambda user: ["1", "30", user, "i33", "t1|t2"]
        self.write("asked", [sample(user) for user in ("never-seen", "nor-this", evicted, known, "")])
        texts = []
        for ranks, placement in ((1, "auto"), (2, "row"), (3, "column")):
            out, _ = self.trifold("score", "--load", "run", "--data", "asked", "--output", "-", "--ranks", ranks, "--placement", placement, "--threads-per-rank", 1)
            texts.append([float(line.split(",")[2]) for line in out.splitlines()[1:]])
            self.near(texts[0], texts[-1], 1e-6)
        self.assertEqual(texts[0][0], texts[0][1])
        self.assertEqual(texts[0][0], texts[0][2])
        self.assertEqual(len({round(p, 7) for p in texts[0]}), 3)
        out = [self.trifold("evaluate", "--load", "run", "--data", "two", "--group-by", "item", "--ranks", ranks, "--threads-per-rank", 1)[0].splitlines()[0]
               for ranks in (1, 4)]
        self.assertEqual(*out)
        # The predictions are those of the run's own evaluation.
        self.recommend("both", "--valid-data", "two", "--save", "run2", "--log-json", "run2.jsonl")
        self.trifold("evaluate", "--load", "run2", "--data", "two", "--json", "two.json", "--threads-per-rank", 1)
        self.assertAlmostEqual([line["valid_auc"] for line in self.log("run2.jsonl") if "valid_auc" in line][-1],
                               json.loads((self.folder / "two.json").read_text())["auc"], delta=1e-9)

    def test_a_plan_counts_the_memory_of_keys(self):
        given = ("--train-data", "one", "--table-rows", "3000000-10-10", "--ranks", 2, "--embedding-dim", 4, "--bottom-mlp", "6-4", "--top-mlp", "6-1")
        needs = []
        for admission in (1, 2):
            self.trifold("plan", *given, "--key-admission", admission, "--json", f"plan{admission}.json")
            needs.append(json.loads((self.folder / f"plan{admission}.json").read_text())["ranks"][0]["memory"]["exchange"])
        self.assertAlmostEqual(needs[1] - needs[0], 32 * 3e6 + 2 * 2**21, delta=1e3)
        self.trifold("plan", *given, "--measure-steps", 2, "--key-admission", 2, "--global-batch-size", 50)

    def test_what_does_not_fit_is_refused(self):
        self.recommend("one", "--save", "run")
        self.write("plain", self.days[0], COLUMNS[:-4] + COLUMNS[-2:])
        self.write("seeded", self.days[0], (*COLUMNS, "--hash-seed", 3))
        for data, options, words in (
                ("one", ("--table-rows", "data"), "give the rows of each table as --table-rows"),
                ("one", ("--table-rows", "30-40"), "has 3 tables, but --table-rows has 2 values"),
                ("one", ("--table-rows", "30-2-40"), "gives table item 2 rows; it needs 3 or more"),
                ("one", ("--key-admission", 0), "--key-admission"),
                ("one", ("--key-eviction", "newest"), "--key-eviction"),
                ("plain", ("--table-rows", "data", "--key-admission", 2), "has an effect only on data of preprocess --ids keys"),
                ("one", ("--valid-data", "plain"), "but --table-rows is 30"),
                ("one", ("--valid-data", "seeded"), "table user: ids: keys of texts with seed 3"),
                ("one", ("--load", "run", "--save", "run", "--table-rows", 50), "50"),
                ("two", ("--load", "run", "--finetune", "--table-rows", 50), "Tables of keys keep their rows: give --table-rows 30-22-40"),
                ("two", ("--load", "run", "--finetune", "--table-rows", 20), "Tables of keys keep their rows: give --table-rows 30-22-40"),
                ("plain", ("--load", "run", "--finetune", "--table-rows", "data"), "Preprocess the data with --ids keys, and the columns"),
                ("one", ("--load", "run", "--key-admission", 2, "--train-epochs", 2), "key_admission: in the checkpoint 1, requested 2"),
                ("seeded", ("--load", "run", "--finetune"), "seed 3")):
            _, stderr = self.recommend(data, *options, status=2)
            self.assertIn(words, stderr, options)
        self.trifold("convert", "--load", "run", "--save", "w.safetensors")
        _, stderr = self.recommend("one", "--init-weights", "w.safetensors", status=2)
        self.assertIn("--init-weights w.safetensors: rows of tables whose ids are keys are initialised when their key first appears", stderr)
        for data in ("plain", "seeded"):
            _, stderr = self.trifold("score", "--load", "run", "--data", data, "--output", "-", status=2)
            self.assertIn("table user", stderr)
        _, stderr = self.trifold("preprocess", "--input", "one.csv", "--output", "numbered", *COLUMNS[:-4])
        self.recommend("numbered", "--table-rows", "data", "--train-iters", 1, "--save", "numbered-run")
        _, stderr = self.trifold("evaluate", "--load", "numbered-run", "--data", "one", status=2)
        self.assertIn("or data without --ids keys to a model that was trained on such", stderr)
        for options, words in ((("--dictionaries-of", "plain"), "--dictionaries-of plain has no effect with --ids keys"),
                               (("--frequency-threshold", 2), "recommend --key-admission counts"),
                               (("--max-ind-range", 100), "--max-ind-range 100 is not possible with --ids keys, which would give different values the same key"),
                               (("--dense-transform", "logmin"), "--dense-transform logmin is not possible with --ids keys")):
            _, stderr = self.trifold("preprocess", "--input", "one.csv", "--output", "x", *COLUMNS, *options, status=2)
            self.assertIn(words, stderr)
        _, stderr = self.trifold("preprocess", "--input", "one.csv", "--output", "x", *COLUMNS[:-4], "--dictionaries-of", "one", status=2)
        self.assertIn("its ids are keys, which need none", stderr)
        self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    unittest.main()
