"""A recommender as a file in the ONNX format predicts what `score` predicts. The file is read and computed here, from the
format's description, and by onnxruntime where this Python has it.

Run by a Python that has NumPy (Debian: python3-numpy).
"""

import csv
import json
import math
import random
import shutil
import struct
import unittest
import zlib

import numpy as np

from preprocessed import hash_of
from program import ProgramTest

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

MODEL = ("--table-rows 30-20-7 --table-max-ids 1-1-1 --embedding-dim 4 --bottom-mlp 8-4 --top-mlp 9-1 --global-batch-size 100 --lr 0.2 "
         "--threads-per-rank 1 --train-epochs 4 --embedding-optimizer rowwise-adagrad --embedding-lr 0.1").split()
FLOAT, INT64 = 1, 7


def fields(message):
    """[(number, value)] of a message of protocol buffers: numbers, and bytes."""
    found, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        elif key & 7 == 2:
            length = varint()
            found.append((key >> 3, message[at:at + length]))
            at += length
        else:
            raise ValueError(f"wire type {key & 7}")
    if at != len(message):
        raise ValueError("a message that ends too early")
    return found


def all_of(message, number):
    return [value for field, value in fields(message) if field == number]


def one_of(message, number):
    (value,) = all_of(message, number)
    return value


def signed(value):
    return struct.unpack("<q", struct.pack("<Q", value))[0]


def tensor_of(message):
    shape = all_of(message, 1)
    return one_of(message, 8).decode(), np.frombuffer(one_of(message, 9),
                                                      {FLOAT: "<f4", INT64: "<i8"}[one_of(message, 2)]).reshape(shape)


def pieces(x, starts, ends, axes):
    return x[tuple(slice(starts[list(axes).index(d)], ends[list(axes).index(d)]) if d in axes else slice(None)
                   for d in range(x.ndim))]


