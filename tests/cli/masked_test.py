"""Data in which no token counts: a batch of it is skipped and said, an evaluation of it is an error, on one rank and on several."""

import struct
import unittest

from program import ProgramTest

TINY = ("--split 1,0,0 --tokenizer-type byte --eod-mask-loss --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
        "--micro-batch-size 1 --lr 1e-3 --lr-decay-style constant --threads-per-rank 1").split()
SAMPLES = [b"a" * 16, b"b" * 16, bytes(16), b"c" * 16, b"d" * 16, b"e" * 16]


class Masked(ProgramTest):
    def write(self, name, samples):
        """One document of samples of 16 tokens, and a last token."""
        tokens = b"".join(samples) + b"z"
        (self.folder / f"{name}.bin").write_bytes(b"".join(struct.pack("<H", token) for token in tokens))
        (self.folder / f"{name}.idx").write_bytes(
            b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<iqqq", len(tokens), 0, 0, 1))

    def setUp(self):
        super().setUp()
        self.write("data", SAMPLES)
        self.write("empty", [bytes(16)] * 3)

    def train(self, *arguments, **options):
        return self.trifold("pretrain", "--data-path", "data", *TINY, "--global-batch-size", 1, "--train-epochs", 1, "--seed", 2,
                            *arguments,
                            **options)

    def test_a_batch_in_which_nothing_counts_is_skipped(self):
        out, err = self.train("--save", "r", "--save-interval", 1, "--log-json", "log")
        steps = self.log("log")
        self.assertEqual(len(steps), len(SAMPLES))
        skipped = [line for line in steps if line["skipped"]]
        self.assertEqual(len(skipped), 1)
        self.assertEqual(skipped[0]["skip_reason"], "no counted token")
        self.assertIsNone(skipped[0]["loss"])
        self.assertTrue(all(line["loss"] > 0 for line in steps if not line["skipped"]))
        self.assertIn("skipped: every token of the global batch is masked out of the loss", out + err)
        self.assertNotIn("nan", (out + err).lower())
        # No weight changes, and the optimizer counts updates alone.
        step = skipped[0]["step"]
        same, _ = self.trifold("inspect", f"r/step_{step - 1:010}", "--diff", f"r/step_{step:010}")
        self.assertIn("are bitwise equal", same)
        # Also when the run begins with it again, and on other ranks.
        self.train("--save", "s", "--exit-interval", step - 1)
        self.train("--save", "s", "--auto-resume", "--log-json", "resumed")
        whole, _ = self.trifold("inspect", "r", "--diff", "s")
        self.assertIn("are bitwise equal", whole)
        self.train("--log-json", "two", "--ranks", 2, "--pp", 1, "--tp", 2)
        self.assertEqual([line["step"] for line in self.log("two") if line["skipped"]], [step])

    def test_an_evaluation_in_which_nothing_counts_is_an_error(self):
        self.train("--save", "m")
        for ranks in (1, 2):
            out, err = self.trifold("evaluate", "--load", "m", "--data-path", "empty", "--split", "1,0,0", "--part", "train",
                                    "--tokenizer-type", "byte", "--eod-mask-loss", "--ranks", ranks, status=2)
            self.assertIn("every token is masked out of the loss", err)
            self.assertNotIn("nan", out + err)

    def test_a_validation_part_in_which_nothing_counts_ends_no_run(self):
        self.write("half", [b"a" * 16] * 6 + [bytes(16)] * 6)
        line = [word if word != "1,0,0" else "50,50,0" for word in TINY]
        # Sequences are split, so the parts are two documents.
        tokens = b"a" * 97 + bytes(97)
        (self.folder / "half.bin").write_bytes(b"".join(struct.pack("<H", token) for token in tokens))
        (self.folder / "half.idx").write_bytes(
            b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3) + struct.pack("<iiqqqqq", 97, 97, 0, 194, 0, 1, 2))
        out, err = self.trifold("pretrain", "--data-path", "half", *line, "--train-iters", 6, "--eval-interval", 1,
                                "--eval-iters", 2, "--early-stop-patience", 2, "--save", "v", "--save-best", "--log-json", "log")
        self.assertIn("no validation loss", out + err)
        self.assertIn("gave no loss: --save-best and --early-stop-patience do not count it", out + err)
        self.assertNotIn("early stop", out + err)
        self.assertNotIn("nan", (out + err).lower())
        log = self.log("log")
        self.assertEqual(max(line["step"] for line in log), 6)
        self.assertTrue(all(line["valid_loss"] is None for line in log if "valid_loss" in line))


if __name__ == "__main__":
    unittest.main()
