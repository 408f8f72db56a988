"""Checkpoints as other tools see them: h5py through view.h5, and the reader of docs/checkpoint_format.md.

Run by a Python that has NumPy and h5py (Debian: python3-numpy, python3-h5py).
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import h5py
import numpy as np

from program import ProgramTest

PAGE = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "docs" / "checkpoint_format.md"
NUMPY_TYPES = {"f64": "float64", "f32": "float32", "bf16": "uint16", "f16": "uint16"}


def programs():
    """The Python programs of the page, in order: looking, loading."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def loader():
    names = {"__name__": "loader"}
    exec(programs()[1], names)  # pylint: disable=exec-used
    return names["load"]


def same_bits(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


class View(ProgramTest):
    def table(self, checkpoint):
        """{tensor: (dtype, shape)} as `inspect` prints it."""
        out, _ = self.trifold("inspect", checkpoint)
        rows = re.findall(r"^(\S+/\S+) +(f64|f32|bf16|f16) +\[([\d, ]*)\] ", out, re.MULTILINE)
        elements = int(re.search(r"^total: \d+ tensors, (\d+) elements", out, re.MULTILINE).group(1))
        return {name: (dtype, tuple(map(int, shape.split(", ")))) for name, dtype, shape in rows}, elements

    def check(self, checkpoint):
        """The view, the page's loader and `inspect` agree on every tensor."""
        folder = self.folder / checkpoint
        table, elements = self.table(checkpoint)
        loaded = dict(loader()(str(folder)))
        seen = {}
        with h5py.File(folder / "view.h5", "r") as view:
            view.visititems(lambda name, item: seen.update({name: item[...]} if isinstance(item, h5py.Dataset) else {}))
            self.assertEqual(view.attrs["step"][0], 2)
        self.assertEqual(set(seen), set(table))
        self.assertEqual(set(loaded), set(table))
        self.assertEqual(sum(array.size for array in seen.values()), elements)
        for name, (dtype, shape) in table.items():
            self.assertEqual(seen[name].shape, shape, name)
            self.assertEqual(seen[name].dtype, NUMPY_TYPES[dtype], name)
            self.assertTrue(same_bits(seen[name], loaded[name]), name)
            if dtype != "bf16":
                self.assertTrue(np.isfinite(loaded[name]).all(), name)
        return loaded

    def train(self):
        # The positions are a tensor of 4 MiB: several blocks.
        self.pretrain("--train-iters", 2, "--ranks", 4, "--tp", 2, "--zero-stage", 1, "--hidden-size", 128,
                      "--max-position-embeddings", 8192, "--save", "d")
        return "d/step_0000000002"

    def test_every_tensor_in_every_tool(self):
        first = self.check(self.train())
        self.assertTrue(any(name.startswith("adam_v/") and array.max() > 0 for name, array in first.items()))
        # In 16 bits, and sharded differently: the words are the upper halves, rounded.
        self.trifold("reshard", "--load", "d", "--save", "half", "--files", 3, "--dtype", "bf16", "--no-save-optim")
        half = self.check("half/step_0000000002")
        for name, words in half.items():
            wide = (words.astype(np.uint32) << 16).view(np.float32)
            np.testing.assert_allclose(wide, first[name], rtol=2.0**-8, atol=1e-30, err_msg=name)
        self.trifold("reshard", "--load", "d", "--save", "wide", "--files", 1, "--dtype", "f64")
        for name, array in self.check("wide/step_0000000002").items():
            self.assertTrue((array == first[name]).all(), name)

    def test_the_programs_of_the_page_run_and_find_damage(self):
        checkpoint = self.folder / self.train()
        looking, loading = (self.folder / name for name in ("looking.py", "loading.py"))
        for path, text in zip((looking, loading), programs()):
            path.write_text(text, encoding="utf-8")

        def run(program):
            return subprocess.run([sys.executable, program, checkpoint], capture_output=True, text=True, check=False)

        for program in (looking, loading):
            done = run(program)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("param/embedding.positions.weight float32 (8192, 128)", done.stdout)
        # One bit in the second block of that tensor.
        with h5py.File(checkpoint / "view.h5", "r") as view:
            sources = view["param/embedding.positions.weight"].virtual_sources()
            source = max(sources, key=lambda part: part.src_space.get_select_npoints())
            with h5py.File(checkpoint / source.file_name, "r") as shard:
                place = shard[source.dset_name].id.get_offset() + (1 << 20) + 7
                size = shard[source.dset_name].size * 4
        self.assertGreater(size, 1 << 20)
        data = bytearray((checkpoint / source.file_name).read_bytes())
        data[place] ^= 1
        (checkpoint / source.file_name).write_bytes(data)
        done = run(loading)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("param/embedding.positions.weight: block 1 of the box at", done.stderr)
        out, _ = self.trifold("inspect", checkpoint, "--verify", status=1)
        self.assertIn("param/embedding.positions.weight", out)


if __name__ == "__main__":
    unittest.main()
