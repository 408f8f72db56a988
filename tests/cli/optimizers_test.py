"""Update rules of matrices, factors by parameter, moments in 16 bits and averages of weights, from the user's view."""

import json
import unittest

from program import TEXT, ProgramTest


class Optimizers(ProgramTest):
    MUON = ("--optimizer", "muon", "--lr", "5e-3")

    def losses(self, name):
        return {line["step"]: line["loss"] for line in self.log(name) if "loss" in line}

    def valid_loss(self, *arguments):
        self.trifold("evaluate", "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4, "--log-json", "eval.jsonl", *arguments)
        return self.log("eval.jsonl")[-1]["valid_loss"]

    def test_a_run_with_muon_moves_to_another_mesh(self):
        self.pretrain(*self.MUON, "--train-iters", 8, "--log-json", "whole.jsonl", "--ranks", 2)
        self.pretrain(*self.MUON, "--train-iters", 4, "--ranks", 2, "--zero-stage", 1, "--save", "half")
        out, _ = self.trifold("inspect", "half")
        for name in ("muon_momentum/block.0.attention.qkv.weight", "adam_v/embedding.tokens.weight", "adam_m/final_norm.gain"):
            self.assertIn(name, out)
        for name in ("muon_momentum/embedding.tokens.weight", "adam_m/block.0.attention.qkv.weight"):
            self.assertNotIn(name, out)
        self.trifold("reshard", "--load", "half", "--save", "one")
        self.pretrain(*self.MUON, "--train-iters", 8, "--load", "one", "--log-json", "rest.jsonl")
        whole, rest = self.losses("whole.jsonl"), self.losses("rest.jsonl")
        self.assertEqual(sorted(rest), [5, 6, 7, 8])
        for step, loss in rest.items():
            self.assertAlmostEqual(loss, whole[step], delta=1e-4 * whole[step])

    def test_state_of_another_rule_is_an_error(self):
        self.pretrain("--train-iters", 2, "--save", "adam")
        _, err = self.pretrain(*self.MUON, "--train-iters", 4, "--load", "adam", status=2)
        self.assertIn("muon_momentum/", err)
        self.pretrain(*self.MUON, "--train-iters", 4, "--load", "adam", "--no-load-optim")

    def test_a_plan_counts_matrices(self):
        words = ("plan", "--num-layers", 2, "--hidden-size", 64, "--num-attention-heads", 2, "--seq-length", 32,
                 "--micro-batch-size", 2, "--vocab-size", 256)
        plans = []
        for name, more in (("adam", ()), ("muon", ("--optimizer", "muon"))):
            self.trifold(*words, *more, "--json", name)
            plans.append(json.loads((self.folder / name).read_text()))
        adam, muon = plans
        self.assertLess(muon["pipeline_ranks"][0]["optimizer_bytes"], adam["pipeline_ranks"][0]["optimizer_bytes"])
        self.assertGreater(muon["step_seconds"], adam["step_seconds"])

    def test_factors_report_what_they_match(self):
        _, err = self.pretrain("--train-iters", 2, "--save", "d", "--lr-mult", "*.bias=2", "block.0.*=0.5", "--wd-mult", "embedding.*=0")
        self.assertIn("parameters  --lr-mult *.bias=2: 13 parameters, the first block.0.attention.out.bias", err)
        self.assertIn("parameters  --wd-mult embedding.*=0: 2 parameters, the first embedding.positions.weight", err)
        _, err = self.pretrain("--train-iters", 4, "--load", "d", "--lr-mult", "*.bias=2")
        self.assertIn("--lr-mult", "".join(line for line in err.splitlines() if line.startswith("changed")))
        _, err = self.pretrain("--train-iters", 2, "--save", "none", "--lr-mult", "*.bais=2", status=2)
        self.assertIn("--lr-mult *.bais=2 matches no parameter of the model; it has names such as", err)
        self.assertFalse((self.folder / "none").exists())
        _, err = self.pretrain("--train-iters", 2, "--lr-mult", "*.bias", status=2)
        self.assertIn("give a pattern of names of parameters and a factor", err)

    def test_moments_in_16_bits(self):
        self.pretrain("--train-iters", 4, "--log-json", "f32.jsonl")
        moments = ("--exp-avg-dtype", "bf16", "--exp-avg-sq-dtype", "bf16")
        self.pretrain(*moments, "--train-iters", 4, "--log-json", "bf16.jsonl", "--save", "d")
        out, _ = self.trifold("inspect", "d")
        moment = next(line for line in out.splitlines() if "adam_v/final_norm.gain" in line)
        self.assertIn("bf16", moment)
        for step, loss in self.losses("f32.jsonl").items():
            self.assertAlmostEqual(self.losses("bf16.jsonl")[step], loss, delta=1e-3 * loss)
        # Resharding keeps the types.
        self.trifold("reshard", "--load", "d", "--save", "two", "--ranks", 2, "--zero-stage", 1)
        out, _ = self.trifold("inspect", "two", "--diff", "d")
        self.assertIn("are bitwise equal", out)

    def test_averages_are_evaluated_and_converted(self):
        self.pretrain("--train-iters", 6, "--ema", 0.5, "--save", "d", "--tokenizer-type", "byte")
        weights, averages = self.valid_loss("--load", "d"), self.valid_loss("--load", "d", "--load-ema")
        self.assertNotEqual(weights, averages)
        self.assertAlmostEqual(weights, averages, delta=0.05 * weights)
        self.trifold("convert", "--load", "d", "--load-ema", "--save", "model")
        self.assertAlmostEqual(self.valid_loss("--load", "model"), averages, delta=1e-5)
        self.trifold("generate", "--load", "d", "--load-ema", "--prompt", "a", "--max-new-tokens", 2)
        self.pretrain("--train-iters", 2, "--save", "none")
        _, err = self.trifold("evaluate", "--load", "none", "--load-ema", "--data-path", TEXT, "--split", "90,10,0", status=2)
        self.assertIn("has no exponential average of the weights", err)
        _, err = self.pretrain("--train-iters", 4, "--ema", 0.5, "--load", "none")
        self.assertIn("--ema: the average of the weights begins with the weights of", err)


if __name__ == "__main__":
    unittest.main()
