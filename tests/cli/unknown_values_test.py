"""Values that no dictionary has: counted by all commands, predicted by the mean of the trained rows, and grouped by what they are."""

import collections
import csv
import json
import random
import struct
import unittest

from preprocessed import PreprocessTest

COLUMNS = ("--label", "click", "--sparse", "user,item", "--threads", 1)
MODEL = ("--embedding-dim", 4, "--top-mlp", "6-1", "--interaction", "cat", "--global-batch-size", 32, "--lr", 0.05, "--optimizer", "adagrad",
         "--embedding-optimizer", "rowwise-adagrad", "--threads-per-rank", 1, "--lr-decay-style", "constant")


def clicks(count, users, seed, missing=0.0):
    draw = random.Random(seed)
    for _ in range(count):
        user, item = draw.randrange(*users), draw.randrange(8)
        yield [int(draw.random() < 0.2 + 0.6 * ((user + item) % 3 == 0)), f"u{user}" if draw.random() >= missing else "", f"i{item}",
               f"s{draw.randrange(30)}"]


def ranking(groups):
    """GAUC and the number of groups with both labels."""
    total = samples = count = 0
    for group in groups.values():
        clicked, others = [p for p, y in group if y], [p for p, y in group if not y]
        if clicked and others:
            auc = sum((a > b) + (a == b) / 2 for a in clicked for b in others) / len(clicked) / len(others)
            total, samples, count = total + auc * len(group), samples + len(group), count + 1
    return total / samples, count


