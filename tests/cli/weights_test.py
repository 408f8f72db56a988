"""Weights of recommenders in safetensors files: those of facebookresearch/dlrm and TorchRec to begin with, those of checkpoints
written for them, and the rows of tables that have changed since an older checkpoint.

Run by a Python that has NumPy (Debian: python3-numpy).
"""

import csv
import io
import json
import os
import pathlib
import pickle
import random
import sys
import unittest
import zipfile

import numpy as np

from program import GOLDEN, ProgramTest

TOOLS = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tools"
sys.path.insert(0, str(TOOLS))
import dlrm_checkpoint  # noqa: E402

try:
    import torch
    sys.path.insert(0, str(TOOLS / "reference"))
    import dlrm_checkpoint_torch
except ImportError:
    torch = None

DATA = ("--train-data clicks.csv --data-format csv --dense-transform none --table-rows 7-5-4").split()
MODEL = "--embedding-dim 4 --bottom-mlp 6-4 --top-mlp 5-1 --global-batch-size 20 --threads-per-rank 1".split()
STILL = "--train-iters 1 --lr 1e-30 --save run".split()  # no number of f32 moves
GOLD = json.loads((GOLDEN / "dlrm_model.json").read_text())


class Weights(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "clicks.csv").write_text("label,I1,I2,I3,C1,C2,C3\n" + "".join(
            ",".join(map(str, [0, *dense, *ids])) + "\n" for dense, ids in zip(GOLD["dense"], GOLD["ids"])))

    def scores(self, run="run"):
        self.trifold("score", "--load", run, "--data", "clicks.csv", "--output", "scores.csv", "--threads-per-rank", 1)
        return np.array([float(row["probability"]) for row in csv.DictReader(io.StringIO((self.folder / "scores.csv").read_text()))])

    def tool(self, *arguments, status=0):
        """Runs dlrm_checkpoint.py; returns its message."""
        import subprocess
        done = subprocess.run([sys.executable, TOOLS / "dlrm_checkpoint.py", *map(str, arguments)], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_a_model_of_dlrm(self):
        self.tool("to-safetensors", GOLDEN / "dlrm_model.pt", "dlrm.safetensors")
        for ranks, placement in ((1, "auto"), (2, "row,column,replicated")):
            self.trifold("recommend", *DATA, *MODEL, *STILL[:-1], f"run{ranks}", "--init-weights", "dlrm.safetensors", "--ranks", ranks,
                         "--placement", placement)
            self.assertLess(np.abs(self.scores(f"run{ranks}") - GOLD["dlrm"]).max(), 1e-6)
        self.trifold("convert", "--load", "run2", "--save", "back.safetensors")
        first, back = (dlrm_checkpoint.read_safetensors(self.folder / name) for name in ("dlrm.safetensors", "back.safetensors"))
        self.assertEqual(set(first), set(back))
        for name, value in first.items():
            self.assertTrue((value == back[name]).all(), name)
        if torch is None:
            self.assertIn("to-pt needs torch", self.tool("to-pt", "back.safetensors", "back.pt", status=1))
            return
        self.tool("to-pt", "back.safetensors", "back.pt")
        state = torch.load(self.folder / "back.pt")["state_dict"]
        self.assertEqual(state["emb_l.0.weight"].tolist(), GOLD["first_weight"])
        self.assertEqual(list(state), list(torch.load(GOLDEN / "dlrm_model.pt")["state_dict"]))
        self.tool("to-pt", "back.safetensors", "turned.pt", "--tables", "C3", "C1", "C2")
        self.assertEqual(torch.load(self.folder / "turned.pt")["state_dict"]["emb_l.1.weight"].tolist(), GOLD["first_weight"])
        self.assertIn("--tables must name each of them once", self.tool("to-pt", "back.safetensors", "no.pt", "--tables", "C1", status=1))
        # A trained model in torch.
        self.trifold("recommend", *DATA, *MODEL, "--train-iters", 10, "--lr", 0.5, "--save", "trained", "--init-weights", "dlrm.safetensors")
        self.trifold("convert", "--load", "trained", "--save", "trained.safetensors")
        self.tool("to-pt", "trained.safetensors", "trained.pt")
        model = dlrm_checkpoint_torch.Dlrm()
        model.load_state_dict(torch.load(self.folder / "trained.pt", weights_only=True)["state_dict"])
        scores = model(torch.tensor(GOLD["dense"]), torch.tensor(GOLD["ids"])).tolist()
        self.assertLess(np.abs(self.scores("trained") - scores).max(), 1e-6)
        self.assertGreater(np.abs(np.array(scores) - GOLD["dlrm"]).max(), 1e-2)

    def test_a_model_of_torchrec(self):
        self.trifold("recommend", *DATA, *MODEL, *STILL, "--init-weights", GOLDEN / "torchrec_model.safetensors")
        self.assertLess(np.abs(self.scores() - GOLD["torchrec"]).max(), 1e-6)
        self.trifold("convert", "--load", "run", "--save", "torchrec.safetensors", "--names", "torchrec")
        written = dlrm_checkpoint.read_safetensors(self.folder / "torchrec.safetensors")
        golden = dlrm_checkpoint.read_safetensors(GOLDEN / "torchrec_model.safetensors")
        self.assertEqual({"model." + name for name in written}, set(golden))
        for name, value in written.items():
            self.assertTrue((value == golden["model." + name]).all(), name)

    def test_names_of_dcnv2_in_torchrec(self):
        self.trifold("recommend", *DATA, *MODEL, *STILL, "--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3)
        self.trifold("convert", "--load", "run", "--save", "dcn.safetensors", "--names", "torchrec")
        shapes = {name: value.shape for name, value in dlrm_checkpoint.read_safetensors(self.folder / "dcn.safetensors").items()}
        for layer in range(2):
            self.assertEqual([shapes[f"inter_arch.crossnet.{kind}.{layer}"] for kind in ("W_kernels", "V_kernels", "bias")],
                             [(16, 3), (3, 16), (16,)])
        first = self.scores()
        self.trifold("recommend", *DATA, *MODEL, *STILL[:-1], "again", "--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3, "--seed", 5,
                     "--init-weights", "dcn.safetensors")
        self.assertTrue((self.scores("again") == first).all())

    def test_weights_that_do_not_fit(self):
        golden = GOLDEN / "torchrec_model.safetensors"
        for model, words in ((["--top-mlp", "6-1"], "over_arch.model.0._mlp.0._linear.weight has the shape [5, 10] in the file, and [6, 10] in the model"),
                             (["--top-mlp", "5-5-1"], "over_arch.model.0._mlp.1._linear.weight [5, 5] is missing"),
                             (["--wide"], "TorchRec's DLRM has no counterpart of the first-order term of --wide"),
                             (["--interaction", "cat"], "TorchRec's DLRM has no counterpart of its interaction")):
            kept = [word for name, value in zip(MODEL[::2], MODEL[1::2]) if name not in model for word in (name, value)]
            _, err = self.trifold("recommend", *DATA, *kept, *model, *STILL, "--init-weights", golden, status=2)
            self.assertIn(words, err)
        dlrm_checkpoint.write_safetensors(self.folder / "more.safetensors",
                                          {**dlrm_checkpoint.read_safetensors(golden), "model.more": np.zeros(3, "<f4")})
        _, err = self.trifold("recommend", *DATA, *MODEL, *STILL, "--init-weights", "more.safetensors", status=2)
        self.assertIn("model.more [3] is not a weight of the model", err)
        model = dlrm_checkpoint.read_safetensors(golden)
        name = next(iter(model))
        dlrm_checkpoint.write_safetensors(self.folder / "twice.safetensors", {**model, "module." + name: model[name]})
        _, err = self.trifold("recommend", *DATA, *MODEL, *STILL, "--init-weights", "twice.safetensors", status=2)
        self.assertIn(f"{name.removeprefix('model.')} occurs twice", err)
        name, value = next(iter(dlrm_checkpoint.read_safetensors(golden).items()))
        broken = value.copy()
        broken[1, 2] = np.nan
        for numbers, words in ((broken, "nan in row 1, column 2"), (value.astype("<f8") * 1e300, "inf in row 0, column 0, as f32")):
            dlrm_checkpoint.write_safetensors(self.folder / "broken.safetensors", {**model, name: numbers})
            _, err = self.trifold("recommend", *DATA, *MODEL, *STILL, "--init-weights", "broken.safetensors", status=2)
            self.assertRegex(err, f"broken.safetensors: \\S*embedding.C1.weight has .*{words}")
        (self.folder / "short.safetensors").write_bytes(golden.read_bytes()[:-5])
        for name in ("short.safetensors", "none.safetensors"):
            _, err = self.trifold("recommend", *DATA, *MODEL, *STILL, "--init-weights", name, status=2)
            self.assertIn(name, err)
        self.assertNotIn("run", self.files())
        self.trifold("recommend", *DATA, *MODEL, *STILL)
        _, err = self.trifold("recommend", *DATA, *MODEL, "--load", "run", "--train-iters", 2, "--init-weights", golden, status=2)
        self.assertIn("a run that continues from run", err)

    def test_files_that_are_no_models(self):
        for name, content in (("text.pt", b"hello"), ("empty.pt", b"")):
            (self.folder / name).write_bytes(content)
            self.assertIn("is no archive of torch.save", self.tool("to-safetensors", name, "out", status=1))
        for content, words in ((pickle.dumps({"state_dict": {"emb_l.0.weight": 5}}), "holds neither a state_dict"),
                               (pickle.dumps(os.system), "which is no tensor"), (b"\x80\x02", "cannot be read")):
            with zipfile.ZipFile(self.folder / "odd.pt", "w") as archive:
                archive.writestr("odd/data.pkl", content)
            self.assertIn(words, self.tool("to-safetensors", "odd.pt", "out", status=1))
        for size, stride in (((10 ** 12,), (0,)), ((5,), (1,)), ((2,), (1, 1))):
            with self.assertRaises(ValueError):
                dlrm_checkpoint.rebuild_tensor(np.zeros(4, "<f4"), 0, size, stride)
        packed = bytearray((self.folder / "odd.pt").read_bytes())
        entry = packed.index(b"PK\x01\x02")
        packed[entry + 10:entry + 12] = b"\x63\0"  # a method of compression that there is not
        (self.folder / "odd.pt").write_bytes(packed)
        self.assertIn("cannot be read", self.tool("to-safetensors", "odd.pt", "out", status=1))
        self.assertIn("has 3 tables, --tables names 2", self.tool("to-safetensors", GOLDEN / "dlrm_model.pt", "out", "--tables", "a", "b", status=1))
        self.assertIn("cannot be read", self.tool("to-safetensors", "none.pt", "out", status=1))

    def days(self, keys):
        """A run of two parts on clicks, with a checkpoint after each: their names."""
        draw = random.Random(2)
        columns = ["--label", "y", "--dense", "x", "--sparse", "user,item", "--threads", 1, *(["--ids", "keys"] if keys else [])]
        for number in range(2):
            lines = [f"{draw.randrange(2)},{draw.randrange(9)},u{draw.randrange(40) + 30 * number},i{draw.randrange(8)}\n" for _ in range(100 - 40 * number)]
            (self.folder / f"day{number}.csv").write_text("y,x,user,item\n" + "".join(lines))
            older = ["--dictionaries-of", "day0", "--grow-dictionaries"] if number and not keys else []
            self.trifold("preprocess", "--input", f"day{number}.csv", "--output", f"day{number}", *columns, *older)
            self.trifold("recommend", "--train-data", f"day{number}", *MODEL, "--lr", 0.3, "--save", f"run{number}", "--sample-order", "stored",
                         "--embedding-init-range", 0.1, *(["--table-rows", "50-20"] if keys else []), "--optimizer", "sgd", "--ranks", 2,
                         *(["--finetune", "--load", "run0"] if number else []))
        return "run0", "run1"

    def parts(self, name):
        return dlrm_checkpoint.read_safetensors(self.folder / name)

    def test_rows_that_have_changed(self):
        for keys in (False, True):
            for name in list(self.folder.iterdir()):
                if name.name != "clicks.csv":
                    import shutil
                    shutil.rmtree(name) if name.is_dir() else name.unlink()
            older, newer = self.days(keys)
            for name, run in (("base", older), ("whole", newer)):
                self.trifold("convert", "--load", run, "--save", f"{name}.safetensors")
            out, _ = self.trifold("convert", "--load", newer, "--save", "change.safetensors", "--changed-since", older)
            base, whole, change = (self.parts(f"{name}.safetensors") for name in ("base", "whole", "change"))
            self.assertEqual((change.pop("step")[0], change.pop("since_step")[0]), (3, 5))  # of each run
            changed = 0
            for table in ("user", "item"):
                rows = change.pop(f"embedding.{table}.rows")
                changed += len(rows)
                self.assertTrue((np.diff(rows) > 0).all())
                self.assertLess(len(rows), len(whole[f"embedding.{table}.weight"]))  # row 0 or 1 is never used
                for kind in ("weight", *(["keys"] if keys else [])):
                    name = f"embedding.{table}.{kind}"
                    put = np.zeros_like(whole[name])
                    put[:len(base[name])] = base[name]
                    put[rows] = change.pop(name)
                    self.assertTrue((put == whole[name]).all(), name)
            self.assertIn(f"{changed} of {sum(len(whole[f'embedding.{table}.weight']) for table in ('user', 'item'))} rows of tables", out)
            for name, value in change.items():
                self.assertTrue((value == whole[name]).all(), name)
            self.assertEqual(set(change), {name for name in whole if not name.startswith("embedding.")})
            if keys:
                self.assertGreater(len(set(whole["embedding.user.keys"])), 30)
        for arguments, words in ((["--load", older, "--changed-since", newer], "name the older one there"),
                                 (["--load", newer, "--changed-since", "none"], "none"),
                                 (["--load", newer, "--changed-since", older, "--names", "torchrec"], "TorchRec has no names for rows of tables"),
                                 (["--load", newer, "--names", "torchrec"], "belong to keys"),
                                 (["--load", newer, "--max-memory", 100], "--max-memory has no effect on a recommender"),
                                 (["--load", newer, "--max-file-size", 1], "--max-file-size has no effect on a recommender"),
                                 (["--load", newer, "--dtype", "bf16"], "--dtype has no effect on a recommender")):
            _, err = self.trifold("convert", *arguments, "--save", "out.safetensors", status=2)
            self.assertIn(words, err)
        self.assertNotIn("out.safetensors", self.files())

    def test_another_model(self):
        self.trifold("recommend", *DATA, *MODEL, *STILL)
        self.trifold("recommend", *DATA, *MODEL, *STILL[:-1], "wide", "--wide")
        _, err = self.trifold("convert", "--load", "run", "--save", "out.safetensors", "--changed-since", "wide", status=2)
        self.assertIn("--changed-since wide holds another model than run", err)
        _, err = self.trifold("convert", "--load", "run", "--save", "out.onnx", "--changed-since", "wide", status=2)
        self.assertIn("--changed-since has no effect on a file in the ONNX format", err)


if __name__ == "__main__":
    unittest.main()
