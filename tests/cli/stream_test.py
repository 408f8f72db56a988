"""Streamed text from the command line: folders, packed files, ranks, kills, mistakes."""

import gzip
import json
import lzma
import signal
import subprocess
import time
import unittest

from program import SMALL, TEXT, TRIFOLD, ProgramTest

TOKENIZER = TEXT.parent.parent / "tests" / "golden" / "hf_tokenizers" / "gpt2.json"


class Stream(ProgramTest):
    def setUp(self):
        super().setUp()
        self.corpus = self.folder / "corpus"
        self.corpus.mkdir()
        text = TEXT.read_text(encoding="utf-8")
        (self.corpus / "play.txt").write_text(text[:500000])
        with gzip.open(self.corpus / "play.jsonl.gz", "wt", compresslevel=1) as packed:
            for part in text[500000:900000].split("\n\n"):
                packed.write(json.dumps({"text": part}) + "\n")
        (self.corpus / "play.txt.xz").write_bytes(lzma.compress(text[900000:].encode(), preset=1))

    def stream(self, *arguments, **options):
        return self.pretrain("--tokenizer-type", "huggingface", "--tokenizer-model", TOKENIZER, *arguments,
                             data=self.corpus, **options)

    def test_a_run_that_is_killed_goes_on_with_the_same_batches(self):
        steps = ("--train-iters", 40, "--micro-batch-size", 4, "--global-batch-size", 8)
        self.stream(*steps, "--log-json", "whole.jsonl", "--save", "whole", "--eval-interval", 20, "--eval-iters", 2)
        options = [a for pair in zip(SMALL[::2], SMALL[1::2]) if pair[0] not in steps for a in pair]
        line = [TRIFOLD, "pretrain", *options, *map(str, steps), "--data-path", str(self.corpus), "--tokenizer-type",
                "huggingface", "--tokenizer-model", str(TOKENIZER), "--log-json", "parts.jsonl", "--save", "parts",
                "--save-interval", "7", "--auto-resume"]
        with subprocess.Popen(line, cwd=self.folder, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not (self.folder / "parts" / "step_0000000014").exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = self.losses("whole.jsonl")
        self.assertEqual(len(whole), 40)
        parts = {entry["step"]: entry["loss"] for entry in self.log("parts.jsonl") if "loss" in entry}
        self.assertEqual(whole, [parts[step] for step in sorted(parts)])
        out, _ = self.trifold("inspect", "whole", "--diff", "parts")
        self.assertIn("are bitwise equal", out)

    def test_ranks_share_the_same_order(self):
        losses = []
        for ranks in (1, 2):
            self.stream("--train-iters", 10, "--ranks", ranks, "--log-json", f"{ranks}.jsonl")
            losses.append(self.losses(f"{ranks}.jsonl"))
        for one, two in zip(*losses):
            self.assertLess(abs(one - two), 1e-5 * one)

    def test_evaluate_and_generate_with_the_tokenizer_of_the_run(self):
        self.stream("--train-iters", 3, "--save", "d")
        out, _ = self.trifold("evaluate", "--load", "d", "--data-path", self.corpus, "--split", "90,10,0")
        self.assertIn("validation loss", out)
        out, _ = self.trifold("generate", "--load", "d", "--prompt", "Once", "--max-new-tokens", 8)
        self.assertTrue(out.startswith("Once"), out)

    def test_a_run_goes_on_in_the_same_text_only(self):
        self.stream("--train-iters", 2, "--save", "d")
        more = ("--train-iters", 4, "--save", "d")
        _, message = self.stream(*more, "--load", "d", "--split", "80,20", status=2)
        self.assertIn('another --split ("90,10,0", now "80,20,0"); give the same', message)
        _, message = self.stream(*more, "--load", "d", "--seed", 7, status=2)
        self.assertIn("another --seed", message)
        self.assertNotIn("starts after step", message)  # of which nothing is known then
        # Without a tokenizer text would be read as bytes.
        for start in (("--save", "d"), ("--finetune", "--save", "e")):
            _, message = self.pretrain("--train-iters", 4, "--load", "d", *start, data=self.corpus, status=2)
            self.assertIn(f"was trained with the tokenizer {TOKENIZER}, and text would become bytes here", message)
        self.assertFalse((self.folder / "e").exists())
        (self.corpus / "more.txt").write_text("another file")
        for start in (("--load", "d"), ("--auto-resume",)):
            _, message = self.stream(*more, *start, status=2)
            self.assertIn("the training data differ from those that d/step_0000000002 was trained on", message)
            self.assertNotIn("passed over", message)
        (self.corpus / "more.txt").unlink()
        self.stream(*more, "--auto-resume")

    def test_mistakes_end_every_rank_with_file_and_line(self):
        with open(self.corpus / "more.jsonl", "w", encoding="utf-8") as lines:
            for _ in range(600):
                lines.write('{"text": "' + 300 * "x " + '"}\n')
            lines.write('{"text": 7}\n')
        _, message = self.stream("--train-iters", 5, "--ranks", 2, status=2)
        self.assertIn("more.jsonl:601: the field \"text\" is not a string", message)
        _, message = self.stream("--train-iters", 2, "--json-key", "body", status=2)
        self.assertIn('the object has no field "body"', message)
        _, message = self.pretrain("--train-iters", 2, "--json-key", "body", status=2)
        self.assertIn("--json-key body has no effect: no file of --data-path is JSON lines", message)
        _, message = self.stream("--train-epochs", 2, status=2)
        self.assertIn("--train-epochs 2: text that is streamed (folders, JSON lines", message)


if __name__ == "__main__":
    unittest.main()
