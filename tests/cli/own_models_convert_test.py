"""Checkpoints of models that PyTorch exported become the state dictionaries of their modules."""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import unittest
import zipfile

from own_models import MODELS, OwnModelsTest, read_safetensors

# PyTorch's numbers of element types.
TYPES = {1: "U8", 2: "I8", 3: "I16", 4: "I32", 5: "I64", 6: "F16", 7: "F32", 8: "F64", 12: "BOOL", 13: "BF16"}
SIZES = {"U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "F32": 4, "F64": 8, "BOOL": 1, "BF16": 2}


def state_of(path):
    """The state dictionary of an exported file: {name: (type, shape, bytes)}; its tensors must be contiguous."""
    state = {}
    with zipfile.ZipFile(path) as archive:
        folder = archive.namelist()[0].split("/")[0]
        config = json.loads(archive.read(f"{folder}/data/weights/model_weights_config.json"))["config"]
        for name, entry in config.items():
            meta = entry["tensor_meta"]
            kind = TYPES[meta["dtype"]]
            shape = [size["as_int"] for size in meta["sizes"]]
            begin = meta["storage_offset"]["as_int"] * SIZES[kind]
            data = archive.read(f"{folder}/data/weights/{entry['path_name']}")
            state[name] = kind, shape, data[begin:begin + math.prod(shape) * SIZES[kind]]
    return state


class Convert(OwnModelsTest):
    def convert(self, name, *arguments):
        out, _ = self.trifold("convert", "--load", name, "--save", f"{name}_torch", *arguments)
        return out, self.folder / f"{name}_torch"

    def test_an_untrained_model_is_that_of_its_file(self):
        for name in ("gpt2", "t5", "roberta", "mlp"):
            with self.subTest(name):
                self.save_untrained(name, "--f64")
                out, folder = self.convert(name)
                self.assertIn("load_state_dict", out)
                self.assertEqual(sorted(path.name for path in folder.iterdir()), ["model.safetensors"])
                self.assertEqual(read_safetensors(folder / "model.safetensors"), state_of(MODELS / f"{name}.pt2"))

    def test_a_trained_model(self):
        self.train("gpt2", "--f64", "--save", "gpt2", "--ranks", 2, "--pipeline-model-parallel-size", 2)
        _, folder = self.convert("gpt2")
        now, before = read_safetensors(folder / "model.safetensors"), state_of(MODELS / "gpt2.pt2")
        self.assertEqual({name: value[:2] for name, value in now.items()}, {name: value[:2] for name, value in before.items()})
        for name, value in now.items():
            self.assertNotEqual(value[2], before[name][2], name)
        self.assertEqual(now["model.lm_head.weight"], now["model.transformer.wte.weight"])

    def test_types_and_files(self):
        self.save_untrained("gpt2", "--f64")
        _, folder = self.convert("gpt2", "--dtype", "f32", "--max-file-size", "1e-5")
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        now, before = {}, state_of(MODELS / "gpt2.pt2")
        for file in sorted(set(index["weight_map"].values())):
            now.update(read_safetensors(folder / file))
        self.assertEqual(set(now), set(before))
        for name, (kind, _, data) in now.items():
            self.assertEqual(kind, "F32")
            wide = struct.unpack(f"<{len(before[name][2]) // 8}d", before[name][2])
            self.assertEqual(data, struct.pack(f"<{len(wide)}f", *wide))

    def test_refusals(self):
        self.save_untrained("gpt2")
        for arguments, message in ((["--save", "x.safetensors"], "name a folder"), (["--save", "x", "--seq-length", 8], "--seq-length"),
                                   (["--save", "x", "--names", "torchrec"], "--names"), (["--save", "gpt2"], "--save gpt2")):
            _, err = self.trifold("convert", "--load", "gpt2", *arguments, status=2)
            self.assertIn(message, err)

    def test_torch_reads_it(self):
        """The exported program with the converted state has the loss that `evaluate` gives."""
        python = os.environ.get("TRIFOLD_TORCH_PYTHON", sys.executable)
        if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no PyTorch here (TRIFOLD_TORCH_PYTHON names a Python that has it)")
        self.train("gpt2", "--f64", "--save", "gpt2")
        _, folder = self.convert("gpt2")
        self.trifold("evaluate", "--load", "gpt2", "--arrays", *self.arrays("gpt2"), "--split", "0,100,0", "--log-json", "valid.jsonl")
        script = pathlib.Path(__file__).with_name("own_models_loss.py")
        done = subprocess.run([python, script, MODELS / "gpt2.pt2", folder / "model.safetensors", *self.arrays("gpt2")],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        loss = self.log("valid.jsonl")[0]["valid_loss"]
        self.assertAlmostEqual(float(done.stdout), loss, delta=1e-12 * loss)


if __name__ == "__main__":
    unittest.main()