class UnknownValues(PreprocessTest):
    def table(self, name, rows):
        rows = list(rows)
        self.write(f"{name}.csv", "click,user,item,session\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        return rows

    def train(self, data, *options, **more):
        """An option takes the place of the model's."""
        kept = [word for pair in zip(MODEL[::2], MODEL[1::2]) if pair[0] not in options for word in pair]
        return self.trifold("recommend", "--train-data", data, *kept, *options, **more)

    def evaluate(self, run, data, *options):
        out, err = self.trifold("evaluate", "--load", run, "--data", data, "--json", "e.json", "--threads-per-rank", 1, *options)
        return json.loads((self.folder / "e.json").read_text()), out, err

    def score(self, run, data, *options):
        out, err = self.trifold("score", "--load", run, "--data", data, "--output", "-", "--threads-per-rank", 1, *options)
        return [float(row["probability"]) for row in csv.DictReader(out.splitlines())], err

    def weights(self, run):
        """The tensors of a model's safetensors file, as lists of rows."""
        self.trifold("convert", "--load", run, "--save", f"{run}.safetensors")
        data = (self.folder / f"{run}.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        tensors = {}
        for name, tensor in json.loads(data[8:8 + size]).items():
            if name == "__metadata__" or tensor["dtype"] != "F32":
                continue
            begin, end = tensor["data_offsets"]
            values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
            width = tensor["shape"][-1]
            tensors[name] = [values[at:at + width] for at in range(0, len(values), width)]
        return tensors

    def test_counts_of_every_command(self):
        self.write("train.csv", "click,user\n" + "".join(f"{i % 2},u{i % 5}\n" for i in range(40)))
        self.write("test.csv", "click,user\n" + "".join(f"{i % 2},{'' if i % 5 == 0 else f'U{i % 5}'}\n" for i in range(20)))
        self.write("half.csv", "click,user\n0,u1\n1,u7\n0,u7\n1,u9\n")
        columns = ("--label", "click", "--sparse", "user")
        self.preprocess("train.csv", "train", columns=columns)
        _, err = self.preprocess("test.csv", "test", "--dictionaries-of", "train", columns=())
        self.assertIn("table user: 16 of 16 values (100.0 %) are not in the dictionary of train and have id 1\n", err)
        self.assertIn("warning: table user: none of the 16 values is known", err)
        _, err = self.preprocess("half.csv", "half", "--dictionaries-of", "train", columns=())
        self.assertIn("table user: 3 of 4 values (75.0 %) are not in the dictionary of train", err)
        self.assertNotIn("warning", err)
        _, err = self.preprocess("half.csv", "grown", "--dictionaries-of", "train", "--grow-dictionaries", "--frequency-threshold", 2, columns=())
        self.assertIn("table user: 3 of 4 values (75.0 %) are not in the dictionary of train; 1 have id 1", err)
        _, err = self.preprocess("half.csv", "rare", "--frequency-threshold", 2, columns=columns)
        self.assertIn("table user: 2 of 4 values (50.0 %) occur less than --frequency-threshold 2 times and have id 1", err)
        _, err = self.preprocess("half.csv", "again", "--dictionaries-of", "rare", columns=())
        self.assertIn("table user: 2 of 4 values", err)
        manifest = self.folder_of("test")[0]
        self.assertEqual(manifest["tables"][0]["unknown_values"], 16)
        self.assertEqual((self.folder / "test" / "user.unknown").stat().st_size, 16 * 8)
        self.assertNotIn("unknown_values", self.folder_of("train")[0]["tables"][0])
        self.train("train", "--save", "run")
        for data in ("test", "test.csv"):
            for ranks in (1, 2):
                result, out, err = self.evaluate("run", data, "--ranks", ranks)
                self.assertEqual(result["unknown_values"], {"user": {"values": 16, "unknown": 16}})
                self.assertIn("table user: 16 of 16 values (100.0 %) are unknown to the model\n", out)
                self.assertIn("warning: table user: none of the 16 values is known", err)
                _, err = self.score("run", data, "--ranks", ranks)
                self.assertIn("table user: 16 of 16 values (100.0 %) are unknown to the model\n", err)
                self.assertIn("warning: table user", err)
        result, out, err = self.evaluate("run", "half")
        self.assertEqual(result["unknown_values"], {"user": {"values": 4, "unknown": 3}})
        self.assertNotIn("warning", err)
        result, out, _ = self.evaluate("run", "train")
        self.assertEqual(result["unknown_values"], {"user": {"values": 40, "unknown": 0}})
        self.assertNotIn("unknown", out)

    def test_an_untrained_row_reads_as_the_mean(self):
        self.table("train", clicks(400, (0, 20), 1))
        self.table("test", clicks(100, (15, 40), 2))
        self.table("one", [[0, "never", "i3", ""], [0, "nor-this", "i3", ""]])
        self.preprocess("train.csv", "train", columns=COLUMNS)
        self.preprocess("test.csv", "test", "--dictionaries-of", "train", columns=())
        self.train("train", "--save", "run")
        table = self.weights("run")["embedding.user.weight"]
        for column in range(4):
            self.assertAlmostEqual(table[1][column], sum(row[column] for row in table[2:]) / len(table[2:]), delta=1e-7)
        expected, _ = self.score("run", "one.csv")
        self.assertEqual(expected[0], expected[1])
        for options in (("--ranks", 2, "--placement", "row"), ("--ranks", 2, "--placement", "column"), ("--ranks", 3, "--placement", "replicated"),
                        ("--table-storage", ".")):
            for a, b in zip(expected, self.score("run", "one.csv", *options)[0]):
                self.assertAlmostEqual(a, b, delta=1e-6)
        # The mean as a row of its own gives the same.
        self.train("train", "--init-weights", "run.safetensors", "--train-iters", 1, "--lr", 1e-30, "--save", "again")
        self.assertAlmostEqual(self.score("again", "one.csv")[0][0], expected[0], delta=1e-6)
        # The checkpoint has the row as it was, whether evaluations used it or not.
        self.train("train", "--save", "valid", "--valid-data", "test", "--eval-interval", 5, "--log-json", "v.jsonl")
        out, _ = self.trifold("inspect", "run", "--diff", "valid")
        self.assertRegex(out, r"all \d+ tensors are bitwise equal")
        result, _, _ = self.evaluate("valid", "test")
        logged = [line["valid_log_loss"] for line in self.log("v.jsonl") if "valid_log_loss" in line]
        self.assertGreater(len(logged), 2)
        self.assertAlmostEqual(logged[-1], result["log_loss"], delta=1e-7)
        for options in (("--ranks", 2, "--placement", "row"), ("--ranks", 2, "--placement", "column"), ("--ranks", 2, "--placement", "replicated"),
                        ("--table-storage", ".")):
            self.train("train", "--save", "other", "--valid-data", "test", "--eval-interval", 5, "--log-json", "o.jsonl", *options)
            for a, b in zip(logged, [line["valid_log_loss"] for line in self.log("o.jsonl") if "valid_log_loss" in line], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-5)
            if options[0] != "--ranks":
                out, _ = self.trifold("inspect", "run", "--diff", "other")
                self.assertRegex(out, r"all \d+ tensors are bitwise equal")
            for name in ("other", "o.jsonl"):
                self.remove(name)

    def test_tables_in_files(self):
        """Tables of which some rows alone are in memory: the mean takes their place there too, and what training changes stays."""
        self.write("many.csv", "click,user,item\n" + "".join(f"{i * 7 % 3 % 2},u{i},i{i % 5}\n" for i in range(4000)))
        self.write("new.csv", "click,user,item\n" + "".join(f"{i % 2},v{i},i{i % 5}\n" for i in range(50)))
        self.preprocess("many.csv", "many", columns=COLUMNS)
        self.preprocess("new.csv", "new", "--dictionaries-of", "many", columns=())
        logged = []
        for run, options in (("memory", ()), ("files", ("--table-storage", ".", "--table-cache", 4e-5))):
            self.train("many", "--save", run, "--valid-data", "new", "--eval-interval", 40, "--log-json", f"{run}.jsonl", *options)
            logged.append([line["valid_log_loss"] for line in self.log(f"{run}.jsonl") if "valid_log_loss" in line])
        self.assertEqual(*logged)
        out, _ = self.trifold("inspect", "memory", "--diff", "files")
        self.assertRegex(out, r"all \d+ tensors are bitwise equal")
        scores = [self.score("memory", "new", "--global-batch-size", 50, *options)[0] for options in ((), ("--table-storage", ".", "--table-cache", 4e-5))]
        self.assertEqual(*scores)

    def remove(self, name):
        path = self.folder / name
        if path.is_dir():
            for file in sorted(path.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            path.rmdir()
        else:
            path.unlink()

    def test_which_rows_were_trained_outlasts_runs(self):
        self.table("train", clicks(400, (0, 20), 1))
        self.table("two", clicks(400, (10, 30), 2))
        self.table("one", [[0, "never", "i3", ""]])
        self.preprocess("train.csv", "train", columns=COLUMNS)
        self.preprocess("two.csv", "two", "--dictionaries-of", "train", "--grow-dictionaries", columns=())
        self.preprocess("train.csv", "rare", "--frequency-threshold", 25, columns=COLUMNS)
        for optimizer in ("sgd", "adam", "ftrl"):
            first, second = f"first-{optimizer}", f"second-{optimizer}"
            options = ("--embedding-optimizer", optimizer, "--seed", 7)
            self.train("train", *options, "--save", first, "--exit-interval", 5)
            self.train("train", *options, "--load", first, "--save", first)
            self.train("two", "--embedding-optimizer", optimizer, "--seed", 8, "--finetune", "--load", first, "--save", second)
            for run, rows in ((first, 22), (second, 32)):
                table = self.weights(run)["embedding.user.weight"]
                self.assertEqual(len(table), rows)
                for column in range(4):
                    self.assertAlmostEqual(table[1][column], sum(row[column] for row in table[2:]) / (rows - 2), delta=1e-6)
        # Trained by rare values, the row is what training made of it.
        self.train("rare", "--save", "with-rare")
        table = self.weights("with-rare")["embedding.user.weight"]
        self.assertGreater(max(abs(table[1][c] - sum(row[c] for row in table[2:]) / len(table[2:])) for c in range(4)), 1e-3)

    def test_changes_have_the_mean_too(self):
        self.table("train", clicks(400, (0, 20), 1))
        self.preprocess("train.csv", "train", columns=COLUMNS)
        self.train("train", "--save", "run", "--save-interval", 4)
        self.trifold("convert", "--load", "run/step_0000000004", "--save", "old.safetensors")
        self.trifold("convert", "--load", "run", "--save", "change.safetensors", "--changed-since", "run/step_0000000004")
        data = (self.folder / "change.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        part = lambda name: data[8 + size + header[name]["data_offsets"][0]:8 + size + header[name]["data_offsets"][1]]
        rows = struct.unpack(f"<{len(part('embedding.user.rows')) // 8}q", part("embedding.user.rows"))
        self.assertEqual(rows[0], 1)
        self.assertEqual(struct.unpack("<4f", part("embedding.user.weight")[:16]), self.weights("run")["embedding.user.weight"][1])

    def test_groups_are_those_of_values(self):
        self.table("train", clicks(500, (0, 15), 3))
        rows = self.table("test", clicks(400, (0, 40), 4, missing=0.05))
        self.preprocess("train.csv", "train", columns=COLUMNS)
        self.preprocess("test.csv", "test", "--dictionaries-of", "train", columns=())
        for keys in ("train", "test"):
            self.preprocess(f"{keys}.csv", f"{keys}-keys", "--ids", "keys", columns=COLUMNS)
        self.train("train", "--save", "run")
        for name, options in (("small", ("--table-rows", "8-8")), ("large", ("--table-rows", 60, "--key-admission", 3))):
            self.train("train-keys", *options, "--save", name)
        for run, data, by in (("run", "test", 1), ("run", "test.csv", 1), ("run", "test.csv", 3), ("run", "test", 2), ("small", "test-keys", 1),
                              ("large", "test-keys", 1), ("large", "test.csv", 1)):
            scores, _ = self.score(run, data)
            groups = collections.defaultdict(list)
            for score, row in zip(scores, rows, strict=True):
                if row[by]:
                    groups[row[by]].append((score, row[0]))
            gauc, count = ranking(groups)
            for ranks in (1, 3):
                result, _, _ = self.evaluate(run, data, "--group-by", ("click", "user", "item", "session")[by], "--ranks", ranks)
                self.assertAlmostEqual(result["gauc"], gauc, delta=2e-4 if ranks > 1 else 1e-6)
                self.assertEqual((result["gauc_groups"], result["ungrouped_unknown_samples"]), (count, 0), (run, data, by))
        _, err = self.trifold("evaluate", "--load", "run", "--data", "test", "--group-by", "session", status=2)
        self.assertIn("--group-by session: test has no such table; it has user, item", err)
        _, err = self.trifold("evaluate", "--load", "run", "--data", "test.csv", "--group-by", "age", status=2)
        self.assertIn("age", err)
        # What rare values of a dictionary's own data are is not kept.
        self.preprocess("train.csv", "rare", "--frequency-threshold", 35, columns=COLUMNS)
        self.train("rare", "--save", "with-rare")
        result, out, _ = self.evaluate("with-rare", "rare", "--group-by", "user")
        self.assertGreater(result["ungrouped_unknown_samples"], 0)
        self.assertIn(f"{result['ungrouped_unknown_samples']} samples are in no group", out)


if __name__ == "__main__":
    unittest.main()
