"""Ten steps of AdamW and of SGD, with dropout, of models that PyTorch exported, against those that PyTorch trains.

tools/reference/own_models_steps.py wrote the numbers. Samples and masks of dropout are the same, so losses in f64 agree to
the last digits.
"""

import json
import math
import pathlib
import struct
import unittest

from own_models import MODELS, OwnModelsTest, inputs_of, read_safetensors, write_npy

STEPS = pathlib.Path(__file__).resolve().parents[1] / "data" / "own_models" / "steps"


def projections(values):
    """A norm and two sums that any wrong element changes."""
    return [math.fsum(value * math.cos(i) for i, value in enumerate(values)),
            math.fsum(value * math.cos(2 * i + 1) for i, value in enumerate(values)),
            math.sqrt(math.fsum(value * value for value in values))]


class Steps(OwnModelsTest):
    def run_of(self, name, known, rule, *more):
        """Losses and gradient norms of the run whose options the file has."""
        words = []
        for key, (dims, rows) in inputs_of(known).items():
            write_npy(self.folder / f"{key}.npy", rows, dims)
            words.append(f"{key}={key}.npy")
        options = [word for key, value in known[rule + ".options"].items() for word in ("--" + key.replace("_", "-"), value)]
        self.trifold("pretrain", "--model", MODELS / f"{name}.pt2", "--arrays", *words, *options, "--threads-per-rank", 1,
                     "--log-json", "log.jsonl", *more)
        lines = [line for line in self.log() if "loss" in line]
        (self.folder / "log.jsonl").unlink()
        return [line["loss"] for line in lines], [line["grad_norm"] for line in lines]

    def check_close(self, values, known, relative):
        self.assertEqual(len(values), 10)
        for step, (a, b) in enumerate(zip(values, known, strict=True), 1):
            self.assertAlmostEqual(a, b, delta=relative * abs(b), msg=f"step {step}")

    def check_weights(self, save, known, rule):
        self.trifold("convert", "--load", save, "--save", save + "_torch")
        found = read_safetensors(self.folder / (save + "_torch") / "model.safetensors")
        prefix = rule + ".weight."
        names = [key.removeprefix(prefix) for key in known if key.startswith(prefix)]
        self.assertLessEqual(set(names), set(found))
        for name in names:
            kind, _, data = found[name]
            self.assertEqual(kind, "F64")
            right = known[prefix + name]
            # AdamW enlarges gradients that are rounding errors, as those of the biases of keys are.
            for a, b in zip(projections(struct.unpack(f"<{len(data) // 8}d", data)), right, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-9 * right[2] + 1e-12, msg=name)

    def check(self, name):
        known = json.loads((STEPS / f"{name}.json").read_text())
        for rule in ("adam", "sgd"):
            with self.subTest(rule):
                losses, norms = self.run_of(name, known, rule, "--f64", "--save", rule)
                self.check_close(losses, known[rule + ".f64.losses"], 1e-12)
                self.check_close(norms, known[rule + ".f64.norms"], 1e-11)
                self.check_weights(rule, known, rule)
                losses, norms = self.run_of(name, known, rule)
                for precision in ("f64", "f32"):
                    self.check_close(losses, known[f"{rule}.{precision}.losses"], 1e-5)
                    self.check_close(norms, known[f"{rule}.{precision}.norms"], 1e-4)

    def test_gpt2(self):
        self.check("gpt2")

    def test_bert(self):
        self.check("bert")

    def test_roberta(self):
        self.check("roberta")

    def test_distilbert(self):
        self.check("distilbert")

    def test_t5(self):
        self.check("t5")

    def test_llama(self):
        self.check("llama")

    def test_whisper(self):
        self.check("whisper")

    def test_mixer(self):
        self.check("mixer")

    def test_mlp(self):
        self.check("mlp")


if __name__ == "__main__":
    unittest.main()
