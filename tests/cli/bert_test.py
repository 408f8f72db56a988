"""BERT from the command line: it learns, continues in a second phase with longer samples, and rejects options that do
not apply."""

import unittest

from program import TEXT, ProgramTest

BERT = ["--model-type", "bert", "--lr", "3e-3", "--micro-batch-size", 4, "--global-batch-size", 16]


class Bert(ProgramTest):
    def bert(self, *arguments, **options):
        return self.pretrain(*BERT, *arguments, **options)

    def test_the_loss_falls_and_is_that_of_one_rank_on_any_mesh(self):
        meshes = {"one": [], "many": ["--ranks", 4, "--tp", 2, "--sequence-parallel", "--zero-stage", 2],
                  "row": ["--ranks", 2, "--pp", 2]}
        logs = {}
        for name, mesh in meshes.items():
            self.bert("--train-iters", 40, "--log-json", name + ".jsonl", "--eval-interval", 40, "--eval-iters", 2, *mesh)
            logs[name] = self.log(name + ".jsonl")
        losses = [line["loss"] for line in logs["one"] if "loss" in line]
        self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))
        tokens = [line["tokens"] for line in logs["one"] if "loss" in line]
        self.assertLess(sum(tokens), 0.98 * 40 * 16 * 32, "padding does not count")
        for one, many, row in zip(*logs.values()):
            for key in ("loss", "valid_loss"):
                if key in one:
                    self.assertLess(abs(one[key] - many[key]), 2e-4 * one[key])
                    self.assertEqual(one[key], row[key])
            if "loss" in one:
                self.assertEqual(one["tokens"], many["tokens"])

    def test_second_phase_takes_longer_samples_and_a_new_schedule(self):
        phase1 = ["--max-position-embeddings", 64, "--optimizer", "lamb", "--lr-decay-style", "polynomial",
                  "--whole-word-masking", "--split-sentences"]
        self.bert("--train-iters", 30, "--save", "one", "--log-json", "one.jsonl", *phase1)
        phase2 = [*phase1, "--seq-length", 64, "--global-batch-size", 8, "--lr", "1e-3"]
        plain = [word for word in BERT if word not in ("--lr", "3e-3", "--global-batch-size", 16)]
        self.pretrain(*plain, *phase2, "--train-iters", 10, "--load", "one", "--finetune", "--save", "two", "--log-json",
                      "two.jsonl")
        one, two = self.log("one.jsonl"), self.log("two.jsonl")
        self.assertEqual([two[0]["step"], two[0]["consumed_samples"], two[0]["lr"]], [1, 8, 1e-3])
        self.assertLess(two[0]["loss"], one[0]["loss"] - 0.15)  # it starts from what the first has learned
        # A stopped run resumes bit by bit.
        self.pretrain(*plain, *phase2, "--train-iters", 14, "--lr-decay-iters", 14, "--load", "one", "--finetune",
                      "--log-json", "whole.jsonl")
        self.pretrain(*plain, *phase2, "--train-iters", 14, "--lr-decay-iters", 14, "--load", "one", "--finetune",
                      "--exit-interval", 7, "--save", "part", "--log-json", "parts.jsonl")
        self.pretrain(*plain, *phase2, "--train-iters", 14, "--lr-decay-iters", 14, "--load", "part", "--save", "part",
                      "--log-json", "parts.jsonl")
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))

    def test_evaluate_knows_bert_and_the_others_refuse_it(self):
        self.bert("--train-iters", 5, "--save", "d", "--bert-no-binary-head")
        values = []
        for ranks in (1, 2):
            self.trifold("evaluate", "--load", "d", "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4 // ranks,
                         "--ranks", ranks, "--log-json", f"{ranks}.jsonl")
            values.append(self.log(f"{ranks}.jsonl")[0]["valid_loss"])
        self.assertLess(abs(values[0] - values[1]), 1e-5 * values[0])
        _, message = self.trifold("generate", "--load", "d", status=2)
        self.assertIn("is a BERT, which predicts masked tokens", message)
        _, message = self.bert("--train-iters", 5, "--num-experts", 2, "--vocab-size", 300, status=2)
        self.assertIn("--num-experts 2 is not possible with --model-type bert: leave it out", message)
        _, message = self.pretrain("--train-iters", 5, "--mask-prob", 0.2, status=2)
        self.assertIn("--mask-prob 0.2 has no effect with --model-type gpt: it needs --model-type bert", message)


if __name__ == "__main__":
    unittest.main()
