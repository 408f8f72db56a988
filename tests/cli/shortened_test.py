"""An input that is shortened while it is read: a message that names it and status 1, not a signal."""

import os
import signal
import subprocess
import time
import unittest

from fault_test import HAS_MPI, MPIEXEC
from program import SMALL, TEXT, TRIFOLD, ProgramTest

RECOMMEND = ("--global-batch-size 64 --train-iters 300000 --embedding-dim 4 --bottom-mlp 8-4 --top-mlp 8-1 --threads-per-rank 1 "
             "--log-interval 1").split()


class Shortened(ProgramTest):
    def check(self, path, line, runs=r"step "):
        """Stops the run once it says that it `runs`, shortens the file, and lets it go on."""
        path = self.folder / path
        before = path.stat().st_size
        said = self.folder / "said.txt"
        with open(said, "wb") as out, subprocess.Popen([str(word) for word in line], cwd=self.folder, stdout=out, stderr=out,
                                                       start_new_session=True) as process:
            begun = time.monotonic()
            while runs and runs not in said.read_text(errors="replace") and time.monotonic() - begun < 60 and process.poll() is None:
                time.sleep(0.01)
            time.sleep(0.1)
            self.assertIsNone(process.poll(), said.read_text(errors="replace"))
            os.killpg(process.pid, signal.SIGSTOP)
            os.truncate(path, 100)
            os.killpg(process.pid, signal.SIGCONT)
            try:
                status = process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        text = said.read_text(errors="replace")
        self.assertEqual(status, 1, text[-2000:])
        self.assertRegex(text, rf"(?m)^trifold: \S*{path.name} was shortened while it was read: it had {before} bytes and has 100")
        return text

    def clicks(self, *options):
        text = "label,a,b,I\n" + "".join(f"{i % 2},{i % 97},{i % 31},{i % 11}\n" for i in range(40_000))
        (self.folder / "d.csv").write_text(text)
        self.trifold("preprocess", "--input", "d.csv", "--output", "d", "--label", "label", "--sparse", "a,b", "--dense", "I",
                     *options)

    def test_columns_of_a_recommender(self):
        for name in ("a.ids", "labels.bin", "dense.bin"):
            with self.subTest(file=name):
                self.setUp()
                self.clicks()
                names = sorted(path.name for path in (self.folder / "d").iterdir())
                self.assertIn(name, names)
                self.check(f"d/{name}", [TRIFOLD, "recommend", "--train-data", "d", *RECOMMEND])

    def test_keys_of_a_recommender(self):
        self.clicks("--ids", "keys")
        self.check("d/a.ids", [TRIFOLD, "recommend", "--train-data", "d", "--table-rows", "50-20", *RECOMMEND])

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_all_processes_end(self):
        self.clicks()
        self.check("d/a.ids", [MPIEXEC, "-n", "2", TRIFOLD, "recommend", "--train-data", "d", *RECOMMEND])

    def test_text_and_tokens(self):
        (self.folder / "text.txt").write_bytes(TEXT.read_bytes())
        train = [TRIFOLD, "pretrain", *SMALL, "--train-iters", 100000, "--log-interval", 1, "--data-path"]
        self.check("text.txt", [*train, "text.txt"])
        (self.folder / "text.txt").write_bytes(TEXT.read_bytes())
        self.trifold("tokenize", "--input", "text.txt", "--output-prefix", "t", "--tokenizer-type", "byte")
        self.check("t_text_document.bin", [*train, "t_text_document", "--vocab-size", 256])

    def test_inputs_of_other_commands(self):
        row = "1,2,3,4\n"
        (self.folder / "big.csv").write_text("label,a,b,I\n" + row * 6_000_000)
        self.check("big.csv", [TRIFOLD, "preprocess", "--input", "big.csv", "--output", "big", "--label", "label", "--sparse", "a,b",
                               "--dense", "I"], runs=None)
        (self.folder / "big.txt").write_bytes(TEXT.read_bytes() * 40)
        self.check("big.txt", [TRIFOLD, "tokenize", "--input", "big.txt", "--output-prefix", "o", "--tokenizer-type", "byte"], runs=None)


if __name__ == "__main__":
    unittest.main()
