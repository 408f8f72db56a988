"""Bad input: one clear message, exit status 2, nothing written."""

import json
import shutil
import struct
import unittest

from program import TEXT, ProgramTest


class BadInput(ProgramTest):
    def refused(self, *arguments, words, data=TEXT):
        before = self.files()
        _, message = self.pretrain(*arguments, "--train-iters", 2, "--save", "saved", "--log-json", "log.jsonl",
                                   data=data, status=2)
        for word in words:
            self.assertIn(word, message)
        self.assertTrue(message.startswith("trifold: "), message)
        self.assertEqual(self.files(), before, "something was written")
        return message

    def test_unknown_option_names_the_nearest(self):
        self.refused("--hiden-size", "64", words=["hiden-size", "--hidden-size"])

    def test_unknown_command_names_the_nearest(self):
        _, message = self.trifold("pretrian", status=2)
        self.assertIn("pretrain", message)

    def test_a_config_that_cannot_be_read_is_the_only_problem(self):
        (self.folder / "broken.cfg").write_text("num-layers = 2\n--lr 3\n")
        for name, why in (("no.cfg", "No such file"), ("broken.cfg", "broken.cfg:2: ")):
            _, message = self.trifold("pretrain", "--config", name, "--ranks", 2, status=2)
            self.assertIn(why, message)
            self.assertNotIn("needs a value", message)
        _, message = self.trifold("pretrain", "--config", "no.cfg", "--lr", -1, status=2)
        self.assertIn("--lr -1 is not possible", message)

    def test_all_contradictions_at_once(self):
        self.refused("--num-attention-heads", "5", "--global-batch-size", "7", "--clip-grad", "-1",
                     words=["--num-attention-heads", "--global-batch-size", "--clip-grad"])

    def test_a_batch_far_beyond_the_memory_is_refused_in_a_moment(self):
        self.refused("--micro-batch-size", 10**8, "--global-batch-size", 10**8, words=["of memory on this host, which has", "--micro-batch-size"])

    def test_cuda_where_there_is_none(self):
        # No module if it was not built; else a module that finds no driver.
        if shutil.which("nvidia-smi"):
            self.skipTest("this machine has a driver")
        message = self.refused("--device", "cuda", words=["CUDA", "--device cpu"])
        self.assertEqual(message.count("CUDA cannot be used here") + message.count("cannot be loaded"), 1, message)

    def test_missing_load(self):
        self.refused("--load", "nowhere", words=["nowhere"])

    def test_save_and_log_that_cannot_be_written_are_reported_with_the_rest(self):
        (self.folder / "file").write_text("x")
        _, message = self.pretrain("--train-iters", 2, "--save", "file", "--log-json", "no/log", "--load", "nowhere",
                                   data="nothing.txt", status=2)
        for word in ["--save", "--log-json", "no/log", "nothing.txt"]:
            self.assertIn(word, message)

    def test_save_where_a_newer_checkpoint_is(self):
        self.pretrain("--train-iters", 3, "--save", "old")
        _, message = self.pretrain("--train-iters", 2, "--save", "old", status=2)
        self.assertIn("step 3", message)

    def test_missing_text(self):
        self.refused(words=["nowhere.txt"], data="nowhere.txt")

    def test_empty_text(self):
        (self.folder / "empty.txt").write_text("")
        self.refused(words=["empty.txt", "empty"], data="empty.txt")

    def test_text_too_short(self):
        (self.folder / "short.txt").write_text("too short")
        self.refused(words=["short.txt"], data="short.txt")

    def write_dataset(self, tokens, idx_bytes=None, bin_tokens=None):
        """One document of u16 tokens; the files can be made to disagree."""
        (self.folder / "d.bin").write_bytes(b"".join(struct.pack("<H", t) for t in (bin_tokens or tokens)))
        index = (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<i", len(tokens)) +
                 struct.pack("<q", 0) + struct.pack("<qq", 0, 1))
        (self.folder / "d.idx").write_bytes(index[:idx_bytes])

    def test_truncated_index(self):
        self.write_dataset([1] * 500, idx_bytes=40)
        self.refused("--vocab-size", "100", "--split", "1,0,0", words=["d.idx", "40"], data="d")

    def test_index_that_does_not_match_its_data(self):
        self.write_dataset([1] * 500, bin_tokens=[1] * 400)
        self.refused("--vocab-size", "100", "--split", "1,0,0", words=["d.bin", "800", "1000"], data="d")

    def test_token_outside_the_vocabulary(self):
        tokens = [1] * 500
        tokens[123] = 777
        self.write_dataset(tokens)
        message = self.refused("--vocab-size", "100", "--split", "1,0,0", words=["d.bin", "777", "100"], data="d")
        self.assertRegex(message, r"document 0\b")
        self.assertRegex(message, r"\b123\b")

    def test_checkpoint_of_another_model_is_compared_field_by_field(self):
        self.pretrain("--train-iters", 1, "--save", "old")
        self.refused("--load", "old", "--num-layers", "3", "--ffn-hidden-size", "64",
                     words=["num_layers", "2", "3", "ffn_hidden_size"])

    def test_damaged_checkpoint(self):
        self.pretrain("--train-iters", 1, "--save", "old")
        shard = next((self.folder / "old").rglob("shard*.h5"))
        manifest = json.loads(next((self.folder / "old").rglob("manifest.json")).read_text())
        weight = next(t for t in manifest["tensors"] if t["name"].startswith("param/"))["pieces"][0]
        data = bytearray(shard.read_bytes())
        data[weight["byte_offset"] + 1] ^= 1
        shard.write_bytes(data)
        _, message = self.trifold("generate", "--load", "old", "--prompt", "x", status=2)
        self.assertIn(shard.name, message)
        out, _ = self.trifold("inspect", "old", "--verify", status=1)
        self.assertIn(shard.name, out)

    def test_generate_without_a_checkpoint(self):
        _, message = self.trifold("generate", "--load", "nowhere", "--prompt", "x", status=2)
        self.assertIn("nowhere", message)


if __name__ == "__main__":
    unittest.main()
