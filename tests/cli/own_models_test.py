"""Models that PyTorch exported are trained over meshes of ranks, resumed, resharded, evaluated and planned."""

import json
import math
import random
import re
import shutil
import struct
import unittest
import zipfile

from own_models import MODELS, OwnModelsTest, write_npy

# The same sums in the same order as one rank has.
SAME_SUMS = ["--ranks 2 --pipeline-model-parallel-size 2 --schedule gpipe",
             "--ranks 2 --pipeline-model-parallel-size 2 --schedule 1f1b",
             "--ranks 2 --pipeline-model-parallel-size 2 --schedule zb-h1",
             "--ranks 4 --pipeline-model-parallel-size 4",
             "--ranks 2 --pipeline-model-parallel-size 2 --schedule zb-v",
             "--ranks 2 --pipeline-model-parallel-size 2 --schedule interleaved --num-virtual-stages-per-pipeline-rank 2",
             "--recompute-granularity full",
             "--zero-stage 1", "--zero-stage 2", "--zero-stage 3",
             "--cpu-offloading-num-layers 1 --cpu-offloading-folder .",
             "--ranks 2 --pipeline-model-parallel-size 2 --schedule 1f1b --zero-stage 2 --recompute-granularity full",
             "--ranks 2 --pipeline-model-parallel-size 2 --schedule zb-h1 --zero-stage 2 --recompute-granularity full"]


class Meshes(OwnModelsTest):
    def check(self, name):
        one = self.curve(name)
        self.assertEqual(len(one), 6)
        for arguments in SAME_SUMS:
            with self.subTest(arguments):
                self.assertEqual(self.curve(name, *arguments.split()), one)

    def check_copies(self, name):
        one = self.curve(name, "--f64")
        two = self.curve(name, "--f64", "--ranks", 2)
        for a, b in zip(one, two, strict=True):
            self.assertAlmostEqual(a[1], b[1], delta=1e-11 * abs(a[1]))
            self.assertAlmostEqual(a[2], b[2], delta=1e-9 * abs(a[2]))
        # Stages of ZeRO reduce in one order.
        for stage in (1, 2, 3):
            self.assertEqual(self.curve(name, "--f64", "--ranks", 2, "--zero-stage", stage), two)

    def test_gpt2(self):
        self.check("gpt2")

    def test_t5(self):
        self.check("t5")

    def test_one_micro_batch(self):
        """Both uses of a tied table are then summed in the memory of one, if that is the same sum."""
        for name in ("gpt2", "t5"):
            one = self.curve(name, "--micro-batch-size", 8)
            for mesh in ("--ranks 2 --pipeline-model-parallel-size 2", "--ranks 4 --pipeline-model-parallel-size 4"):
                self.assertEqual(self.curve(name, "--micro-batch-size", 8, *mesh.split()), one)

    def test_roberta(self):
        self.check("roberta")

    def test_mixer(self):
        """Its last block has no parameters."""
        self.check("mixer")

    def test_copies_of_gpt2(self):
        self.check_copies("gpt2")

    def test_copies_of_t5(self):
        self.check_copies("t5")

    def test_copies_of_roberta(self):
        self.check_copies("roberta")


