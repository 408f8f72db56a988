"""From files of text to tokens: names, folders, records, SentencePiece models that put a space before a text, and ends of documents."""

import json
import struct
import unittest

from program import GOLDEN, TEXT, ProgramTest

PREFIX = GOLDEN.parent / "data" / "shakespeare_prefix_400.model"
PIECES = ("--tokenizer-type", "sentencepiece", "--tokenizer-model", PREFIX)


class Text(ProgramTest):
    def tokens(self, name, *arguments, **options):
        """The tokens that `tokenize` makes of a file, and what it says."""
        _, err = self.trifold("tokenize", "--input", name, "--output-prefix", "out", *arguments, **options)
        if options.get("status"):
            return [], err
        data = (self.folder / "out_text_document.bin").read_bytes()
        return [token for token, in struct.iter_unpack("<H", data)], err

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def write_records(self, name, texts):
        self.write(name, "".join(json.dumps({"text": text}) + "\n" for text in texts))

    def test_a_document_has_the_same_tokens_in_every_file(self):
        text = TEXT.read_text(encoding="utf-8")[:80000] + "\n\n    indented\n"
        self.write("doc.txt", text)
        self.write_records("doc.jsonl", [text])
        plain, _ = self.tokens("doc.txt", *PIECES)
        record, _ = self.tokens("doc.jsonl", *PIECES)
        self.assertEqual(plain, record)
        # Training reads the same: a stream of one document, and the file as a whole.
        small = ("--micro-batch-size", 1, "--global-batch-size", 1, "--train-iters", 1, "--split", "1,0,0", *PIECES)
        for name in ("doc.txt", "doc.jsonl"):
            self.pretrain(*small, "--save", name + ".d", data=name)
        counts = []
        for name in ("doc.txt", "doc.jsonl"):
            self.trifold("evaluate", "--load", "doc.txt.d", "--data-path", name, "--split", "1,0,0", "--part", "train", "--log-json",
                         name + ".log")
            counts.append(self.log(name + ".log")[-1])
        self.assertEqual(counts[0]["tokens"], counts[1]["tokens"])
        self.assertAlmostEqual(counts[0]["train_loss"], counts[1]["train_loss"], places=6)

    def test_suffixes_have_no_case_and_records_what_python_writes(self):
        self.write("a.jsonl", '{"text": "one", "score": NaN, "more": [-Infinity, 1e400]}\n{"text": "two"}\n')
        expected, _ = self.tokens("a.jsonl")
        self.assertEqual(bytes(expected), b"onetwo")
        self.write("b.JSONL", (self.folder / "a.jsonl").read_text())
        self.assertEqual(self.tokens("b.JSONL")[0], expected)
        self.write("c.PARQUET", "a text\n" * 20)
        self.assertIn("text cannot be read from a .parquet file", self.tokens("c.PARQUET", status=2)[1])
        _, err = self.pretrain("--train-iters", 1, data="c.PARQUET", status=2)
        self.assertIn("text cannot be read from a .parquet file", err)

    def test_tokenize_skips_bad_records(self):
        self.write("a.jsonl", '{"text": "one"}\n{"txt": "x"}\n{"text"\n{"text": "two"}\n')
        self.assertIn("a.jsonl:2", self.tokens("a.jsonl", status=2)[1])
        found, err = self.tokens("a.jsonl", "--on-bad-record", "skip")
        self.assertEqual(bytes(found), b"onetwo")
        self.assertIn("skipped a record of the data: a.jsonl:2", err)
        self.assertIn("skipped a record of the data: a.jsonl:3", err)
        self.assertIn("--max-bad-records allows 1",
                      self.tokens("a.jsonl", "--on-bad-record", "skip", "--max-bad-records", 1, status=2)[1])

    def test_a_run_lists_what_it_reads_of_a_folder(self):
        for name in ("d/a.txt", "d/README.md", "d/sub/notes.md"):
            self.write(name, "a line of text\n" * 100)
        self.write_records("d/b.Json", ["a record"] * 100)
        out, err = self.pretrain("--train-iters", 1, "--split", "1,0,0", data="d")
        self.assertIn("1 file of plain text, 1 file of JSON lines; left out: README.md, sub/notes.md", out + err)
        self.assertIn("the tokenizer has no token that ends a document", out + err)

    def folder_of_model(self):
        """A tokenizer with another end-of-document token than the usual ones, which the configuration beside it names."""
        tokenizer = json.loads((GOLDEN / "hf_tokenizers" / "gpt2.json").read_text(encoding="utf-8"))
        end = dict(tokenizer["added_tokens"][0], id=len(tokenizer["model"]["vocab"]), content="<stop>")
        tokenizer["added_tokens"].append(end)
        self.write("model/tokenizer.json", json.dumps(tokenizer))
        self.write("model/config.json", json.dumps({"eos_token_id": [end["id"]]}))
        return end["id"]

    def test_documents_end_with_the_token_of_the_model(self):
        end = self.folder_of_model()
        self.write_records("docs.jsonl", ["Hear me.", "Speak, speak."] * 20)
        names = ("--tokenizer-type", "huggingface", "--tokenizer-model", "model/tokenizer.json")
        found, _ = self.tokens("docs.jsonl", *names, "--append-eod")
        self.assertEqual(found.count(end), 40)
        other, _ = self.tokens("docs.jsonl", *names, "--append-eod", "--eod-token", "<|endoftext|>")
        self.assertEqual(other, [0 if token == end else token for token in found])
        self.assertIn("--eod-token <no>", self.tokens("docs.jsonl", *names, "--append-eod", "--eod-token", "<no>", status=2)[1])
        # Checkpoints keep the token, also where only the configuration names it.
        self.pretrain(*names, "--train-iters", 1, "--split", "1,0,0", "--save", "run", "--eod-mask-loss", data="docs.jsonl")
        self.trifold("convert", "--load", "run", "--save", "library")
        config = json.loads((self.folder / "library/config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["eos_token_id"], end)
        del config["trifold"]
        self.write("library/config.json", json.dumps(config))
        self.trifold("convert", "--load", "library", "--save", "back")
        for folder in ("run", "back"):
            self.trifold("evaluate", "--load", folder, "--data-path", "docs.jsonl", "--split", "1,0,0", "--part", "train",
                         "--eod-mask-loss", "--log-json", folder + ".log")
        self.assertEqual(self.log("run.log")[-1]["tokens"], self.log("back.log")[-1]["tokens"])
        self.assertAlmostEqual(self.log("run.log")[-1]["train_loss"], self.log("back.log")[-1]["train_loss"], places=5)


if __name__ == "__main__":
    unittest.main()
