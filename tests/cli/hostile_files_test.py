"""Damaged or malicious files: status 2 and a harmless message, quickly and in little memory."""

import gzip
import json
import os
import resource
import shutil
import struct
import subprocess
import threading
import unittest
import zlib

from program import SMALL, TEXT, TRIFOLD, ProgramTest

DEEP = 40000
STEP = "step_0000000001"
DLRM = ("--table-rows 30-20 --synthetic-samples 100 --valid-samples 0 --dense-features 2 --bottom-mlp 4 --embedding-dim 4 "
        "--top-mlp 4-1 --global-batch-size 10 --lr 0.2 --threads-per-rank 1 --train-iters 1").split()
PLAN = ("--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1 --global-batch-size 1 --lr 1 "
        "--vocab-size 64 --train-iters 1").split()


class HostileFiles(ProgramTest):
    def refused(self, *arguments, words=(), memory=None):
        """Status 2 within a minute of processor time; nothing that controls a terminal is printed."""
        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        process = subprocess.Popen([TRIFOLD, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, preexec_fn=limit)
        timer = threading.Timer(100, process.kill)  # of a run that waits
        timer.start()
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        process.stderr.close()
        self.assertEqual(process.returncode, 2, f"{arguments}\n{message[:2000]}")
        self.assertFalse(any(byte < 32 and byte not in b"\n\t" for byte in message), message[:2000])
        self.assertNotIn(b"json.exception", message)
        text = message.decode()
        for word in words:
            self.assertIn(word, text)
        if memory is not None:
            self.assertLess(usage.ru_maxrss >> 10, memory, text)  # MiB
        return text

    def gpt(self):
        self.pretrain("--train-iters", 1, "--save", "run")
        return self.folder / "run" / STEP / "manifest.json"

    def signed(self, path, value, deep=None):
        value = dict(value)
        value.pop("crc32", None)
        text = json.dumps(value)
        if deep:
            text = text.replace('"DEEP"', "[" * deep + "]" * deep)
        text = text[:-1] + ',\n"crc32": "'
        path.write_text(text + f'{zlib.crc32(text.encode()):08x}"\n}}\n')

    def test_a_manifest_is_read_with_checks(self):
        path = self.gpt()
        good = json.loads(path.read_text())
        generate = ["generate", "--load", "run", "--prompt", "x", "--max-new-tokens", 1]
        resume = ["pretrain", *SMALL, "--data-path", TEXT, "--train-iters", 2, "--load", "run"]

        def changed(key, inner, value):
            return {**good, key: {**good[key], inner: value}}

        for value, command, words in (
                ({**good, "state": "DEEP"}, ["inspect", "run"], ["nested more than"]),
                (changed("model", "vocab_size", None), generate, ["vocab_size"]),
                (changed("state", "tokenizer", 3), generate, ["tokenizer"]),
                (changed("state", "dtype", None), generate, ["dtype is null; a string is needed"]),
                (changed("config", "global_batch_size", "4"), resume, ["config: global_batch_size", "a whole number"]),
                ({**good, "consumed_samples": 5}, resume, ["is damaged: its manifest says 5 samples for 1 steps of 4"]),
                (changed("state", "loss_scaler", 5), resume, ["loss_scaler is 5; an object is needed"]),
                (changed("model", "\x1b[2J", 1), generate, ["\\x1b[2J"]),
                ({**good, "step": 2 ** 63}, ["inspect", "run"], ["step is 9223372036854775808; a whole number"]),
                ({**good, "files": [{**good["files"][0], "bytes": -1}]}, ["inspect", "run"], ["files[0].bytes is -1"])):
            self.signed(path, value, DEEP)
            self.refused(*command, words=words)
        pieces = [{**good["tensors"][0]["pieces"][0], "file": 2 ** 56}]
        self.signed(path, {**good, "tensors": [{**good["tensors"][0], "pieces": pieces}]})
        self.refused("inspect", "run", words=["file is 72057594037927936; a whole number from 0 to"])

    def test_a_huge_manifest_takes_no_memory(self):
        path = self.gpt()
        text = path.read_bytes()
        for size in (2 << 30, 900 << 20):
            with open(path, "wb") as file:
                file.truncate(size)
                file.seek(size - 12)
                file.write(text[-12:])
            self.refused("inspect", "run", memory=256, words=["manifest.json"])

    def test_a_line_without_end_takes_no_memory(self):
        def endless(name, start):
            with open(self.folder / name, "wb") as file:
                file.write(start.encode())
                file.truncate(2 << 30)
            return name

        click = "\t".join(["0", *"1" * 13, *"1" * 26])
        clicks = endless("day_0.tsv", (click + "\n") * 99 + click)  # zeros in the first 4096 bytes are noticed before
        csv = endless("a.csv", "label,C1\n" + "0,1\n" * 1998)
        click_words = ["has more than 1048576 bytes", "a line of its own"]
        sizes = "--valid-samples 0 --bottom-mlp 4 --embedding-dim 4 --top-mlp 4-1 --global-batch-size 1 --lr 0.2 --train-iters 1".split()
        for name, place in ((clicks, "day_0.tsv:100: "), (csv, "a.csv:2000: "), (endless("b.csv", "label," * 999), "b.csv:1: ")):
            self.refused("recommend", *sizes, "--train-data", name, "--table-rows", 9, memory=256, words=[place, *click_words])
            self.refused("preprocess", "--input", name, "--output", "out", memory=256, words=[place, *click_words])
        lines = endless("t.jsonl", '{"text": "a"}\n{"text": "')
        self.refused("tokenize", "--input", lines, "--output-prefix", "out", "--tokenizer-type", "byte", memory=256,
                     words=["t.jsonl:2: ", "more than 67108864 bytes", "one JSON object a line"])
        self.refused("pretrain", *SMALL, "--model-type", "bert", "--train-iters", 1, "--data-path", endless("text", "a\n"), memory=256,
                     words=["text:2: ", "more than 67108864 bytes", "a sentence or a paragraph a line"])

    def test_a_huge_latest_takes_no_memory(self):
        (self.folder / "run").mkdir()
        with open(self.folder / "run" / "LATEST", "wb") as file:
            file.write(b"step_\x1b[2J")
            file.truncate(2 << 30)
        self.refused("pretrain", *SMALL, "--data-path", TEXT, "--train-iters", 1, "--save", "run", "--auto-resume", memory=256,
                     words=["the last one as step_\\x1b[2J", "none is there"])

    def hugging_face(self, header, data=b""):
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(os.path.join(os.environ["TRIFOLD_ROOT"], "tests/golden/hf_gpt2/config.json"), folder / "config.json")
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
        return ["convert", "--load", "model", "--save", "out"]

    def test_safetensors_headers(self):
        self.refused(*self.hugging_face(b'{"a":' + b"[" * DEEP), words=["nested more than"])
        many = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(20000)}
        self.refused(*self.hugging_face(json.dumps(many).encode(), bytes(20000)), words=["is missing", "more"])
        escape = json.dumps({"\x1b[2J": {"dtype": "\x07", "shape": [1], "data_offsets": [0, 1]}})
        self.refused(*self.hugging_face(escape.encode(), b"x"), words=["tensor '\\x1b[2J': the type '\\x07' is not known"])
        command = self.hugging_face(b"{}")
        (self.folder / "model" / "config.json").write_bytes(b"[" * DEEP)
        self.refused(*command, words=["nested more than"])
        (self.folder / "model" / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1e300, "n_embd": 8, "n_head": 2}')
        self.refused(*command, words=["'n_layer' is 1e+300; a whole number"])

    def test_tokenizers(self):
        tokenize = ["tokenize", "--input", "text", "--output-prefix", "out", "--tokenizer-type", "huggingface", "--tokenizer-model", "t.json"]
        (self.folder / "text").write_text("a" * 100000)
        (self.folder / "t.json").write_bytes(b'{"model":' * DEEP)
        self.refused(*tokenize, words=["nested more than"])
        pieces = {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 1e12, "vocab": {"[UNK]": 0, "a": 1, "##a": 2}}
        model = {"model": pieces, "pre_tokenizer": {"type": "BertPreTokenizer"}}
        (self.folder / "t.json").write_text(json.dumps(model))
        self.refused(*tokenize, words=["max_input_chars_per_word is 1000000000000.0; a whole number"])
        pieces["max_input_chars_per_word"] = 10 ** 12
        (self.folder / "t.json").write_text(json.dumps(model))
        self.trifold(*tokenize)  # in a moment: it was cubic
        pieces["vocab"]["a"] = 2 ** 56
        (self.folder / "t.json").write_text(json.dumps(model))
        self.refused(*tokenize, words=["vocab.a is 72057594037927936"])

    def test_lines_of_json(self):
        train = ["pretrain", *SMALL, "--train-iters", 1, "--data-path"]
        with gzip.open(self.folder / "t.jsonl.gz", "wb", 1) as file:
            file.write(b"[" * (16 << 20))
        self.refused(*train, "t.jsonl.gz", words=["nested more than"], memory=320)

    def test_pipes_and_devices_are_no_input(self):
        os.mkfifo(self.folder / "pipe")
        train = ["pretrain", *SMALL, "--train-iters", 1]
        for name in ("pipe", "/dev/zero"):
            kind = "pipe" if name == "pipe" else "device"
            for command in (["pretrain", "--config", name],
                            [*train, "--data-path", name],
                            [*train, "--data-path", TEXT, "--tokenizer-type", "huggingface", "--tokenizer-model", name],
                            [*train, "--data-path", TEXT, "--tokenizer-type", "sentencepiece", "--tokenizer-model", name],
                            ["tokenize", "--input", name, "--output-prefix", "out", "--tokenizer-type", "byte"],
                            ["plan", *PLAN, "--costs", name],
                            ["preprocess", "--input", name, "--output", "out"]):
                self.refused(*command, words=[kind])
        for name in ("manifest.json", "shard_00000.h5"):
            self.gpt()
            (self.folder / "run" / STEP / name).unlink()
            os.mkfifo(self.folder / "run" / STEP / name)
            self.refused("generate", "--load", "run", "--prompt", "x", words=["pipe"])
            shutil.rmtree(self.folder / "run")

    def test_packed_text_and_other_encodings_are_named(self):
        train = ["pretrain", *SMALL, "--train-iters", 1, "--data-path"]
        (self.folder / "packed.txt").write_bytes(gzip.compress(TEXT.read_bytes()))
        (self.folder / "wide.txt").write_bytes("text\n".encode("utf-16") * 1000)
        (self.folder / "wide.jsonl").write_bytes('{"text": "a"}\n'.encode("utf-16") * 1000)
        self.refused(*train, "packed.txt", words=["gzip", "gzip -d"])
        self.refused(*train, "wide.txt", words=["UTF-16", "iconv"])
        self.refused(*train, "wide.jsonl", words=["UTF-16", "iconv"])

    def test_a_recommender_is_no_language_model(self):
        self.trifold("recommend", *DLRM, "--save", "run")
        self.refused("convert", "--load", "run", "--save", "out", words=["is a checkpoint of a recommender", "--save out ends neither in .onnx nor in .safetensors"])
        for command in (["generate", "--load", "run", "--prompt", "x"],
                        ["evaluate", "--load", "run", "--data-path", TEXT, "--micro-batch-size", 1],
                        ["finetune", "--task", "classify", "--load", "run", "--train-data", TEXT, "--lr", 1, "--train-iters", 1, "--micro-batch-size", 1],
                        ["reshard", "--load", "run", "--save", "out", "--ranks", 2],
                        ["pretrain", *SMALL, "--data-path", TEXT, "--train-iters", 2, "--load", "run"]):
            self.refused(*command, words=["is a checkpoint of a recommender", "trifold recommend --load"])
        self.trifold("inspect", "run")
        shutil.rmtree(self.folder / "run")
        self.gpt()
        self.refused("recommend", *DLRM, "--load", "run", words=["is a checkpoint of a language model"])

    def test_an_older_checkpoint_that_is_damaged(self):
        self.trifold("recommend", *DLRM, "--save", "run")
        shutil.copytree(self.folder / "run", self.folder / "older")
        path = next((self.folder / "older").rglob("manifest.json"))
        good = json.loads(path.read_text())
        names = [tensor["name"] for tensor in good["tensors"]]
        table = next(name for name in names if name.startswith("param/embedding."))
        other = next(name for name in names if name.startswith("param/top."))
        swapped = {table: other, other: table}
        tensors = [{**tensor, "name": swapped.get(tensor["name"], tensor["name"])} for tensor in good["tensors"]]
        for value, words in (({**good, "model": {**good["model"], "tables": [5]}}, ["tables[0]"]),
                             ({**good, "model": {**good["model"], "tables": 5}}, ["tables"]),
                             ({**good, "tensors": tensors}, ["its model needs"]),
                             ({**good, "tensors": [tensor for tensor in good["tensors"] if tensor["name"] != table]}, [f"needs a tensor {table}"])):
            self.signed(path, value)
            self.refused("convert", "--load", "run", "--save", "out.safetensors", "--changed-since", "older", words=words)

    def test_options_of_other_programs(self):
        for option, words in (("--learning-rate", ["--lr"]), ("--local-rank", ["mpirun"]),
                              ("--n-layer", ["--num-layers"]), ("--gradient-accumulation-steps", ["--global-batch-size"]),
                              ("--attention-heads", ["nearest", "--num-attention-heads"]), ("--frobnicate", ["--help"])):
            message = self.refused("pretrain", *SMALL, "--data-path", TEXT, "--train-iters", 1, option, 1, words=words)
            for nonsense in ("--async-save", "--seq-length", "--vocab-size"):
                self.assertNotIn(nonsense, message)


if __name__ == "__main__":
    unittest.main()