class Runs(OwnModelsTest):
    def test_resume(self):
        for name in ("gpt2", "t5"):
            whole = self.curve(name, "--f64")
            self.curve(name, "--f64", "--exit-interval", 3, "--save", name)
            for arguments in ([], ["--ranks", 2, "--pipeline-model-parallel-size", 2, "--zero-stage", 1]):
                shutil.rmtree(self.folder / "again", ignore_errors=True)
                shutil.copytree(self.folder / name, self.folder / "again")
                rest = self.curve(name, "--f64", "--save", "again", "--auto-resume", *arguments)
                self.assertEqual(rest, whole[3:], arguments)
            shutil.rmtree(self.folder / "again")
            shutil.copytree(self.folder / name, self.folder / "again")
            rest = self.curve(name, "--f64", "--save", "again", "--auto-resume", "--ranks", 2)
            for a, b in zip(rest, whole[3:], strict=True):
                self.assertAlmostEqual(a[1], b[1], delta=1e-11 * abs(b[1]))

    def test_reshard(self):
        whole = self.curve("gpt2")
        self.curve("gpt2", "--exit-interval", 3, "--save", "run")
        self.trifold("reshard", "--load", "run", "--save", "two", "--ranks", 2, "--pipeline-model-parallel-size", 2)
        diff, _ = self.trifold("inspect", "run", "--diff", "two")
        self.assertIn("all 84 tensors are bitwise equal", diff)
        rest = self.curve("gpt2", "--load", "two", "--ranks", 2, "--pipeline-model-parallel-size", 2)
        self.assertEqual(rest, whole[3:])

    def test_precisions_and_optimizers(self):
        wide = self.curve("gpt2")
        for precision in (["--bf16"], ["--fp16", "--initial-loss-scale", 1024]):
            narrow = self.curve("gpt2", *precision)
            self.assertNotEqual(narrow, wide)
            for a, b in zip(narrow, wide, strict=True):
                self.assertAlmostEqual(a[1], b[1], delta=0.02)
        adam = wide[-1][1]
        for optimizer in ("lamb", "sgd", "adagrad"):
            losses = [loss for _, loss, _ in self.curve("gpt2", "--optimizer", optimizer)]
            self.assertEqual(losses[0], wide[0][1])
            self.assertNotEqual(losses[-1], adam)

    def test_rates_are_in_samples(self):
        _, err = self.train("gpt2", "--train-iters", 2)
        self.assertIn(" samples/s", err)
        self.assertNotIn("tokens", err)

    def test_epochs(self):
        _, err = self.trifold("pretrain", "--model", MODELS / "gpt2.pt2", "--arrays", *self.arrays("gpt2"), "--global-batch-size", 8,
                              "--micro-batch-size", 2, "--train-epochs", 2, "--lr", "1e-3", "--split", "90,10,0", status=2)
        self.assertIn("--train-epochs 2 has 108 samples, and --global-batch-size 8 leaves 4 for the last step", err)
        self.trifold("pretrain", "--model", MODELS / "gpt2.pt2", "--arrays", *self.arrays("gpt2"), "--global-batch-size", 6,
                     "--micro-batch-size", 2, "--train-epochs", 2, "--lr", "1e-3", "--split", "90,10,0", "--log-json", "log.jsonl",
                     "--eval-interval", 9, "--save", "run")
        lines = self.log()
        self.assertEqual(lines[-1]["valid_loss"] > 0, True)
        self.assertEqual([line["step"] for line in lines if "loss" in line], list(range(1, 19)))
        self.assertIn("num_layers 2", " ".join(self.trifold("inspect", "run")[0].split()))


