"""`trifold convert`: what was trained here becomes a model of Hugging Face's format, comes back, and is trained on."""

import json
import math
import struct
import unittest

from program import TEXT, ProgramTest


class Convert(ProgramTest):
    def loss(self, checkpoint):
        self.trifold("evaluate", "--load", checkpoint, "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4,
                     "--log-json", f"{checkpoint}.jsonl")
        return json.loads((self.folder / f"{checkpoint}.jsonl").read_text())["valid_loss"]

    def test_there_and_back(self):
        self.pretrain("--train-iters", 20, "--ranks", 2, "--tp", 2, "--save", "run")
        out, _ = self.trifold("convert", "--load", "run", "--save", "model")
        self.assertIn("28 tensors", out)
        self.assertIn("from_pretrained", out)
        data = (self.folder / "model" / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        self.assertEqual(header["__metadata__"], {"format": "pt"})
        self.assertEqual(header["transformer.h.0.attn.c_attn.weight"]["shape"], [32, 96])  # [in, out]
        self.assertEqual(header["transformer.wte.weight"]["shape"], [256, 32])
        out, _ = self.trifold("convert", "--load", "model", "--save", "back")
        self.assertIn("--finetune", out)
        self.assertIn("--vocab-size 256", out)
        diff, _ = self.trifold("inspect", "run", "--diff", "back")
        self.assertNotIn("param/", diff)  # only the moments are missing
        self.assertIn("28 tensors are bitwise equal, 56 differ", diff)
        self.assertEqual(self.loss("run"), self.loss("back"))
        # The tokenizer came back too.
        self.trifold("generate", "--load", "back", "--max-new-tokens", 3)
        # On with training, with the options that convert named, another length and dropout.
        self.pretrain("--load", "back", "--finetune", "--train-iters", 3, "--log-interval", 1, "--log-json", "log.jsonl",
                      "--seq-length", 16, "--max-position-embeddings", 32, "--hidden-dropout", "0.1")
        self.assertLess(self.losses()[0], math.log(256) - 0.5)
        _, text = self.pretrain("--load", "back", "--train-iters", 3, status=2)
        self.assertIn("give --finetune", text)

    def test_refusals(self):
        self.pretrain("--train-iters", 1, "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "model", "--max-file-size", "1e-5", "--dtype", "f16")
        index = json.loads((self.folder / "model" / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertGreater(len(files), 2)
        self.assertEqual(files[0], f"model-00001-of-{len(files):05}.safetensors")
        self.assertEqual(index["metadata"]["total_size"], 2 * self.elements("run"))
        for arguments, part in (
                (["--load", "run", "--save", "model"], "is there already and not empty"),
                (["--load", "nowhere", "--save", "x"], "nowhere does not exist"),
                (["--load", "run", "--save", "run"], "--save run is the folder of --load"),
                (["--load", "run"], "--save needs a value")):
            _, text = self.trifold("convert", *arguments, status=2)
            self.assertIn(part, text)
        (self.folder / "model" / files[1]).unlink()
        _, text = self.trifold("convert", "--load", "model", "--save", "x", status=2)
        self.assertIn(files[1], text)
        self.assertFalse((self.folder / "x").exists())
        (self.folder / "model" / "config.json").write_text("{")
        _, text = self.trifold("convert", "--load", "model", "--save", "x", status=2)
        self.assertIn("config.json", text)

    def elements(self, checkpoint):
        out, _ = self.trifold("inspect", checkpoint)
        return int(next(line for line in out.splitlines() if line.startswith("param: ")).split()[3])


if __name__ == "__main__":
    unittest.main()
