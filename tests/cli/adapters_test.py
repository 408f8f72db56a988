"""Low-rank adapters of the command line: training on a checkpoint, resuming, peft's files, merging, refusals."""

import json
import unittest

from program import TEXT, ProgramTest

LORA = ("--lora-rank", 4, "--lora-alpha", 8, "--lora-targets", "qkv", "attention.out", "mlp.up", "mlp.down")


class Adapters(ProgramTest):
    def loss(self, model):
        self.trifold("evaluate", "--load", model, "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4,
                     "--log-json", f"{model}.jsonl")
        return json.loads((self.folder / f"{model}.jsonl").read_text())["valid_loss"]

    def test_train_resume_convert(self):
        self.pretrain("--train-iters", 20, "--save", "base")
        base = {path: (self.folder / path).read_bytes() for path in self.files() if path.endswith((".h5", ".json"))}
        _, err = self.pretrain("--load", "base", *LORA, "--ranks", 2, "--train-iters", 8, "--lr", 0.01, "--log-interval", 1,
                               "--log-json", "whole.jsonl")
        self.assertIn("the frozen weights were taken from base", err)
        self.pretrain("--load", "base", *LORA, "--ranks", 2, "--train-iters", 4, "--lr", 0.01, "--save", "run")
        # On another mesh within rounding; on the same one bit for bit.
        self.pretrain("--load", "run", *LORA, "--ranks", 2, "--train-iters", 8, "--lr", 0.01, "--log-interval", 1,
                      "--log-json", "rest.jsonl", "--save", "run")
        self.assertEqual(self.losses("rest.jsonl"), self.losses("whole.jsonl")[4:])
        for path, content in base.items():
            self.assertEqual((self.folder / path).read_bytes(), content, path)
        out, _ = self.trifold("inspect", "run")
        self.assertIn("lora_a", out)
        manifest = json.loads((self.folder / "run/step_0000000008/manifest.json").read_text())
        self.assertTrue(all(".lora_" in tensor["name"] for tensor in manifest["tensors"]))
        self.assertTrue(manifest["state"]["frozen_weights"]["path"].endswith("/base/step_0000000020"))
        self.trifold("inspect", "run", "--verify")

        self.trifold("generate", "--load", "run", "--max-new-tokens", 4)
        out, _ = self.trifold("convert", "--load", "run", "--save", "peft")
        self.assertIn("16 tensors", out)
        config = json.loads((self.folder / "peft" / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["fan_in_fan_out"]), (4, 8.0, True))
        self.assertIn("transformer.h.0.attn.c_attn", config["target_modules"])
        self.trifold("convert", "--load", "run", "--save", "merged", "--merge-adapters")
        self.trifold("convert", "--load", "peft", "--save", "imported")
        loss = self.loss("run")
        self.assertLess(loss, self.loss("base"))
        for model in ("merged", "peft", "imported"):
            self.assertAlmostEqual(self.loss(model), loss, places=5, msg=model)
        self.trifold("reshard", "--load", "run", "--save", "cut", "--tp", 2, "--ranks", 2)
        self.assertEqual(self.loss("cut"), loss)
        # Adapters of a checkpoint are trained further with a new optimizer; a second run shares the frozen weights.
        self.pretrain("--load", "imported", *LORA, "--finetune", "--train-iters", 2, "--save", "further")
        self.assertAlmostEqual(self.loss("further"), loss, places=2)

    def test_quantized_base(self):
        self.pretrain("--train-iters", 20, "--save", "base")
        losses = {}
        for kind in ("none", "int8", "nf4"):
            options = (*LORA, "--quantize-base", kind, "--lr", 0.01, "--log-interval", 1, "--ranks", 2,
                       "--tensor-model-parallel-size", 2)
            self.pretrain("--load", "base", *options, "--train-iters", 6, "--log-json", f"{kind}_whole.jsonl")
            self.pretrain("--load", "base", *options, "--train-iters", 3, "--save", kind)
            self.pretrain("--load", kind, *options, "--train-iters", 6, "--save", kind, "--log-json", f"{kind}_rest.jsonl")
            losses[kind] = self.losses(f"{kind}_whole.jsonl")
            self.assertEqual(self.losses(f"{kind}_rest.jsonl"), losses[kind][3:])
            self.assertAlmostEqual(losses[kind][0], losses["none"][0], delta=0.05)
            # The model into which they are merged computes the same as the adapters.
            self.trifold("convert", "--load", kind, "--save", f"{kind}_merged", "--merge-adapters")
            self.assertAlmostEqual(self.loss(f"{kind}_merged"), self.loss(kind), places=5)
            self.trifold("generate", "--load", kind, "--max-new-tokens", 4)
            _, err = self.trifold("convert", "--load", kind, "--save", f"{kind}_peft")
            self.assertEqual(f"frozen weights in {kind}" in err, kind != "none")
        self.assertEqual(len({tuple(run) for run in losses.values()}), 3)
        _, err = self.pretrain("--load", "nf4", *LORA, "--train-iters", 9, status=2)
        self.assertIn("quantize_base", err)
        _, err = self.pretrain("--train-iters", 9, "--quantize-base", "nf4", status=2)
        self.assertIn("--quantize-base nf4 has no effect", err)
        _, err = self.pretrain("--load", "base", *LORA, "--train-iters", 9, "--quantize-base", "fp4", status=2)
        self.assertIn("nf4", err)

    def test_products_in_8_bits(self):
        """With scales of blocks adapters have the same bits on one rank, on two stages, and if activations are computed again."""
        blocks = ("--num-layers", 4, "--hidden-size", 128, "--num-attention-heads", 4, "--seq-length", 128, "--micro-batch-size", 1,
                  "--global-batch-size", 4, "--bf16", "--fp8", "--fp8-recipe", "blockwise", "--log-interval", 1, "--train-iters", 3)
        self.pretrain(*blocks, "--save", "base")
        for targets in ((), ("--lora-targets", "mlp.down"), ("--lora-targets", "block.2.mlp.up")):
            curves = []
            for mesh in ((), ("--ranks", 2, "--pp", 2, "--schedule", "zb-h1", "--recompute-granularity", "selective")):
                name = f"{'_'.join(targets[1:])}_{len(curves)}.jsonl"
                self.pretrain(*blocks, "--load", "base", "--finetune", "--lora-rank", 4, *targets, *mesh, "--log-json", name)
                curves.append(self.losses(name))
            self.assertEqual(len(curves[0]), 3)
            self.assertEqual(curves[0], curves[1], targets)

    def test_folders_while_training(self):
        self.pretrain("--train-iters", 2, "--save", "base")
        self.pretrain("--load", "base", *LORA, "--train-iters", 2, "--save-hf", "folders", "--save-hf-interval", 2)
        self.assertIn("folders/hf_iter_0000002/adapter_model.safetensors", self.files())
        _, err = self.pretrain("--load", "base", "--lora-rank", 4, "--train-iters", 2, "--save-hf", "others",
                               "--save-hf-interval", 2, status=2)
        self.assertIn("block.0.attention.query has an adapter of its own, but transformers has one layer", err)

    def test_a_base_with_files_of_its_own(self):
        """Folders of transformers have more than weights; adapters on them are read by every command."""
        self.pretrain("--train-iters", 20, "--save", "base")
        self.trifold("convert", "--load", "base", "--save", "model")
        (self.folder / "model" / "generation_config.json").write_text('{"eos_token_id": 5}')
        self.pretrain("--load", "model", *LORA, "--train-iters", 4, "--lr", 0.01, "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "peft")
        self.trifold("generate", "--load", "peft", "--max-new-tokens", 4)
        loss = self.loss("run")
        self.assertAlmostEqual(self.loss("peft"), loss, places=5)
        out, _ = self.trifold("convert", "--load", "peft", "--save", "merged", "--merge-adapters")
        self.assertIn("peft -> merged", out)
        self.assertIn("merged/generation_config.json", self.files())
        self.assertAlmostEqual(self.loss("merged"), loss, places=5)

    def test_averages(self):
        self.pretrain("--train-iters", 4, "--save", "base")
        self.pretrain("--load", "base", *LORA, "--train-iters", 6, "--ema", 0.5, "--save", "run")
        self.trifold("convert", "--load", "run", "--load-ema", "--save", "merged", "--merge-adapters")
        self.trifold("generate", "--load", "run", "--load-ema", "--max-new-tokens", 4)
        (self.folder / "texts.jsonl").write_text('{"text": "What is read"}\n')
        for file, which in ("weights.jsonl", ()), ("averages.jsonl", ("--load-ema",)):
            self.trifold("evaluate", "--load", "run", "--task", "texts.jsonl", "--log-likelihoods", file, *which)
        self.assertNotEqual(*((self.folder / file).read_text() for file in ("weights.jsonl", "averages.jsonl")))

    def test_a_folder_that_names_itself(self):
        (self.folder / "peft").mkdir()
        (self.folder / "peft" / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "lora_dropout": None, "target_modules": ["q"],
             "base_model_name_or_path": str(self.folder / "peft")}))
        _, err = self.trifold("generate", "--load", "peft", status=2)
        self.assertIn("has adapters already", err)

    def test_refusals(self):
        self.pretrain("--train-iters", 2, "--save", "base")
        self.pretrain("--load", "base", *LORA, "--train-iters", 2, "--save", "run")
        for arguments, part in (
                (("--lora-rank", 4), "--lora-rank 4 freezes the weights of a trained model"),
                (("--load", "base", "--lora-rank", 4, "--lora-targets", "router"), "--lora-targets router names no linear layer"),
                (("--load", "base", "--lora-rank", 4, "--lora-targets", "qkv", "query"), "name the same weight"),
                (("--load", "base", "--lora-rank", 4, "--tiled-mlp", 2), "--lora-rank 4 is not possible with --tiled-mlp 2"),
                (("--load", "run",), "lora_rank"),
                (("--load", "run", "--finetune"), "has low-rank adapters of rank 4"),
                (("--load", "run", "--lora-rank", 8), "lora_rank")):
            _, err = self.pretrain("--train-iters", 4, *arguments, status=2)
            self.assertIn(part, err)
        _, err = self.trifold("convert", "--load", "base", "--save", "x", "--merge-adapters", status=2)
        self.assertIn("base has no low-rank adapters", err)
        (self.folder / "base").rename(self.folder / "moved")
        _, err = self.trifold("evaluate", "--load", "run", "--data-path", TEXT, status=2)
        self.assertIn("which does not exist here", err)


if __name__ == "__main__":
    unittest.main()
