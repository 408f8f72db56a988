"""A corpus of several gigabytes: the time to the first step, and the memory of the stream."""

import json
import os
import random
import subprocess
import tempfile
import time
import unittest

from program import TEXT, TRIFOLD, ProgramTest

GIGABYTES = 3
TOKENIZER = TEXT.parent.parent / "tests" / "golden" / "hf_tokenizers" / "gpt2.json"
# A tiny model, so that memory and time are those of the stream.
MODEL = ("--num-layers 1 --hidden-size 16 --num-attention-heads 1 --seq-length 256 --micro-batch-size 64 --lr 1e-3 "
         "--lr-decay-style constant --threads-per-rank 1").split()


def peak_and_first_step(command, folder):
    start = time.monotonic()
    with open(folder / "out.txt", "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        first = None
        while first is None and process.poll() is None:
            time.sleep(0.02)
            log = folder / "log.jsonl"
            if log.exists() and log.stat().st_size > 0:
                first = time.monotonic() - start
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise AssertionError((folder / "out.txt").read_text())
    return usage.ru_maxrss << 10, first


class StreamMemory(ProgramTest):
    def write_corpus(self, folder):
        """Lines of shuffled words; the same blocks again and again, which a stream does not notice."""
        words = TEXT.read_text(encoding="utf-8").split()
        rng = random.Random(1)
        block = []
        while sum(map(len, block)) < 16 << 20:
            block.append(json.dumps({"text": " ".join(rng.choices(words, k=rng.randint(20, 800)))}) + "\n")
        data = "".join(block).encode()
        with open(folder / "lines.jsonl", "wb") as lines:
            for _ in range(GIGABYTES * 1024 // 16):
                lines.write(data)
        with open(folder / "lines.jsonl", "rb") as lines, open(folder / "packed.jsonl.gz", "wb") as packed:
            subprocess.run(["gzip", "-1", "-c"], stdin=lines, check=True, stdout=packed)

    def test_memory_and_first_batch(self):
        with tempfile.TemporaryDirectory(prefix="trifold_stream_") as name:
            corpus = type(self.folder)(name)
            self.write_corpus(corpus)
            size = sum(p.stat().st_size for p in corpus.iterdir())
            for kind, options in (("bytes", []), ("gpt2", ["--tokenizer-type", "huggingface", "--tokenizer-model", str(TOKENIZER)])):
                with self.subTest(tokenizer=kind):
                    (self.folder / "log.jsonl").unlink(missing_ok=True)
                    line = [TRIFOLD, "pretrain", *MODEL, *options, "--log-json", "log.jsonl", "--split", "1"]
                    small, _ = peak_and_first_step([*line, "--data-path", str(TEXT), "--train-iters", "2"], self.folder)
                    (self.folder / "log.jsonl").unlink()
                    peak, first = peak_and_first_step([*line, "--data-path", name, "--train-iters", "4000"], self.folder)
                    print(f"{kind:6} {size / 2**30:.1f} GiB: peak {peak / 2**20:.0f} MiB, without the stream {small / 2**20:.0f} MiB, "
                          f"first step after {first:.2f} s")
                    self.assertLess(peak - small, 256 << 20)
                    self.assertLess(first, 5)


if __name__ == "__main__":
    unittest.main()
