"""inspect of Hugging Face folders: what they hold, what differs, and what other commands say to do with them."""

import json
import shutil
import unittest

from judged import POSITIONS, SIZES, make_model, shapes
from program import GOLDEN, ProgramTest


class InspectFolder(ProgramTest):
    def setUp(self):
        super().setUp()
        make_model(self.folder / "model", GOLDEN / "hf_tokenizers" / "gpt2.json")

    def test_shows_tensors_options_and_tokenizer(self):
        out, _ = self.trifold("inspect", "model")
        lines = out.splitlines()
        self.assertIn("family gpt2, 1 safetensors file", lines)
        for option in (f"hidden_size {SIZES['n_embd']}", f"num_layers {SIZES['n_layer']}", f"seq_length {POSITIONS}"):
            self.assertIn(option, out)
        self.assertRegex(out, r"tokenizer: huggingface, tokenizer.json, \d+ tokens, 0 \(<\|endoftext\|>\) ends a document")
        table = {line.split()[0]: line for line in lines if line.startswith("transformer.")}
        self.assertEqual(sorted(table), sorted(f"transformer.{name}" for name in shapes()))
        for name, shape in shapes().items():
            self.assertIn(f" F32    {shape} ", table[f"transformer.{name}"])
        self.assertIn("embedding.tokens.weight", table["transformer.wte.weight"])
        count = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes().values())
        self.assertRegex(lines[-3], rf"^total: {len(shapes())} tensors, .*, {count} parameters$")
        (self.folder / "model" / "tokenizer.json").unlink()
        self.assertIn("tokenizer: not in the folder", self.trifold("inspect", "model")[0])

    def test_compares(self):
        self.trifold("convert", "--load", "model", "--save", "out")
        for left, right in (("model", "out"), ("out", "model"), ("model", "model")):
            out, _ = self.trifold("inspect", left, "--diff", right)
            self.assertRegex(out, r"all \d+ tensors are bitwise equal\n$")
        make_model(self.folder / "other", GOLDEN / "hf_tokenizers" / "gpt2.json", seed=12)
        out, _ = self.trifold("inspect", "model", "--diff", "other")
        self.assertRegex(out, r"param/embedding.tokens.weight: 14400 elements differ")
        config = json.loads((self.folder / "other" / "config.json").read_text())
        (self.folder / "other" / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 1e-6}))
        self.assertIn("model.norm_epsilon: left 1e-05, right 1e-06", self.trifold("inspect", "model", "--diff", "other")[0])

    def test_says_what_to_do_with_a_folder(self):
        _, text = self.trifold("inspect", "model", "--verify", status=2)
        self.assertIn("whose files have no checksums", text)
        _, text = self.trifold("reshard", "--load", "model", "--save", "out", "--tp", 2, "--ranks", 2, status=2)
        self.assertIn("trifold convert --load model --save DIR", text)
        shutil.copytree(self.folder / "model", self.folder / "bare")
        (self.folder / "bare" / "config.json").unlink()
        for command in (("inspect", "bare"), ("convert", "--load", "bare", "--save", "out"), ("generate", "--load", "bare", "--prompt", "x")):
            _, text = self.trifold(*command, status=2)
            self.assertIn("bare holds model.safetensors but no config.json", text)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
