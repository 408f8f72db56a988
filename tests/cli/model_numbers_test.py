"""--log-params-norm and --log-num-zeros-in-grad: numbers of the whole model, as NumPy computes them from checkpoints and however the model
is sharded.

Run by a Python that has NumPy and h5py (Debian: python3-numpy, python3-h5py).
"""

import unittest

import h5py
import numpy as np

from event_files import Events, skip_without_protozero
from program import ProgramTest

ASKED = ["--log-params-norm", "--log-num-zeros-in-grad"]
UNTIED = ["--untie-embeddings-and-output-weights"]  # the embedding of a byte that no sample has gets no gradient
PADDED = ["--make-vocab-size-divisible-by", 100]
SAVED = ["--save", "d", "--log-json", "log.jsonl"]
EXPERTS = [*UNTIED, "--num-experts", 4, "--moe-router-topk", 2, "--disable-bias-linear"]
MESHES = (
    ["--ranks", 2], ["--ranks", 2, "--zero-stage", 1], ["--ranks", 2, "--zero-stage", 2], ["--ranks", 2, "--zero-stage", 3],
    ["--ranks", 2, "--tp", 2], ["--ranks", 2, "--pp", 2], ["--ranks", 4, "--tp", 2, "--zero-stage", 2, "--sequence-parallel"],
    ["--ranks", 4, "--pp", 2, "--zero-stage", 1], ["--zero-stage", 3, "--ranks", 2, "--offload", "off"],
)


class ModelNumbers(ProgramTest):
    def tensors(self, step, kind):
        found = {}
        with h5py.File(self.folder / "d" / f"step_{step:010}" / "view.h5", "r") as view:
            view.visititems(lambda name, item: found.update({name: item[...]} if isinstance(item, h5py.Dataset) else {}))
        return [array.astype(np.float64) for name, array in found.items() if name.startswith(kind + "/")]

    def expect_numbers_of_checkpoint(self, *more):
        """The first moment of Adam after one step is zero where the gradient was."""
        self.pretrain("--train-iters", 1, *SAVED, *ASKED, *more)
        line, = self.log()
        squares = sum(float((array ** 2).sum()) for array in self.tensors(1, "param"))
        self.assertLess(abs(line["params_norm"] / squares ** 0.5 - 1), 1e-12)
        zeros = sum(int((array == 0).sum()) for array in self.tensors(1, "adam_m"))
        self.assertGreater(zeros, 1000)  # the rows of bytes that no sample has
        self.assertEqual(line["num_zeros"], zeros)

    def test_a_checkpoint_has_these_numbers(self):
        self.expect_numbers_of_checkpoint("--f64", *UNTIED)

    def test_padding_is_not_counted(self):
        self.expect_numbers_of_checkpoint("--f64", *UNTIED, *PADDED)

    def test_so_it_has_of_experts_in_16_bits_on_a_mesh(self):
        self.expect_numbers_of_checkpoint("--bf16", *EXPERTS, "--ranks", 4, "--ep", 2, "--pp", 2, "--zero-stage", 1)

    def test_every_mesh_has_the_same(self):
        (self.folder / "off").mkdir()
        run = ["--train-iters", 3, "--f64", "--micro-batch-size", 1, *ASKED, "--log-json"]
        models = {"untied": (UNTIED, MESHES), "tied": ([], (["--ranks", 2, "--pp", 2], ["--ranks", 4, "--pp", 2, "--tp", 2])),
                  "experts": (EXPERTS, (["--ranks", 2, "--ep", 2], ["--ranks", 4, "--ep", 2, "--zero-stage", 2])),
                  # 256 rows are padded to 300 on one rank, and to 400 on two: nothing counts the padding.
                  "padded": ([*UNTIED, *PADDED], (["--ranks", 2, "--tp", 2], ["--ranks", 4, "--tp", 2, "--zero-stage", 2], ["--ranks", 2, "--pp", 2])),
                  "tied_padded": (PADDED, (["--ranks", 2, "--tp", 2], ["--ranks", 4, "--tp", 2, "--pp", 2]))}
        for name, (model, meshes) in models.items():
            self.pretrain(*run, f"{name}.jsonl", *model)
            expected = self.log(f"{name}.jsonl")
            self.assertEqual(len({line["params_norm"] for line in expected}), 3)
            self.assertEqual(expected[0]["num_zeros"] > 1000, not name.startswith("tied"))
            for index, mesh in enumerate(meshes):
                self.pretrain(*run, f"{name}{index}.jsonl", *model, *mesh)
                for line, one in zip(self.log(f"{name}{index}.jsonl"), expected):
                    self.assertEqual(line["num_zeros"], one["num_zeros"], mesh)
                    self.assertLess(abs(line["params_norm"] / one["params_norm"] - 1), 1e-12, mesh)

    def test_a_skipped_step_has_the_norm_alone(self):
        self.pretrain("--train-iters", 1, "--fp16", *ASKED, "--log-json", "log.jsonl")  # the first loss scale is too large
        line, = self.log()
        self.assertTrue(line["skipped"])
        self.assertGreater(line["params_norm"], 1)
        self.assertNotIn("num_zeros", line)

    def test_lines_and_tags(self):
        skip_without_protozero(self)
        _, message = self.pretrain("--train-iters", 2, "--log-interval", 1, *UNTIED, *ASKED, "--log-json", "log.jsonl", "--tensorboard-dir", "tb")
        self.assertRegex(message, r"step +2/2  loss \S+  grad norm \S+  zeros \d+  params norm \d+\.\d{3}  lr ")
        path, = (self.folder / "tb").iterdir()
        scalars = Events(path).scalars
        for tag, key in (("params-norm", "params_norm"), ("num-zeros", "num_zeros")):
            self.assertNotIn(key, scalars)
            for (step, number), line in zip(scalars[tag], self.log()):
                self.assertEqual(step, line["step"])
                self.assertLess(abs(number / line[key] - 1), 1e-6)

    def test_losses_are_those_without_it(self):
        self.pretrain("--train-iters", 4, "--log-json", "plain.jsonl")
        self.pretrain("--train-iters", 4, *ASKED, "--log-json", "asked.jsonl")
        self.assertEqual(self.losses("plain.jsonl"), self.losses("asked.jsonl"))
        self.assertFalse({"params_norm", "num_zeros"} & set(self.log("plain.jsonl")[0]))

    def test_stages_that_update_at_different_times_have_neither(self):
        for option in ASKED:
            _, message = self.pretrain("--train-iters", 4, option, "--ranks", 2, "--pp", 2, "--schedule", "pipedream", "--clip-grad", 0,
                                       status=2)
            self.assertIn(f"{option} is not possible with --schedule pipedream", message)


if __name__ == "__main__":
    unittest.main()