OPERATIONS = {
    "Add": lambda a, b: a + b,
    "And": lambda a, b: a & b,
    "Cast": lambda x, to: x.astype({FLOAT: np.float32}[to]),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Div": lambda a, b: a / b,
    "Equal": lambda a, b: a == b,
    "Gather": lambda x, ids, axis: np.take(x, ids, axis),
    "Gemm": lambda x, w, bias=np.float32(0), transB=0: x @ (w.T if transB else w) + bias,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Identity": lambda x: x,
    "LabelEncoder": lambda x, keys_int64s, values_int64s, default_int64: np.vectorize(
        dict(zip(keys_int64s, values_int64s, strict=True)).get, otypes=[np.int64])(x, default_int64),
    "IsNaN": np.isnan,
    "Log": np.log,
    "MatMul": lambda a, b: a @ b,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Mul": lambda a, b: a * b,
    "Not": lambda x: ~x,
    "ReduceSum": lambda x, axes, keepdims: x.sum(tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Slice": pieces,
    "Sqrt": np.sqrt,
    "Softmax": lambda x, axis: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
    "Transpose": lambda x, perm: x.transpose(perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
    "Where": np.where,
}


class OnnxModel:
    def __init__(self, data):
        self.notes = {one_of(note, 1).decode(): one_of(note, 2).decode() for note in all_of(data, 14)}
        self.version = one_of(all_of(data, 8)[0], 2)
        graph = one_of(data, 7)
        self.nodes = all_of(graph, 1)
        self.weights = dict(tensor_of(tensor) for tensor in all_of(graph, 5))
        self.inputs = [one_of(info, 1).decode() for info in all_of(graph, 11)]
        self.outputs = [one_of(info, 1).decode() for info in all_of(graph, 12)]

    def unused(self):
        """The constants that no node takes, of which onnxruntime warns."""
        return set(self.weights) - {name.decode() for node in self.nodes for name in all_of(node, 1)}

    def run(self, inputs):
        values = {**self.weights, **inputs}
        for node in self.nodes:
            attributes = {}
            for attribute in all_of(node, 5):
                kind = one_of(attribute, 20)
                name = one_of(attribute, 1).decode()
                attributes[name] = signed(one_of(attribute, 3)) if kind == 2 else [signed(v) for v in all_of(attribute, 8)]
            result = OPERATIONS[one_of(node, 4).decode()](*(values[name.decode()] for name in all_of(node, 1)), **attributes)
            values[one_of(node, 2).decode()] = result
        return [values[name] for name in self.outputs]


class Onnx(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(3)
        rows = []
        for _ in range(900):
            user, item, day = draw.randrange(30), draw.randrange(20), draw.randrange(7)
            label = int(draw.random() < 0.2 + 0.4 * (user % 2) + 0.3 * (item % 3 == 0))
            rows.append([label, draw.choice(["", "-4", "0", "2", "7.5", "130"]), draw.randrange(9), user, item, day])
        self.rows = rows
        (self.folder / "clicks.csv").write_text("label,I1,I2,C1,C2,C3\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        (self.folder / "ids.csv").write_text("label,C1,C2,C3\n" + "".join(",".join(map(str, [row[0], *row[3:]])) + "\n" for row in rows))

    def inputs(self):
        """Those of clicks.csv."""
        inputs = {f"ids.C{t + 1}": np.array([[row[3 + t]] for row in self.rows], np.int64) for t in range(3)}
        # Bags that are not full look the same.
        inputs["ids.C2"] = np.concatenate([np.full((900, 1), -1), inputs["ids.C2"], np.full((900, 2), -1)], axis=1)
        inputs["dense"] = np.array([[math.nan if x == "" else float(x) for x in row[1:3]] for row in self.rows], np.float32)
        return inputs

    def compare(self, *model, data="clicks.csv"):
        inputs = self.inputs()
        if data == "ids.csv":
            del inputs["dense"]
        return self.predicts(inputs, data, *model)

    def predicts(self, inputs, data, *model, left_out=(), endings=("",)):
        """Trains, and expects of the file what `score` predicts for the same samples, in columns and outputs of these
        endings. An option in `model` takes the place of MODEL's."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        kept = [word for name, value in zip(MODEL[::2], MODEL[1::2]) if name not in (*model, *left_out) for word in (name, value)]
        self.trifold("recommend", "--train-data", data, *kept, *model, "--save", "run")
        self.trifold("score", "--load", "run", "--data", data, "--output", "scores.csv", "--threads-per-rank", 1)
        with open(self.folder / "scores.csv", encoding="ascii") as file:
            expected = np.array([[float(row["probability" + ending]) for ending in endings] for row in csv.DictReader(file)])
        self.assertTrue((expected.max(axis=0) - expected.min(axis=0) > 0.2).all())
        out, _ = self.trifold("convert", "--load", "run", "--save", "model.onnx")
        data = (self.folder / "model.onnx").read_bytes()
        tables = sum(name.startswith(("ids.", "keys.")) for name in inputs)
        self.assertIn(f"run/step_0000000036 -> model.onnx: {tables} tables, {len(data) / 1e6:.1f} MB, ONNX", out)
        onnx = OnnxModel(data)
        self.assertEqual((onnx.version, onnx.outputs), (13, [kind + ending for ending in endings for kind in ("logit", "probability")]))
        self.assertEqual(onnx.notes["checkpoint"], "step_0000000036")
        self.assertEqual(sorted(onnx.inputs), sorted(inputs))
        self.assertEqual(onnx.unused(), set())
        results = onnx.run(inputs)
        self.assertEqual({result.shape for result in results}, {(900,)})
        self.assertLess(np.abs(np.stack(results[1::2], axis=1) - expected).max(), 2e-6)
        if onnxruntime is not None:
            session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
            found = np.stack(session.run(["probability" + ending for ending in endings], inputs), axis=1)
            self.assertLess(np.abs(found - expected).max(), 1e-5)
        return onnx

    def test_dlrm(self):
        self.compare("--dense-transform", "log1p")
        self.compare("--interaction-self", "--f64", "--dense-transform", "log3")

    def test_logmin_with_the_minimum_of_the_training_data(self):
        self.trifold("preprocess", "--input", "clicks.csv", "--output", "logmin", "--dense-transform", "logmin", "--threads", 1)
        inputs = self.inputs()
        for t in range(3):
            ids = np.frombuffer((self.folder / "logmin" / f"C{t + 1}.ids").read_bytes(), np.uint8)
            inputs[f"ids.C{t + 1}"] = ids.astype(np.int64)[:, None]
        onnx = self.predicts(inputs, "logmin", left_out=("--table-rows", "--id-policy"))
        self.assertEqual(onnx.notes["dense_transform"], "logmin with the minimum -4")

    def test_dcnv2(self):
        self.compare("--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3, "--pooling", "mean", "--dense-transform", "none",
                     "--lr", 0.01)

    def test_batch_norm(self):
        self.compare("--batch-norm", "--bottom-mlp", "8-6-4", "--top-mlp", "9-5-1")

    def test_wide_and_deep(self):
        self.compare("--interaction", "cat", "--wide", "--ranks", 2, "--placement", "row,column,replicated")

    def test_deepfm(self):
        onnx = self.compare("--interaction", "fm", "--wide", "--top-mlp", "12-6-1", "--pooling", "mean")
        self.assertEqual(onnx.weights["embedding.C1.weight"].shape, (30, 5))

    def test_without_dense_features(self):
        for model in (["--interaction", "dot"], ["--interaction", "fm", "--wide"]):
            onnx = self.compare(*model, "--dense-features", 0, data="ids.csv")
            self.assertNotIn("dense", onnx.inputs)

    def test_bags(self):
        for weighted in (False, True):
            for pooling in ("sum", "mean"):
                self.bags(weighted, "--wide", "--pooling", pooling)

    def bags(self, weighted, *model):
        """Samples with bags of 0 to 4 ids."""
        draw = random.Random(5)
        rows = []
        for _ in range(900):
            words = [(draw.randrange(15), draw.choice((0.25, 1.0, -2.0))) for _ in range(draw.randrange(5))]
            score = sum((weight if weighted else 1) * (word % 3 - 1) for word, weight in words)
            rows.append((int(draw.random() < 1 / (1 + math.exp(-score))), draw.choice(["", "3", "80"]), draw.randrange(8), words))
        self.assertEqual({len(row[3]) for row in rows}, {0, 1, 2, 3, 4})

        def field(words):
            return "|".join(f"w{word}:{weight}" if weighted else f"w{word}" for word, weight in words)
        (self.folder / "bags.csv").write_text("y,x,user,words\n" + "".join(f"{y},{x},u{user},{field(words)}\n" for y, x, user, words in rows))
        clicks = f"bags-{weighted}-{model[-1]}"
        self.trifold("preprocess", "--input", "bags.csv", "--output", clicks, "--label", "y", "--dense", "x", "--sparse", "user",
                     "--bag", "words:|", "--threads", 1, *(["--bag-weights", "words"] if weighted else []))
        # Ids are numbered in the order in which texts appear, from 2.
        users, texts = {}, {}
        inputs = {"dense": np.array([[float(row[1] or "nan")] for row in rows], np.float32),
                  "ids.user": np.array([[users.setdefault(row[2], len(users) + 2)] for row in rows], np.int64),
                  "ids.words": np.full((900, 5), -1, np.int64)}
        weights = np.full((900, 5), np.nan, np.float32)  # those that belong to no id have no effect
        for sample, row in enumerate(rows):
            for place, (word, weight) in enumerate(row[3], sample % 2):
                inputs["ids.words"][sample, place] = texts.setdefault(word, len(texts) + 2)
                weights[sample, place] = weight
        if weighted:
            inputs.update({"weights.user": np.ones((900, 1), np.float32), "weights.words": weights})
        self.predicts(inputs, clicks, *model, "--interaction", "cat", left_out=("--table-rows", "--table-max-ids"))

    def test_attention(self):
        draw = random.Random(6)
        rows = []
        for _ in range(900):
            item, history = draw.randrange(8), [draw.randrange(8) for _ in range(draw.randrange(4))]
            rows.append((int(draw.random() < (0.9 if any(seen % 2 == item % 2 for seen in history) else 0.1)), draw.randrange(9), item, history))
        (self.folder / "bags.csv").write_text("y,x,item,history\n" + "".join(f"{y},{x},i{item},{'|'.join(f'i{seen}' for seen in history)}\n"
                                                                           for y, x, item, history in rows))
        self.trifold("preprocess", "--input", "bags.csv", "--output", "history", "--label", "y", "--dense", "x", "--sparse", "item", "--bag", "history:|",
                     "--share-table", "history:item", "--threads", 1)
        numbers = {}  # in the order in which texts appear among items, from 2
        inputs = {"dense": np.array([[row[1]] for row in rows], np.float32),
                  "ids.item": np.array([[numbers.setdefault(row[2], len(numbers) + 2)] for row in rows], np.int64),
                  "ids.history": np.full((900, 4), -1, np.int64)}
        for sample, row in enumerate(rows):
            for place, seen in enumerate(row[3], sample % 2):
                inputs["ids.history"][sample, place] = numbers[seen]
        for more in (["--wide", "--interaction", "cat"], ["--pooling", "mean"]):
            onnx = self.predicts(inputs, "history", *more, "--attention", "history:item", "--attention-mlp", "6-3-1", "--lr", 0.5,
                                 left_out=("--table-rows", "--table-max-ids"))
            self.assertNotIn("embedding.history.weight", onnx.weights)

    def test_several_labels(self):
        draw = random.Random(9)
        lines = [[row[0], int(draw.random() < 0.2 + 0.5 * (row[4] % 2)) if draw.random() < 0.8 else "", *row[1:]] for row in self.rows]
        (self.folder / "labels.csv").write_text("click,buy,I1,I2,user,item,day\n" + "".join(",".join(map(str, line)) + "\n" for line in lines))
        self.trifold("preprocess", "--input", "labels.csv", "--output", "labels", "--label", "click,buy", "--dense", "I1,I2", "--sparse",
                     "user,item,day", "--threads", 1)
        inputs = {"dense": self.inputs()["dense"]}
        for place, name in enumerate(("user", "item", "day")):
            seen = {}  # ids are numbered in the order in which texts appear, from 2
            inputs[f"ids.{name}"] = np.array([[seen.setdefault(row[3 + place], len(seen) + 2)] for row in self.rows], np.int64)
        for model in (["--interaction", "fm", "--wide"], ["--multi-task", "mmoe", "--mmoe-experts", 3]):
            onnx = self.predicts(inputs, "labels", *model, "--tower-mlp", "5-1", "--lr", 0.5, left_out=("--table-rows", "--table-max-ids"),
                                 endings=("_click", "_buy"))
            self.assertEqual(onnx.weights["tower.buy.0.weight"].shape, (5, 9))

    def test_dropped_negatives_and_unknown_values(self):
        (self.folder / "named.csv").write_text("click,user,item\n" + "".join(f"{row[0]},{row[3]},{row[4]}\n" for row in self.rows))
        (self.folder / "new.csv").write_text("click,user,item\n0,500,3\n1,2,3\n0,2,700\n1,500,700\n")
        self.trifold("preprocess", "--input", "named.csv", "--output", "named", "--label", "click", "--sparse", "user,item", "--drop-negatives", 0.5,
                     "--threads", 1)
        self.trifold("preprocess", "--input", "new.csv", "--output", "new", "--dictionaries-of", "named")
        self.trifold("recommend", "--train-data", "named", "--embedding-dim", 4, "--top-mlp", "5-1", "--interaction", "cat", "--wide",
                     "--global-batch-size", 50, "--train-epochs", 4, "--lr", 0.2, "--threads-per-rank", 1, "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "model.onnx")
        onnx = OnnxModel((self.folder / "model.onnx").read_bytes())
        for data in ("named", "new"):
            self.trifold("score", "--load", "run", "--data", data, "--output", "scores.csv", "--threads-per-rank", 1)
            with open(self.folder / "scores.csv", encoding="ascii") as file:
                expected = np.array([float(row["probability"]) for row in csv.DictReader(file)])
            inputs = {f"ids.{name}": np.frombuffer((self.folder / data / f"{name}.ids").read_bytes(), np.uint8).astype(np.int64)[:, None]
                      for name in ("user", "item")}
            self.assertEqual(1 in inputs["ids.user"], data == "new")
            self.assertLess(np.abs(onnx.run(inputs)[1] - expected).max(), 2e-6)

    def test_keys(self):
        """The file has the rows that training gave to the hashes of texts; hashes without one, of which there are many,
        and missing values have the rows 1 and 0."""
        draw = random.Random(8)
        rows = []
        for _ in range(900):
            user, tags = draw.randrange(60), [draw.randrange(30) for _ in range(draw.randrange(4))]
            rows.append((int(draw.random() < 0.2 + 0.6 * (user % 3 == 0)), draw.randrange(9), f"u{user}" if draw.random() < 0.9 else "", [f"t{tag}" for tag in tags]))
        (self.folder / "keys.csv").write_text("y,x,user,tags\n" + "".join(f"{y},{x},{user},{'|'.join(tags)}\n" for y, x, user, tags in rows))
        self.trifold("preprocess", "--input", "keys.csv", "--output", "keys", "--label", "y", "--dense", "x", "--sparse", "user", "--bag", "tags:|",
                     "--ids", "keys", "--threads", 1)

        def key_of(text):
            return signed(hash_of(text)) if text else 0
        inputs = {"dense": np.array([[row[1]] for row in rows], np.float32),
                  "keys.user": np.array([[key_of(row[2])] for row in rows], np.int64),
                  "keys.tags": np.full((900, 4), -1, np.int64)}
        for sample, row in enumerate(rows):
            for place, tag in enumerate(row[3], sample % 2):
                inputs["keys.tags"][sample, place] = key_of(tag)
        onnx = self.predicts(inputs, "keys", "--table-rows", "40-20", "--interaction", "cat", "--wide", left_out=("--table-max-ids",))
        self.assertEqual(onnx.weights["embedding.user.weight"].shape, (40, 5))

    def test_ids_outside_their_tables(self):
        for policy in ("modulo", "clip"):
            onnx = self.predicts(self.inputs(), "clicks.csv", "--table-rows", "14-12-7", "--id-policy", policy)
            self.assertEqual(onnx.weights["embedding.C1.weight"].shape[0], 14)

    def test_a_checkpoint_that_does_not_know_its_transform(self):
        for data in ("clicks.csv", "ids.csv"):
            self.trifold("recommend", "--train-data", data, *MODEL, *(["--dense-features", 0] if data == "ids.csv" else []), "--save", data + "-run")
            manifest = self.folder / (data + "-run") / "step_0000000036" / "manifest.json"
            stored = json.loads(manifest.read_text())
            del stored["crc32"], stored["state"]["clicks"]
            text = json.dumps(stored)[:-1] + ',\n"crc32": "'
            manifest.write_text(text + f'{zlib.crc32(text.encode()):08x}"\n}}\n')
        _, err = self.trifold("convert", "--load", "clicks.csv-run", "--save", "m.onnx", status=2)
        self.assertIn("the checkpoint does not say how its 2 dense features were transformed", err)
        self.assertNotIn("m.onnx", self.files())
        self.trifold("convert", "--load", "ids.csv-run", "--save", "m.onnx")

    def test_models_that_cannot_be_written(self):
        self.trifold("recommend", "--train-data", "clicks.csv", *MODEL, "--save", "run")
        for more, words in ((["--save", "out"], "run/step_0000000036 is a checkpoint of a recommender, which becomes one file: --save out ends "
                                                "neither in .onnx nor in .safetensors"),
                            (["--save", "m.onnx", "--dtype", "bf16"], "--dtype has no effect on a recommender"),
                            (["--save", "m.onnx", "--max-file-size", 1], "--max-file-size has no effect on a recommender"),
                            (["--save", "m.onnx", "--max-memory", 16], "--max-memory has no effect on a recommender"),
                            (["--save", "none/m.onnx"], "--save")):
            _, err = self.trifold("convert", "--load", "run", *more, status=2)
            self.assertIn(words, err)
        self.assertFalse([name for name in self.files() if "onnx" in name])


if __name__ == "__main__":
    unittest.main()
