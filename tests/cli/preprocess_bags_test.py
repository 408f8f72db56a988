"""Columns whose fields hold bags of ids, with and without weights: `preprocess`, and models trained on the result."""

import math
import os
import pathlib
import random
import re
import shutil
import struct
import unittest

from preprocessed import PreprocessTest, hash_of


PAGE = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "docs" / "click_format.md"


class Bags(PreprocessTest):
    def test_the_program_of_the_documentation(self):
        page, names = PAGE.read_text(encoding="utf-8"), {}
        exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)  # pylint: disable=exec-used
        users, items = ["u1", "NA", "", "Käse", "u1"], ["i1", "i2", "i3", "i1", ""]
        history = [["i2", "i9"], [], ["i1"], ["i2"], []]
        self.write("day.csv", "y,user,item,seen\n" + "".join(f"1,{u},{i},{'|'.join(h)}\n" for u, i, h in zip(users, items, history)))
        self.preprocess("day.csv", "out", "--hash-seed", 5, columns=("--label", "y", "--sparse", "user,item", "--bag", "seen:|", "--share-table", "seen:item"))
        folder = str(self.folder / "out")
        manifest, found = self.bags("out")
        for column, texts in (("user", users), ("item", items)):
            self.assertEqual([[id] for id in names["ids_of"](folder, column, texts)], found[column])
        self.assertEqual([names["ids_of"](folder, "seen", texts) for texts in history], found["seen"])
        self.assertEqual(names["ids_of"](folder, "user", ["u7"]), [1])
        # Every key is described.
        for keys in (manifest, *manifest["tables"], *manifest["sources"], manifest["columns"]):
            for key in keys:
                self.assertIn(key, re.findall(r"[a-z_0-9]+", page))
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
        for options, words in ((("--dictionaries-of", "hash"), "hash has no dictionaries: its ids are hashes, which need none: give --ids hash --max-ind-range 1000"),
                               (("--dictionaries-of", "rare", "--dense-transform", "none"),
                                "rare was made with --dense-transform log1p and --max-ind-range 0, and this is none and 0: give the same")):
            _, err = self.preprocess("movies.csv", "x", *options, columns=columns, status=2)
            self.assertIn(words, err)
        self.write("later.csv", "y,user,genres:token_seq,tags\n1,u9,Drama|Comedy|Action|Comedy,old\n")
        self.preprocess("later.csv", "later", "--threads", 1, "--dictionaries-of", "rare", columns=columns)
        self.assertEqual(self.bags("later")[1]["genres_token_seq"], [[1, 3, 2, 3]])
        for more, words in (
                (("--sparse", "user,tags", "--bag", "genres:token_seq:|"), "column 2 is tags here, genres_token_seq in rare"),
                (("--sparse", "user", "--bag", "tags"), "--bag tags has no separator, which the values of a text field need: give tags:| or tags:space"),
                (("--sparse", "user", "--bag", ":|"), "':|' is not a column and its separator, such as genres:|"),
                (("--sparse", "user", "--max-bag", 2), "--max-bag 2: movies.csv has no column of bags: leave it out, or name one with --bag"),
                (("--sparse", "user", "--bag", "genres:||"), "'||' is not a separator: give one character other than a quote, or the word space, tab or comma"),
                (("--sparse", "user", "--bag", "kinds:|"), "movies.csv:1: --bag names the column 'kinds'"),
                (("--sparse", "user,genres:token_seq,tags"), "column genres_token_seq belongs to --bag in rare: give it there too")):
            given = ("--dictionaries-of", "rare") if "in rare" in words else ()
            _, err = self.preprocess("movies.csv", "x", "--threads", 1, *given, columns=("--label", "y", *more), status=2)
            self.assertIn(words, err)

    def test_the_weights_of_a_bag_may_be_in_another_column(self):
        rows = ["1,u1,a|b,0.5|2", "0,u2,,", "1,u1, b |NA|k:v,-1.25|7|1e2", "0,u3,c|a|b,0|3|1"]
        self.write("pairs.csv", "y,user,words,how much\n" + "".join(row + "\n" for row in rows))
        self.write("w.csv", "y,user,words\n1,u1,a:0.5|b:2\n0,u2,\n1,u1,b:-1.25|k:v:1e2\n0,u3,c:0|a:3|b:1\n")
        columns = ("--label", "y", "--sparse", "user", "--bag", "words:|", "--threads", 2)
        self.preprocess("pairs.csv", "pairs", "--bag-weights", "words:how much", columns=columns)
        self.preprocess("w.csv", "w", "--bag-weights", "words", columns=columns)
        for name in ("words.ids", "words.ends", "words.weights", "words.dict", "labels.bin"):
            self.assertEqual((self.folder / "pairs" / name).read_bytes(), (self.folder / "w" / name).read_bytes(), name)
        self.preprocess("pairs.csv", "later", "--dictionaries-of", "pairs", columns=("--threads", 1))
        self.assertEqual((self.folder / "later" / "words.weights").read_bytes(), (self.folder / "w" / "words.weights").read_bytes())
        for row, words in (("1,u1,a|b,0.5", "a bag has another number of values than of weights"), ("1,u1,a|b,1|x", "column how much: '1|x' is not a list of weights"),
                           ("1,u1,a|b,1|", "column how much: '1|' is not a list of weights")):
            self.write("bad.csv", "y,user,words,how much\n" + row + "\n")
            _, err = self.preprocess("bad.csv", "x", "--bag-weights", "words:how much", columns=columns, status=2)
            self.assertIn(words, err)
        _, err = self.preprocess("pairs.csv", "x", "--bag-weights", "words:weights", columns=columns, status=2)
        self.assertIn("--bag-weights names the column 'weights'", err)

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
        for text, words in (("a", "'a|b:1' is not a list of weighted texts such as a:0.5|b:2"), ("a:x", "'a:x|b:1' is not a list"), ("a:inf", "'a:inf|b:1' is not"),
                            ("a:", "'a:|b:1' is not")):
            self.write("bad.csv", f"y,user,words\n1,u1,{text}|b:1\n")
            _, err = self.preprocess("bad.csv", "x", columns=columns, status=2)
            self.assertIn("bad.csv:2: column words: " + words, err)
        for more, words in ((("--bag-weights", "user"), "--bag-weights names the column 'user', which --bag does not name"),
                            (("--dictionaries-of", "out"), "column words belongs to --bag-weights in out: give the same")):
            _, err = self.preprocess("w.csv", "x", *more, columns=columns[:6] + columns[-2:], status=2)
            self.assertIn(words, err)

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
        self.assertLess(sum(one[-10:]), sum(self.losses("plain.jsonl")[-10:]) - 0.3)  # the weights have information that the words alone do not
        for placement in ("table", "row", "column", "replicated"):
            train("weights", f"{placement}.jsonl", "--ranks", 2, "--placement", placement)
            for got, wanted in zip(self.losses(f"{placement}.jsonl"), one, strict=True):
                self.assertLess(abs(got - wanted), 2e-5, placement)
        # Data with weights and without do not mix.
        _, err = train("weights", "x.jsonl", "--valid-data", "plain", status=2)
        self.assertIn("ids have weights in weights, but not in plain", err)
        _, err = self.trifold("evaluate", "--load", "run_weights", "--data", "plain", "--threads-per-rank", 1, status=2)
        self.assertIn("but not in plain", err)
        self.trifold("evaluate", "--load", "run_weights", "--data", "weights", "--threads-per-rank", 1)
        file = self.folder / "weights" / "words.weights"
        whole = file.read_bytes()
        for damaged, words in ((whole[:-4], f"words.weights has {len(whole) - 4} bytes; the {len(whole) // 4} ids of"), (b"\0\0\xc0\x7f" + whole[4:], "is nan, not a number")):
            file.write_bytes(damaged)
            _, err = train("weights", "x.jsonl", status=2)
            self.assertIn(words, err)

    def test_bags_may_be_cut(self):
        self.write("w.csv", "y,words\n1,a b c d\n0,b\n1,\n0,c d e\n")
        _, err = self.preprocess("w.csv", "out", "--max-bag", 2, columns=("--label", "y", "--bag", "words:space", "--threads", 1))
        self.assertIn("table words: 2 of 4 bags were longer than --max-bag 2; their first ids were kept", err)
        manifest, found = self.bags("out")
        self.assertEqual(found["words"], [[2, 3], [3], [], [4, 5]])
        self.assertEqual((manifest["max_bag"], manifest["tables"][0]["cut_bags"], manifest["tables"][0]["most_ids"]), (2, 2, 2))

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
        for damaged, words in ((whole[:-8], "words.ends has 23992 bytes; 3000 samples of 8 bytes need 24000"),
                               (whole[:-8] + struct.pack("<Q", 1 << 40), f"words.ends ends at id {1 << 40}, and an id has 1 byte: one of the files is truncated"),
                               (whole[:800] + struct.pack("<Q", 1 << 40) + whole[808:], "words.ends: sample 10")):
            ends.write_bytes(damaged)
            _, err = self.trifold(*line, status=2)
            self.assertIn(words, err)
        ends.write_bytes(whole)
        ids = self.folder / "train" / "words.ids"
        numbers = ids.read_bytes()
        for damaged in (numbers[:-1], numbers + b"\0", b""):
            ids.write_bytes(damaged)
            _, err = self.trifold(*line, status=2)
            self.assertIn(f"words.ids has {len(damaged)} bytes; the last bag in train/words.ends ends at id {len(numbers)}", err)


if __name__ == "__main__":
    unittest.main()