class Evaluate(OwnModelsTest):
    def evaluate(self, name, *arguments, **options):
        """The mean loss and the elements that it is over."""
        (self.folder / "valid.jsonl").unlink(missing_ok=True)
        out, _ = self.trifold("evaluate", "--load", name, "--arrays", *arguments, "--split", "0,100,0", "--log-json", "valid.jsonl",
                              **options)
        self.assertNotIn("perplexity", out)
        line = self.log("valid.jsonl")[0]
        return line["valid_loss"], line["elements"]

    def save_inputs(self, name):
        """Writes the inputs of the reference; returns the words of --arrays."""
        words = []
        for key, (dims, rows) in self.expected(name)[1].items():
            write_npy(self.folder / f"{key}.npy", rows, dims)
            words.append(f"{key}={key}.npy")
        return words

    def test_losses_are_those_of_pytorch(self):
        for name in ("gpt2", "t5", "roberta", "whisper", "mixer", "mlp"):
            known = self.expected(name)[0]
            self.save_untrained(name, "--f64")
            words = self.save_inputs(name)
            for size in (1, 2, 3, 4):  # of three samples
                loss, elements = self.evaluate(name, *words, "--micro-batch-size", size)
                self.assertEqual(elements, known["plain.count"])
                self.assertAlmostEqual(loss, known["plain.loss"] / known["plain.count"], delta=1e-12 * loss)

    def test_meshes_and_micro_batches(self):
        self.train("gpt2", "--f64", "--save", "run")
        words = self.arrays("gpt2", 23)
        loss, elements = self.evaluate("run", *words)
        for arguments in ("--micro-batch-size 5", "--micro-batch-size 40", "--micro-batch-size 4 --ranks 2",
                          "--micro-batch-size 3 --ranks 2 --pipeline-model-parallel-size 2"):
            other, count = self.evaluate("run", *words, *arguments.split())
            self.assertEqual(count, elements)
            self.assertAlmostEqual(other, loss, delta=1e-12 * loss)

    def test_accuracies_are_those_of_pytorch(self):
        for name in ("gpt2", "t5", "roberta", "whisper", "mixer", "mlp"):
            known = json.loads((MODELS.parent / "classes.json").read_text())[name]["cross_entropy_loss"]
            self.save_untrained(name, "--f64")
            words = self.save_inputs(name)
            for k, right in enumerate(known["right"], 1):
                self.evaluate(name, *words, "--micro-batch-size", k, "--top-k", k)
                (found,) = self.log("valid.jsonl")[0]["classes"]
                self.assertEqual(found, {"name": "cross_entropy_loss", "labels": known["labels"],
                                         "accuracy": known["right"][0] / known["labels"], "top_k": k,
                                         "top_k_accuracy": right / known["labels"]})

    def test_equal_scores_share_their_places(self):
        """A model whose weights are all 0 is right as often as chance."""
        with zipfile.ZipFile(MODELS / "mlp.pt2") as old, zipfile.ZipFile(self.folder / "m.pt2", "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if "/weights/weight_" in entry.filename:
                    data = bytes(len(data))
                new.writestr(zipfile.ZipInfo(entry.filename), data)
        words = self.arrays("mlp")
        self.save_untrained("mlp", "--model", "m.pt2")
        self.evaluate("mlp", *words, "--top-k", 3)
        (found,) = self.log("valid.jsonl")[0]["classes"]
        self.assertGreater(found["labels"], 0)
        self.assertEqual((found["accuracy"], found["top_k_accuracy"]), (0.25, 0.75))

    def test_accuracies_of_meshes_and_micro_batches(self):
        self.train("gpt2", "--train-iters", 20, "--save", "run")
        words = self.arrays("gpt2", 23)
        found = []
        for arguments in ("--micro-batch-size 1", "--micro-batch-size 5", "--micro-batch-size 40", "--micro-batch-size 4 --ranks 2",
                          "--micro-batch-size 3 --ranks 2 --pipeline-model-parallel-size 2"):
            self.evaluate("run", *words, *arguments.split(), "--top-k", 3)
            found.append(self.log("valid.jsonl")[0]["classes"])
        self.assertEqual(found, found[:1] * 5)
        self.assertGreater(found[0][0]["top_k_accuracy"], found[0][0]["accuracy"])
        out, _ = self.trifold("evaluate", "--load", "run", "--arrays", *words, "--split", "0,100,0", "--top-k", 3)
        one = found[0][0]
        self.assertIn(f"accuracy {one['accuracy']:.6f}  top-3 {one['top_k_accuracy']:.6f}  ({one['labels']:.0f} labels of ", out)
        out, _ = self.trifold("evaluate", "--load", "run", "--arrays", *words, "--split", "0,100,0")
        self.assertIn(f"accuracy {one['accuracy']:.6f}  (", out)

    def test_refusals(self):
        words = self.arrays("gpt2")
        self.train("gpt2", "--train-iters", 1, "--save", "run")
        for arguments, message in (
                (["--data-path", "text.txt"], "reads arrays: give --arrays instead"),
                (["--arrays", *words, "--seq-length", 8], "--seq-length"),
                (["--arrays", *words, "--loss-by-position", "x.csv"], "--loss-by-position"),
                (["--arrays", words[0]], "no array is given for labels"),
                (["--arrays", *words, "--part", "test", "--split", "90,10,0"], "test"),
                (["--arrays", *words, "--ranks", 2, "--tensor-model-parallel-size", 2], "--tensor-model-parallel-size 2")):
            _, err = self.trifold("evaluate", "--load", "run", *arguments, status=2)
            self.assertIn(message, err)
        _, err = self.trifold("generate", "--load", "run", status=2)
        self.assertIn("has a model from a file, whose output is a loss", err)

    def test_ids_outside_of_a_table(self):
        words = self.arrays("gpt2")
        self.train("gpt2", "--train-iters", 1, "--save", "run")
        dims = self.expected("gpt2")[1]["input_ids"][0]
        rows = [[0] * math.prod(dims) for _ in range(60)]
        rows[7][3] = 5000
        write_npy(self.folder / "wild.npy", rows, dims)
        words = ["input_ids=wild.npy" if word.startswith("input_ids=") else word for word in words]
        message = "the value 5000 of sample 7 in 'input_ids' is out of range: node 'embedding' (embedding) of "
        _, err = self.train("gpt2", "--train-iters", 7, data=words, status=2)
        self.assertIn(message, err)
        _, err = self.trifold("evaluate", "--load", "run", "--arrays", *words, "--split", "0,100,0", status=2)
        self.assertIn(message, err)


class Tokens(OwnModelsTest):
    def write_pair(self, tokens):
        """Writes tok.bin and tok.idx: the tokens as two sequences, each a document."""
        (self.folder / "tok.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        half = len(tokens) // 2
        (self.folder / "tok.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack(
            "<QBQQ2i2q3q", 1, 8, 2, 3, half, len(tokens) - half, 0, 2 * half, 0, 1, 2))

    def test_labels_are_the_next_tokens(self):
        rng = random.Random(3)
        tokens = [rng.randrange(50) for _ in range(60 * 8 + 1)]
        self.write_pair(tokens)
        for name, shift in (("input_ids", 0), ("labels", 1)):
            write_npy(self.folder / f"{name}.npy", [tokens[8 * i + shift:8 * i + shift + 8] for i in range(60)])
        arrays = ["input_ids=input_ids.npy", "labels=labels.npy"]
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        curves = []
        for words in (arrays, ["input_ids=tok", "labels=tok:1"]):
            self.train("gpt2", "--log-json", "log.jsonl", data=words)
            curves.append([(line["step"], line["loss"], line["grad_norm"]) for line in self.log() if "loss" in line])
            (self.folder / "log.jsonl").unlink()
        self.assertEqual(len(curves[0]), 6)
        self.assertEqual(curves[1], curves[0])
        # A run continues only with the tokens that it was trained on.
        words = ["input_ids=tok", "labels=tok:1"]
        self.train("gpt2", "--exit-interval", 3, "--save", "run", data=words)
        self.train("gpt2", "--save", "run", "--auto-resume", "--exit-interval", 1, data=words)
        self.write_pair([*tokens[:-1], tokens[-1] + 1])
        _, err = self.train("gpt2", "--save", "run", "--auto-resume", data=words, status=2)
        self.assertIn("tok.bin", err)

    def test_refusals(self):
        self.write_pair(list(range(8)))
        for words, message in (
                (["tok", "labels=tok:1"], "the tokens in it have no name; give NAME=tok"),
                (["input_ids=tok", "labels=tok:next"], "'next' is no number of a token"),
                (["input_ids=tok", "labels=tok:1"], "'input_ids' (tok) has 8 tokens, too few for a sample of [batch, 8] from token 1 on")):
            _, err = self.train("gpt2", data=words, status=2)
            self.assertIn(message, err)


class Freeze(OwnModelsTest):
    PATTERNS = ["model.transformer.h.0.*", "model.transformer.w?e.weight"]

    def names(self):
        """The names of the frozen parameters, and of all: those of the first use of a tied one."""
        with zipfile.ZipFile(MODELS / "gpt2.pt2") as archive:
            text = next(archive.read(name) for name in archive.namelist() if name.endswith("models/model.json"))
        inputs = json.loads(text)["graph_module"]["signature"]["input_specs"]
        names = [spec["parameter"]["parameter_name"] for spec in inputs if "parameter" in spec]
        return [name for name in names if name.startswith(("model.transformer.h.0.", "model.transformer.wte", "model.transformer.wpe"))
                or name == "model.lm_head.weight"], names

    def frozen_file(self, frozen):
        """The file with requires_grad false for these parameters."""
        with zipfile.ZipFile(MODELS / "gpt2.pt2") as old, zipfile.ZipFile(self.folder / "frozen.pt2", "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename.endswith("model_weights_config.json"):
                    tensors = json.loads(data)
                    for name in frozen:
                        tensors["config"][name]["tensor_meta"]["requires_grad"] = False
                    data = json.dumps(tensors).encode()
                new.writestr(zipfile.ZipInfo(entry.filename), data)
        return "frozen.pt2"

    def tensors(self, checkpoint):
        """The bytes of the state dictionary of a checkpoint, by name."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        self.trifold("convert", "--load", checkpoint, "--save", "out")
        data = (self.folder / "out" / "model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        header.pop("__metadata__", None)
        return {name: data[begin + each["data_offsets"][0]:begin + each["data_offsets"][1]] for name, each in header.items()}

    def test_frozen_parameters_do_not_change(self):
        frozen, names = self.names()
        self.save_untrained("gpt2")
        before = self.tensors("gpt2")
        for number, arguments in enumerate((["--weight-decay", 0.1], ["--optimizer", "lamb"], ["--ranks", 2, "--zero-stage", 2])):
            arguments += ["--seed", 3]
            self.assertEqual(self.curve("gpt2", *arguments, "--freeze", *self.PATTERNS, "--save", f"run{number}"),
                             self.curve("gpt2", *arguments, "--model", self.frozen_file(frozen)))
            after = self.tensors(f"run{number}")
            self.assertEqual([name for name in names if before[name] == after[name]], frozen)

    def test_resume_needs_the_same_set(self):
        frozen, _ = self.names()
        whole = self.curve("gpt2", "--freeze", *self.PATTERNS)
        self.curve("gpt2", "--freeze", *self.PATTERNS, "--exit-interval", 3, "--save", "run")
        for arguments in ([], ["--freeze", self.PATTERNS[0]]):
            _, err = self.train("gpt2", "--save", "run", "--auto-resume", *arguments, status=2)
            self.assertIn("freeze", err)
        shutil.copytree(self.folder / "run", self.folder / "tuned")
        self.assertEqual(self.curve("gpt2", "--freeze", *frozen, "--save", "run", "--auto-resume"), whole[3:])
        self.train("gpt2", "--load", "tuned", "--finetune", "--freeze", "*.ln_?.*", "--train-iters", 1)
        loss, _ = self.trifold("evaluate", "--load", "run", "--arrays", *self.arrays("gpt2"))
        self.assertIn("loss", loss)

    def test_refusals(self):
        for patterns, message in (
                (["model.transformer.h.7.*"], "--freeze model.transformer.h.7.* matches no parameter of the model"),
                (["model.transformer.wta.weight"], "names such as model.transformer.wte.weight"),
                (["model.*"], "--freeze model.* leaves no parameter to train")):
            _, err = self.train("gpt2", "--freeze", *patterns, status=2)
            self.assertIn(message, err)
            _, err = self.trifold("plan", "--model", MODELS / "gpt2.pt2", "--micro-batch-size", 1, "--freeze", *patterns, status=2)
            self.assertIn(message, err)
        _, err = self.pretrain("--freeze", "x", status=2)
        self.assertIn("--freeze", err)


class ModelFiles(OwnModelsTest):
    def test_a_file_may_move_but_not_change(self):
        shutil.copy(MODELS / "gpt2.pt2", self.folder / "model.pt2")
        words = self.arrays("gpt2")
        whole = self.curve("gpt2")
        self.curve("gpt2", "--model", "model.pt2", "--exit-interval", 3, "--save", "run")
        (self.folder / "model.pt2").rename(self.folder / "moved.pt2")
        shutil.copytree(self.folder / "run", self.folder / "other")
        self.assertEqual(self.curve("gpt2", "--model", "moved.pt2", "--save", "other", "--auto-resume"), whole[3:])
        for command in (["evaluate", "--arrays", *words], ["convert", "--save", "out"],
                        ["reshard", "--save", "two", "--ranks", 2, "--pipeline-model-parallel-size", 2]):
            _, err = self.trifold(command[0], "--load", "run", *command[1:], status=2)
            self.assertIn("model.pt2, the file of the checkpoint's model, does not exist: put it back there", err)
        self.trifold("inspect", "run")
        with zipfile.ZipFile(MODELS / "gpt2.pt2") as old, zipfile.ZipFile(self.folder / "model.pt2", "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename.endswith("weight_0"):
                    data = bytes(len(data))
                new.writestr(zipfile.ZipInfo(entry.filename), data)
        _, err = self.trifold("evaluate", "--load", "run", "--arrays", *words, status=2)
        self.assertIn("put back the file with which the model was trained", err)
        _, err = self.train("gpt2", "--model", "model.pt2", "--save", "run", "--auto-resume", status=2)
        self.assertIn("give the file of that run, or begin a new run with the checkpoint's weights by --finetune", err)
        first = self.curve("gpt2", "--model", "model.pt2", "--load", "run", "--finetune", "--train-iters", 1)[0]
        self.assertLess(first[1], whole[0][1])

    def test_sizes_of_micro_batches(self):
        def limited(minimum, maximum):
            with zipfile.ZipFile(MODELS / "gpt2.pt2") as old, zipfile.ZipFile(self.folder / "m.pt2", "w") as new:
                for entry in old.infolist():
                    data = old.read(entry)
                    if entry.filename.endswith("models/model.json"):
                        model = json.loads(data)
                        for limits in model["range_constraints"].values():
                            limits.update(min_val=minimum, max_val=maximum)
                        data = json.dumps(model).encode()
                    new.writestr(zipfile.ZipInfo(entry.filename), data)

        limited(2, 3)
        self.train("gpt2", "--model", "m.pt2", "--micro-batch-size", 1, "--train-iters", 1)
        _, err = self.train("gpt2", "--model", "m.pt2", "--micro-batch-size", 4, status=2)
        self.assertIn("--micro-batch-size 4 is not possible with --model", err)
        self.assertIn("give 3", err)
        _, err = self.trifold("plan", "--model", "m.pt2", "--micro-batch-size", 4, status=2)
        self.assertIn("--micro-batch-size 4 is not possible with --model", err)
        limited(4, None)
        _, err = self.train("gpt2", "--model", "m.pt2", status=2)
        self.assertIn("exported for 4 samples or more: give 4", err)


class Refusals(OwnModelsTest):
    def test_arrays(self):
        words = self.arrays("gpt2")
        write_npy(self.folder / "narrow.npy", [[1] * 6] * 60)
        write_npy(self.folder / "few.npy", [[1] * 8] * 59)
        for data, message in (
                (words[:1], "no array is given for labels; the model takes input_ids, labels"),
                ([words[0], "labels=narrow.npy"], "has shape [60, 6], but the model takes [batch, 8]"),
                ([words[0], "labels=few.npy"], "they must have the same number"),
                ([*words, "extra=few.npy"], "the model does not take extra"),
                ([words[0], "labels=none.npy"], "none.npy")):
            _, err = self.train("gpt2", data=data, status=2)
            self.assertIn(message, err)
        _, err = self.train("gpt2", "--split", "0,100,0", status=2)
        self.assertIn("--split", err)

    def test_options(self):
        for arguments, name in (
                ("--tensor-model-parallel-size 2 --ranks 2", "--tensor-model-parallel-size 2"),
                ("--context-parallel-size 2 --ranks 2", "--context-parallel-size 2"),
                ("--expert-model-parallel-size 2 --ranks 2", "--expert-model-parallel-size 2"),
                ("--num-layers 2", "--num-layers 2"), ("--hidden-size 8", "--hidden-size 8"),
                ("--num-attention-heads 2", "--num-attention-heads 2"), ("--seq-length 8", "--seq-length 8"),
                ("--vocab-size 64", "--vocab-size 64"), ("--hidden-dropout 0.1", "--hidden-dropout 0.1"),
                ("--data-path x", "--data-path x"),
                ("--model none.pt2", "none.pt2"), ("--model gpt2_labels.npy", "is not a zip archive"),
                ("--ranks 8 --pipeline-model-parallel-size 8", "4 blocks cannot be cut into 8 stages")):
            _, err = self.train("gpt2", *arguments.split(), status=2)
            self.assertIn(name, err)
            self.assertNotIn("virtual", err)


class Plan(OwnModelsTest):
    def test_plan(self):
        run = ["--model", MODELS / "t5.pt2", "--micro-batch-size", 2, "--global-batch-size", 8, "--ranks", 4,
               "--pipeline-model-parallel-size", 2, "--schedule", "zb-h1"]
        out, _ = self.trifold("plan", *run)
        self.assertIn("samples/s", out)
        self.assertIn("layers 1 to 2", out)
        self.assertNotIn("tokens", out)
        _, err = self.train("t5", *run[6:], "--train-iters", 1)
        planned = [line.split() for line in out.splitlines()]
        memory = next(line for line in planned if line[:1] == ["1"] and "KiB" in line)
        self.assertIn(f"parameters {memory[1]} KiB", err)  # the run and its plan agree on the larger rank

    def test_search(self):
        """The best layout is a plan with the forecast step and memory."""
        model, batch = ["--model", MODELS / "t5.pt2"], ["--global-batch-size", 8, "--ranks", 4]
        out, _ = self.trifold("plan", *model, *batch, "--hardware", "h100", "--search")
        self.assertIn("samples/s", out)
        self.assertRegex(out, r"pp 2 dp 2, zb")
        self.assertNotRegex(out, r"tp [2-9]")
        rows = [line for line in out.splitlines() if line.startswith("    1  ")]
        words = out[out.index("best  "):].split()[1:]
        planned, _ = self.trifold("plan", *model, *batch, "--hardware", "h100", *words)
        step = re.search(r"(\d+\.\d+ ms)", rows[0])[1]
        self.assertIn(f"step        {step}, ", planned)
        self.assertIn(re.search(r"(\d+\.\d+ [KM]iB)", rows[0])[1], planned)

    def test_auto_layout(self):
        _, err = self.train("t5", "--ranks", 4, "--auto-layout", "h100", "--micro-batch-size", 2)
        self.assertIn("forecast: step", err)
        self.assertIn("step      6/6", err)


if __name__ == "__main__":
    unittest.main()
