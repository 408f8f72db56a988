"""Folders of Hugging Face as transformers and other programs write them (tests/golden/hf_folders, made by
tools/reference/hugging_face_folders.py): each gives the loss that transformers computes, or is refused by name."""

import json
import shutil
import unittest

from program import GOLDEN, ProgramTest

FOLDERS = GOLDEN / "hf_folders"
EXPECTED = json.loads((FOLDERS / "losses.json").read_text())["folders"]


class Folders(ProgramTest):
    def loss(self, checkpoint):
        self.trifold("evaluate", "--load", checkpoint, "--data-path", FOLDERS / "data", "--split", "1,0,0", "--part",
                     "train", "--log-json", f"{checkpoint}.jsonl")
        return json.loads((self.folder / f"{checkpoint}.jsonl").read_text())["train_loss"]

    def test_each_is_read_as_transformers_reads_it_or_refused(self):
        for name, expected in EXPECTED.items():
            with self.subTest(folder=name):
                if isinstance(expected, str):
                    _, message = self.trifold("convert", "--load", FOLDERS / name, "--save", name, status=2)
                    self.assertIn(expected, message)
                    self.assertFalse((self.folder / name).exists())
                    continue
                self.trifold("convert", "--load", FOLDERS / name, "--save", name)
                loss = self.loss(name)
                self.assertLess(abs(loss - expected), 1e-5 * expected, f"{loss}, transformers {expected}")
                # There and back it is the same model.
                self.trifold("convert", "--load", name, "--save", f"{name}.out")
                self.trifold("convert", "--load", f"{name}.out", "--save", f"{name}.again")
                self.assertEqual(self.loss(f"{name}.again"), loss)

    def test_a_head_that_is_not_tied_is_said_and_kept(self):
        _, text = self.trifold("convert", "--load", FOLDERS / "gpt2_tied_apart", "--save", "in")
        self.assertIn("lm_head.weight differs from transformer.wte.weight although config.json ties them", text)
        self.trifold("convert", "--load", "in", "--save", "out")
        self.assertIs(json.loads((self.folder / "out" / "config.json").read_text())["tie_word_embeddings"], False)

    def test_an_old_index_is_said(self):
        _, text = self.trifold("convert", "--load", FOLDERS / "llama_old_index", "--save", "in")
        self.assertIn("model.safetensors.index.json is not read, because there is a model.safetensors", text)

    def test_a_field_that_nobody_reads_is_refused(self):
        shutil.copytree(FOLDERS / "llama_old_index", self.folder / "model")
        file = self.folder / "model" / "config.json"
        config = json.loads(file.read_text())
        for changes, part in (({"logit_scale": 2.0}, "'logit_scale' is 2.0; this field is not known here"),
                              ({"rms_norm_eps": None}, "'rms_norm_eps' is null; give a value, or remove it for 1e-06"),
                              ({"layer_types": ["full_attention"] * 3}, "'layer_types' has 3 entries for 2 layers"),
                              ({"num_attention_head": 4}, "'num_attention_head' is 4; this field is not known here")):
            file.write_text(json.dumps({**config, **changes}))
            _, message = self.trifold("convert", "--load", "model", "--save", "in", status=2)
            self.assertIn(part, message)
        file.write_text(json.dumps({**config, "temperature": 0.7, "unsloth_version": "2026.1", "odd": None}))
        self.trifold("convert", "--load", "model", "--save", "in")


if __name__ == "__main__":
    unittest.main()
