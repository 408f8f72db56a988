"""Clipping of a recommender's gradient against its definition in NumPy: one step of SGD with and without it.

Run by a Python that has NumPy and h5py (Debian: python3-numpy, python3-h5py).
"""

import unittest

import h5py
import numpy as np

from program import CLICKS, ProgramTest

RATE = 0.25  # a power of two: a step of SGD can be divided by it without rounding


class RecommendClip(ProgramTest):
    def step(self, name, *more):
        """The tensors after a step, and its messages."""
        replaced = {"--lr", "--embedding-lr", "--embedding-optimizer"}
        kept = [word for pair in zip(CLICKS[::2], CLICKS[1::2]) if pair[0] not in replaced for word in pair]
        self.trifold("recommend", *kept, "--f64", "--embedding-optimizer", "sgd", "--embedding-lr", 0.1, "--train-iters", 1,
                     "--save", name, "--log-json", f"{name}.jsonl", *more)
        tensors = {}
        with h5py.File(self.folder / name / "step_0000000001" / "view.h5", "r") as view:
            view.visititems(lambda key, item: tensors.update({key: item[...]} if isinstance(item, h5py.Dataset) else {}))
        return tensors, self.log(f"{name}.jsonl")[0]

    def test_the_mlps_are_clipped_and_the_tables_are_not(self):
        start, _ = self.step("start", "--lr", 1e-300)  # too little to change a weight
        plain, entry = self.step("plain", "--lr", RATE)
        self.assertNotIn("grad_norm", entry)
        dense = [name for name in plain if "embedding" not in name]
        self.assertTrue(dense)
        gradients = {name: (start[name] - plain[name]) / RATE for name in dense}
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients.values()))
        for ranks, limit in ((1, norm / 8), (3, norm / 8), (1, 2 * norm)):
            clipped, entry = self.step(f"clipped{ranks}_{limit}", "--lr", RATE, "--clip-grad", limit, "--ranks", ranks)
            self.assertAlmostEqual(entry["grad_norm"] / norm, 1, delta=1e-9)
            factor = min(1, limit / (norm + 1e-6))
            for name, values in clipped.items():
                expected = start[name] - RATE * factor * gradients[name] if name in gradients else plain[name]
                np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12, err_msg=name)


if __name__ == "__main__":
    unittest.main()
