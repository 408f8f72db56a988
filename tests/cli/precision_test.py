"""Two hundred steps on Shakespeare in 16-bit types reach the same loss as in f32."""

import unittest

from program import ProgramTest

# The character-sized GPT of the quickstart.
MODEL = ("--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --micro-batch-size 12 --global-batch-size 12 "
         "--lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --lr-warmup-iters 20 --train-iters 200 --adam-beta2 0.99 "
         "--log-interval 1 --log-json log.jsonl --threads-per-rank 2").split()
LAST = 20  # steps whose losses are averaged: one batch's differs from the next one's by more than is asked


class Precision(ProgramTest):
    def loss_at_the_end(self, *precision):
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        self.pretrain(*MODEL, *precision, timeout=600)
        losses = self.losses()
        self.assertEqual(len(losses), 200)
        return sum(losses[-LAST:]) / LAST

    def test_16_bit_runs_end_within_a_percent_of_f32(self):
        wide = self.loss_at_the_end()
        self.assertLess(wide, 2.6)  # bytes at random would be 5.5
        for precision in ("--bf16", "--fp16"):
            with self.subTest(precision=precision):
                narrow = self.loss_at_the_end(precision)
                print(f"training loss, mean of steps {201 - LAST} to 200: f32 {wide:.4f}, {precision} {narrow:.4f}, "
                      f"{100 * (narrow / wide - 1):+.2f} %")
                self.assertNotEqual(narrow, wide)
                self.assertLess(abs(narrow / wide - 1), 0.01)


if __name__ == "__main__":
    unittest.main()
