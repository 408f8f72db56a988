"""`trifold convert`: a model trained here is converted to Hugging Face's format and back, and training continues."""

import json
import math
import shlex
import struct
import unittest

from program import GOLDEN, SMALL, TEXT, ProgramTest


class Convert(ProgramTest):
    def loss(self, checkpoint):
        self.trifold("evaluate", "--load", checkpoint, "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4,
                     "--log-json", f"{checkpoint}.jsonl")
        return json.loads((self.folder / f"{checkpoint}.jsonl").read_text())["valid_loss"]

    def test_there_and_back(self):
        self.pretrain("--train-iters", 20, "--ranks", 2, "--tp", 2, "--save", "run")
        out, _ = self.trifold("convert", "--load", "run", "--save", "model")
        self.assertIn("28 tensors", out)
        self.assertIn("from_pretrained", out)
        data = (self.folder / "model" / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        self.assertEqual(header["__metadata__"], {"format": "pt"})
        self.assertEqual(header["transformer.h.0.attn.c_attn.weight"]["shape"], [32, 96])  # [in, out]
        self.assertEqual(header["transformer.wte.weight"]["shape"], [256, 32])
        out, _ = self.trifold("convert", "--load", "model", "--save", "back")
        self.assertIn("--finetune", out)
        self.assertIn("--vocab-size 256", out)
        diff, _ = self.trifold("inspect", "run", "--diff", "back")
        self.assertNotIn("param/", diff)  # only the moments are missing
        self.assertIn("28 tensors are bitwise equal, 0 differ, 56 are only left\n", diff)
        self.assertIn("config: only left, because the other checkpoint was not written by a run\n", diff)
        self.assertNotIn("config.", diff)
        self.assertEqual(self.loss("run"), self.loss("back"))
        # The tokenizer came back too.
        self.trifold("generate", "--load", "back", "--max-new-tokens", 3)
        # Continues training with the options that convert printed, another length and dropout.
        self.pretrain("--load", "back", "--finetune", "--train-iters", 3, "--log-interval", 1, "--log-json", "log.jsonl",
                      "--seq-length", 16, "--max-position-embeddings", 32, "--hidden-dropout", "0.1")
        self.assertLess(self.losses()[0], math.log(256) - 0.5)
        _, text = self.pretrain("--load", "back", "--train-iters", 3, status=2)
        self.assertIn("give --finetune", text)

    def test_the_options_of_a_model_with_lists(self):
        out, _ = self.trifold("convert", "--load", GOLDEN / "hf_phi3_longrope", "--save", "in")
        options = shlex.split(out.splitlines()[-1].partition("--finetune")[2])
        at = options.index("--rope-short-factor")
        self.assertEqual(options[at + 1:at + 4], ["1", "1.5", "2.5"])
        self.trifold("pretrain", "--load", "in", "--finetune", *options, "--mock-data", "--micro-batch-size", 1, "--train-iters", 1, "--lr", "1e-3")

    def test_refusals(self):
        self.pretrain("--train-iters", 1, "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "model", "--max-file-size", "1e-5", "--dtype", "f16")
        index = json.loads((self.folder / "model" / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertGreater(len(files), 2)
        self.assertEqual(files[0], f"model-00001-of-{len(files):05}.safetensors")
        self.assertEqual(index["metadata"]["total_size"], 2 * self.elements("run"))
        for arguments, part in (
                (["--load", "run", "--save", "model"], "--save model is a model itself: name another folder"),
                (["--load", "nowhere", "--save", "x"], "nowhere does not exist"),
                (["--load", "run", "--save", "x", "--hugging-face-family", "lama"], "--hugging-face-family lama is not known; gpt2, llama"),
                (["--load", "run", "--save", "x", "--hugging-face-family", "llama"], "it would need\n  Llama: --normalization RMSNorm"),
                (["--load", "model", "--save", "x", "--hugging-face-family", "gpt2"], "model is not a checkpoint of a GPT or BERT: leave it out"),
                (["--load", "run", "--save", "run"], "--save run is the folder of --load"),
                (["--load", "run", "--save", "run.onnx"], "--save run.onnx: only a recommender becomes a file, and run is a language model: name a folder"),
                (["--load", "run"], "--save needs a value")):
            _, text = self.trifold("convert", *arguments, status=2)
            self.assertIn(part, text)
        (self.folder / "model" / files[1]).unlink()
        _, text = self.trifold("convert", "--load", "model", "--save", "x", status=2)
        self.assertIn(files[1], text)
        self.assertFalse((self.folder / "x").exists())
        (self.folder / "model" / "config.json").write_text("{")
        _, text = self.trifold("convert", "--load", "model", "--save", "x", status=2)
        self.assertIn("config.json", text)

    def test_keeps_tokenizers_in_other_files(self):
        """Mistral's, tiktoken's and GPT-2's files are found and come back, from a checkpoint and from a run."""
        golden = json.loads((GOLDEN / "hf_tokenizers" / "families.json").read_text(encoding="utf-8"))
        ranks = "".join(f"{token} {rank}\n" for rank, token in enumerate(golden["ranks"]))
        gpt2 = json.loads((GOLDEN / "hf_tokenizers" / "gpt2.json").read_text(encoding="utf-8"))["model"]
        merges = "#version: 0.2\n" + "".join((merge if isinstance(merge, str) else " ".join(merge)) + "\n" for merge in gpt2["merges"])
        kinds = {"tekken": {"tekken.json": json.dumps(golden["tekken"]["json"])}, "tiktoken": {"tiktoken.model": ranks},
                 "qwen": {"qwen.tiktoken": ranks}, "pairs": {"vocab.json": json.dumps(gpt2["vocab"]), "merges.txt": merges}}
        self.trifold("pretrain", *SMALL, "--train-iters", 1, "--save", "run", "--mock-data", "--tokenizer-type", "null", "--vocab-size", 2000)
        for kind, files in kinds.items():
            with self.subTest(kind):
                model = self.folder / kind
                self.trifold("convert", "--load", "run", "--save", kind)
                config = json.loads((model / "config.json").read_text())
                del config["trifold"]  # as other programs write it
                (model / "config.json").write_text(json.dumps(config))
                files = {**files, "generation_config.json": '{"top_p": 0.9}'}
                for name, text in files.items():
                    (model / name).write_text(text, encoding="utf-8")
                self.trifold("convert", "--load", kind, "--save", f"{kind}-checkpoint")
                direct, stored = (self.trifold("generate", "--load", load, "--prompt", "To be", "--max-new-tokens", 8, "--seed", 3)[0]
                                  for load in (kind, f"{kind}-checkpoint"))
                self.assertEqual(direct, stored)
                # A run of the folder has its tokenizer, and gives it to its models.
                kept = [word for pair in zip(SMALL[::2], SMALL[1::2]) if pair[0] not in ("--num-layers", "--hidden-size", "--num-attention-heads")
                        for word in pair]
                self.trifold("pretrain", *kept, "--load", kind, "--data-path", TEXT, "--train-iters", 1, "--save-hf", f"{kind}-hf",
                             "--save-hf-interval", 1)
                again = self.trifold("generate", "--load", f"{kind}-hf/hf_iter_0000001", "--prompt", "To be", "--max-new-tokens", 1, "--temperature", 0)
                self.assertIn("To be", again[0])
                for name, text in files.items():
                    self.assertEqual((self.folder / f"{kind}-hf" / "hf_iter_0000001" / name).read_text(encoding="utf-8"), text)
                self.trifold("convert", "--load", f"{kind}-checkpoint", "--save", f"{kind}-back")
                for name, text in files.items():
                    self.assertEqual((self.folder / f"{kind}-back" / name).read_text(encoding="utf-8"), text)

    def test_keeps_the_tokenizer(self):
        """A model with its tokenizer and its special tokens comes back with them, and is sampled in between."""
        tokenizer = (GOLDEN / "hf_tokenizers" / "gpt2.json").read_bytes()
        (self.folder / "t.json").write_bytes(tokenizer)
        self.pretrain("--train-iters", 1, "--save", "run", "--tokenizer-type", "huggingface", "--tokenizer-model", "t.json")
        out, _ = self.trifold("convert", "--load", "run", "--save", "model")
        self.assertIn("tokenizer are next to it", out)
        model = self.folder / "model"
        self.assertEqual((model / "tokenizer.json").read_bytes(), tokenizer)
        # As other programs write it: with its own ids, and without our fields.
        config = json.loads((model / "config.json").read_text())
        del config["trifold"]
        ids = {"bos_token_id": 5, "eos_token_id": [0, 7], "pad_token_id": 3}
        (model / "config.json").write_text(json.dumps({**config, **ids}))
        (model / "tokenizer_config.json").write_text("{}")
        (self.folder / "t.json").unlink()
        out, _ = self.trifold("convert", "--load", "model", "--save", "back")
        self.assertIn("back/step_0000000000/tokenizer.json", out)
        self.trifold("inspect", "back", "--verify")
        self.trifold("reshard", "--load", "back", "--save", "two", "--files", 2)
        for checkpoint in ("back", "two"):
            out, _ = self.trifold("generate", "--load", checkpoint, "--prompt", "漢字", "--max-new-tokens", 3)
            self.assertTrue(out.startswith("漢字"))
            self.trifold("evaluate", "--load", checkpoint, "--data-path", TEXT, "--eval-iters", 1)
            self.trifold("convert", "--load", checkpoint, "--save", f"{checkpoint}_out")
            out = self.folder / f"{checkpoint}_out"
            self.assertEqual((out / "tokenizer.json").read_bytes(), tokenizer)
            self.assertEqual((out / "tokenizer_config.json").read_text(), "{}")
            again = json.loads((out / "config.json").read_text())
            self.assertEqual({name: again.get(name) for name in ids}, ids)
        file = self.folder / "two" / "step_0000000000" / "tokenizer.json"
        file.write_bytes(tokenizer.replace(b"a", b"b", 1))
        self.trifold("inspect", "two", "--verify", status=1)
        # A tokenizer of an unsupported kind is kept too.
        (model / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
        out, _ = self.trifold("convert", "--load", "model", "--save", "odd")
        self.assertIn("cannot be used here", out)
        _, message = self.trifold("generate", "--load", "odd", status=2)
        self.assertIn("give --tokenizer-type and --tokenizer-model", message)

    def test_a_pickle_is_refused_with_the_remedy(self):
        self.pretrain("--train-iters", 1, "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "model")
        (self.folder / "model" / "model.safetensors").rename(self.folder / "model" / "pytorch_model.bin")
        _, message = self.trifold("convert", "--load", "model", "--save", "x", status=2)
        self.assertIn("holds pytorch_model.bin", message)
        self.assertIn("from transformers import GPT2LMHeadModel as Model", message)
        self.assertIn('Model.from_pretrained("model").save_pretrained("model", safe_serialization=True)', message)
        self.assertFalse((self.folder / "x").exists())

    def elements(self, checkpoint):
        out, _ = self.trifold("inspect", checkpoint)
        return int(next(line for line in out.splitlines() if line.startswith("param: ")).split()[3])


if __name__ == "__main__":
    unittest.main()
