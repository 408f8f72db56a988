"""The Python package: modules of PyTorch, exported and trained. Needs PyTorch, except for the files of arrays."""

import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(os.environ["TRIFOLD_ROOT"])
TORCH = importlib.util.find_spec("torch")
STEPS = {"micro_batch_size": 4, "global_batch_size": 16, "train_iters": 6, "lr": 0.1, "split": "100,0,0",
         "lr_decay_style": "constant", "optimizer": "sgd", "sgd_momentum": 0, "weight_decay": 0, "clip_grad": 0}


def setUpModule():
    """The package as the wheel has it, with the program that is tested."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trifold_cli_"))
    unittest.addModuleCleanup(shutil.rmtree, folder)
    package = folder / "trifold"
    shutil.copytree(ROOT / "tools" / "wheel", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "bin").mkdir()
    (package / "bin" / "trifold").symlink_to(os.environ["TRIFOLD"])
    sys.path.insert(0, str(folder))
    unittest.addModuleCleanup(sys.path.remove, str(folder))


class Values:
    """An array in the way of NumPy: what the writer reads of one."""

    def __init__(self, kind, shape, content):
        self.dtype = types.SimpleNamespace(str=kind, kind=kind[1])
        self.shape, self.content = shape, content

    def tobytes(self):
        return self.content


class Arrays(unittest.TestCase):
    def setUp(self):
        from trifold import npy
        self.npy = npy
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="trifold_cli_")) / "a.npy"
        self.addCleanup(shutil.rmtree, self.path.parent)

    def test_a_file_has_a_header_of_whole_lines_of_64_bytes(self):
        self.npy.save(self.path, Values("<i4", (2, 1), struct.pack("<ii", 7, -1)))
        content = self.path.read_bytes()
        self.assertEqual(content[:8], b"\x93NUMPY\x01\x00")
        (length,) = struct.unpack("<H", content[8:10])
        self.assertEqual((10 + length) % 64, 0)
        self.assertEqual(content[10:10 + length].rstrip(b" \n"), b"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }")
        self.assertEqual(struct.unpack("<ii", content[10 + length:]), (7, -1))
        self.assertEqual(self.npy.shape_and_type(self.path), ((2, 1), "int32"))

    def test_other_values_and_files_are_errors(self):
        with self.assertRaisesRegex(TypeError, "an array is list: give an array of NumPy"):
            self.npy.save(self.path, [1, 2])
        with self.assertRaisesRegex(TypeError, "elements of type"):
            self.npy.save(self.path, Values("<c8", (1,), bytes(8)))
        self.path.write_bytes(b"PK\x03\x04 and more")
        with self.assertRaisesRegex(ValueError, "is not a .npy file"):
            self.npy.shape_and_type(self.path)

    @unittest.skipUnless(TORCH and importlib.util.find_spec("numpy"), "PyTorch or NumPy is missing")
    def test_files_are_those_of_numpy(self):
        import numpy
        import torch
        for array in (numpy.arange(6, dtype="i8").reshape(2, 3).T, numpy.zeros((0, 2), "f4"), numpy.float16(3) * numpy.ones(5, "f2")):
            expected = io.BytesIO()
            numpy.save(expected, numpy.ascontiguousarray(array))
            for each in (array, torch.from_numpy(numpy.ascontiguousarray(array))):
                self.npy.save(self.path, each)
                self.assertEqual(self.path.read_bytes(), expected.getvalue())


@unittest.skipUnless(TORCH, "PyTorch is missing")
class Modules(unittest.TestCase):
    def setUp(self):
        import torch
        import trifold
        self.torch, self.trifold = torch, trifold
        torch.manual_seed(1)
        self.x = torch.randn(16, 4)
        self.labels = torch.arange(16) % 3

    def module(self, returned):
        """Two layers, with a loss in one of the forms that a module may return."""
        torch = self.torch

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
                self.gain = torch.nn.Parameter(torch.tensor(1.5))

            def forward(self, x, labels):
                scores = self.gain * self.second(torch.tanh(self.first(x)))
                reduction = "sum" if returned == "pair" else "mean"
                loss = torch.nn.functional.cross_entropy(scores, labels, reduction=reduction)
                if returned == "object":
                    return types.SimpleNamespace(loss=loss)
                return (loss, (labels >= 0).sum()) if returned == "pair" else loss

        return Module()

    def train(self, module, data, **options):
        progress = io.StringIO()
        with contextlib.redirect_stderr(progress):
            trained = self.trifold.train(module, data, **{**STEPS, **options})
        self.assertIs(trained, module)
        return progress.getvalue()

    # Every step takes all samples, so their order does not matter.
    def test_weights_are_those_that_pytorch_trains(self):
        torch = self.torch
        for returned in ("scalar", "pair", "object"):
            module, reference = self.module(returned).eval(), self.module("scalar")
            reference.load_state_dict(module.state_dict())
            progress = self.train(module, {"labels": self.labels, "x": self.x}, log_interval=3)
            self.assertIn("step      3/6", progress)
            self.assertFalse(module.training)
            rule = torch.optim.SGD(reference.parameters(), lr=STEPS["lr"])
            for _ in range(STEPS["train_iters"]):
                rule.zero_grad()
                reference(self.x, self.labels).backward()
                rule.step()
            for name, weight in reference.named_parameters():
                torch.testing.assert_close(module.get_parameter(name), weight, rtol=1e-5, atol=1e-6)

    def test_tied_weights_and_slices_of_several_ranks(self):
        torch = self.torch

        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = torch.nn.Embedding(8, 6), torch.nn.Linear(6, 8, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, ids, labels):
                scores = self.head(torch.tanh(self.embed(ids)))
                return torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

        module = Tied()
        ids = torch.arange(64).reshape(16, 4) % 8
        before = module(ids, ids).item()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "labels.npy"
            from trifold import npy
            npy.save(path, ids)
            self.train(module, {"ids": ids, "labels": path}, lr=1, ranks=2, zero_stage=1, threads_per_rank=1, save=folder + "/run")
            self.assertTrue((pathlib.Path(folder) / "run" / "LATEST").exists())
        self.assertIs(module.head.weight, module.embed.weight)
        self.assertLess(module(ids, ids).item(), 0.9 * before)

    def test_a_saved_run_continues(self):
        data = {"x": self.x, "labels": self.labels}
        whole, first, other = (self.module("pair") for _ in range(3))
        first.load_state_dict(whole.state_dict())
        self.train(whole, data)
        with tempfile.TemporaryDirectory() as folder:
            save = folder + "/run"
            self.train(first, data, save=save, auto_resume=True, exit_interval=3)  # nothing to resume
            with self.assertRaisesRegex(RuntimeError, "holds checkpoints of another run"):
                self.train(other, data, save=save)
            shutil.copytree(save, folder + "/copy")
            for options in ({"save": save, "auto_resume": True}, {"load": folder + "/copy"},
                            {"load": folder + "/copy/step_0000000003"}):
                module = self.module("pair")
                self.assertIn("steps       4 to 6", self.train(module, data, **options))
                for name, weight in whole.named_parameters():
                    self.assertTrue(self.torch.equal(module.get_parameter(name), weight))
            done = subprocess.run([os.environ["TRIFOLD"], "convert", "--load", save, "--save", folder + "/weights"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with self.assertRaisesRegex(ValueError, "model.* is a weight in .*, but no parameter of this module"):
                self.train(self.torch.nn.Linear(4, 3), data, load=folder + "/copy")

    def test_data_need_not_be_contiguous(self):
        torch = self.torch

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(8, 8)

            def forward(self, ids, labels):
                return torch.nn.functional.cross_entropy(self.embed(ids).view(-1, 8), labels.view(-1))

        ids = torch.arange(80).reshape(16, 5) % 8
        module = Module()
        before = module.embed.weight.detach().clone()
        self.train(module, {"ids": ids[:, :-1], "labels": ids[:, 1:]})
        self.assertFalse(torch.equal(module.embed.weight, before))

    def test_an_exported_file_is_a_model(self):
        with tempfile.TemporaryDirectory() as folder:
            self.trifold.export(self.module("pair"), {"x": self.x, "labels": self.labels}, folder + "/m.pt2")
            program = self.torch.export.load(folder + "/m.pt2")
            self.assertEqual(sorted(program.graph_signature.user_inputs), ["labels", "x"])

    def test_mistakes_are_named(self):
        module = self.module("pair")
        data = {"x": self.x, "labels": self.labels}
        with self.assertRaisesRegex(RuntimeError, "(?s)trifold pretrain ended with status 2.*--optimiser"):
            self.train(module, data, optimiser="sgd")
        with self.assertRaisesRegex(ValueError, r"the arrays of a batch have \{'x': 1, 'labels': 1\} samples"):
            self.train(module, {name: array[:1] for name, array in data.items()})
        with self.assertRaisesRegex(TypeError, "the module returns a tensor of 2 dimensions: it has to return"):
            self.train(self.torch.nn.Linear(4, 2), {"input": self.x})
        weights = {name: value.clone() for name, value in module.state_dict().items()}
        with self.assertRaisesRegex(RuntimeError, "(?s)status 2.*has shape .16, 3., but the model takes"):
            self.train(module, {**data, "x": self.x[:, :3]}, example=data)
        for name, value in module.state_dict().items():
            self.assertTrue(self.torch.equal(value, weights[name]))


if __name__ == "__main__":
    unittest.main()
