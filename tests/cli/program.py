"""Runs the trifold program in tests: a scratch folder, short configurations, and the output of a run."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

TRIFOLD = os.environ["TRIFOLD"]
TEXT = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "data" / "tinyshakespeare.txt"
GOLDEN = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tests" / "golden"

# All cases, as the tests of the label long run them, and not a selection in which each value of each option occurs.
WHOLE = bool(os.environ.get("TRIFOLD_WHOLE"))

# A GPT that trains in a moment; every test adds its own options.
SMALL = ("--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --micro-batch-size 2 "
         "--global-batch-size 4 --lr 1e-3 --lr-decay-style constant --split 90,10,0 --threads-per-rank 1").split()

# A recommender that does too.
CLICKS = ("--table-rows 300-200-50-3 --synthetic-samples 6000 --valid-samples 1000 --dense-features 4 --bottom-mlp 8-4 "
          "--embedding-dim 4 --top-mlp 8-1 --global-batch-size 250 --lr 0.2 --embedding-optimizer rowwise-adagrad "
          "--embedding-lr 0.05 --threads-per-rank 1").split()


def only_whole(test):
    """For a test whose cases others cover one by one."""
    return unittest.skipUnless(WHOLE, "part of the label long (TRIFOLD_WHOLE=1)")(test)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trifold_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def trifold(self, *arguments, status=0, prefix=(), timeout=100):
        """Runs the program in the scratch folder; returns (stdout, stderr)."""
        done = subprocess.run([*prefix, TRIFOLD, *map(str, arguments)], cwd=self.folder, capture_output=True,
                              text=True, errors="replace", timeout=timeout, check=False)
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def pretrain(self, *arguments, data=TEXT, **options):
        """Trains the small GPT; an option in `arguments` takes the place of the small run's."""
        kept = []
        for name, value in zip(SMALL[::2], SMALL[1::2]):
            if name not in arguments:
                kept += [name, value]
        return self.trifold("pretrain", *kept, "--data-path", data, *arguments, **options)

    def spiky_text(self):
        """A text that is learned at once, with one sample of 32 tokens that cannot be learned."""
        odd = random.Random(3)
        text = bytearray(b"abcdefgh" * 4096)
        text[9_985:10_015] = bytes(odd.randrange(33, 126) for _ in range(30))
        (self.folder / "spiky.txt").write_bytes(text)

    def spiky(self, *more, status=0):
        """Trains on the spiky text; the loss has one spike."""
        options = ["--train-iters", 126, "--global-batch-size", 8, "--micro-batch-size", 1, "--seed", 5, "--lr", 0.01,
                   "--split", "100,0,0", *more]
        return self.pretrain(*options, data="spiky.txt", status=status)

    def stop(self, *arguments):
        """Ends a long run of the small GPT by a signal, half a second after it began; returns its messages."""
        line = [TRIFOLD, "pretrain", *SMALL, "--data-path", TEXT, "--train-iters", 100000, *arguments]
        with subprocess.Popen([*map(str, line)], cwd=self.folder, stderr=subprocess.PIPE, text=True) as process:
            for text in process.stderr:
                if text.startswith("steps"):
                    break
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            message = process.stderr.read()
            self.assertEqual(process.wait(timeout=60), 75, message)
        return message

    def records(self, name="log.jsonl"):
        with open(self.folder / name, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def log(self, name="log.jsonl"):
        """The lines of steps and evaluations."""
        return [line for line in self.records(name) if "event" not in line]

    def events(self, name, kind):
        return [line for line in self.records(name) if line.get("event") == kind]

    def losses(self, name="log.jsonl"):
        return [line["loss"] for line in self.log(name) if "loss" in line]

    def files(self):
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))
