"""Long samples from the command line: a curriculum of lengths, losses by position, activations that leave memory."""

import csv
import json
import re
import unittest

from program import GOLDEN, ProgramTest

ROPE = ["--position-embedding-type", "rope", "--normalization", "RMSNorm", "--swiglu", "--disable-bias-linear"]


class Length(ProgramTest):
    def table(self, name):
        with open(self.folder / name, encoding="utf-8") as file:
            return [(int(row["position"]), float(row["tokens"]), float(row["loss"])) for row in csv.DictReader(file)]

    def test_a_stage_of_a_curriculum_has_its_own_length_and_rotary_base(self):
        self.pretrain(*ROPE, "--train-iters", 4, "--save", "short")
        stage = [*ROPE, "--load", "short", "--finetune", "--seq-length", 64, "--train-iters", 3]
        for base in (10000, 160000):
            self.pretrain(*stage, "--rotary-base", base, "--log-json", f"{base}.jsonl", "--save", f"long{base}")
        # The same weights and data, but other angles from the first step on.
        self.assertNotEqual(self.losses("10000.jsonl")[0], self.losses("160000.jsonl")[0])
        self.assertLess(abs(self.losses("10000.jsonl")[0] - self.losses("160000.jsonl")[0]), 0.1)
        # The checkpoint has the new base and length: it resumes with them alone, on context ranks as well.
        again = [*ROPE, "--load", "long160000", "--seq-length", 64, "--train-iters", 5]
        self.pretrain(*again, "--rotary-base", 160000, "--log-json", "one.jsonl")
        self.pretrain(*again, "--rotary-base", 160000, "--ranks", 2, "--cp", 2, "--log-json", "two.jsonl")
        for a, b in zip(self.losses("one.jsonl"), self.losses("two.jsonl"), strict=True):
            self.assertLess(abs(a - b), 1e-5 * a)
        _, text = self.pretrain(*again, status=2)
        self.assertIn("rotary_base", text)
        # Another base or length needs --finetune; another width is another model.
        for other in (["--rotary-base", 5], ["--seq-length", 64]):
            _, text = self.pretrain(*ROPE, "--load", "short", *other, "--train-iters", 6, status=2)
            self.assertIn(other[0][2:].replace("-", "_"), text)
            self.assertIn("pretrain --finetune begins a new run with its weights", text)
        _, text = self.pretrain(*ROPE, "--load", "short", "--hidden-size", 64, "--train-iters", 6, status=2)
        self.assertNotIn("--finetune", text)

    def test_losses_by_position_add_up_to_the_loss_on_every_mesh(self):
        self.pretrain(*ROPE, "--train-iters", 4, "--save", "model")
        evaluate = ["evaluate", "--load", "model", "--data-path", "text", "--split", "0,100,0", "--threads-per-rank", 1]
        (self.folder / "text").write_text("Some words, and some words again. " * 40)
        tables = {}
        for name, mesh in {"one": [], "context": ["--ranks", 4, "--cp", 4], "tensor": ["--ranks", 2, "--tp", 2],
                           "row": ["--ranks", 2, "--pp", 2], "data": ["--ranks", 2, "--micro-batch-size", 3]}.items():
            self.trifold(*evaluate, *mesh, "--loss-by-position", name, "--log-json", name + ".jsonl")
            tables[name] = self.table(name)
            self.assertEqual([row[0] for row in tables[name]], list(range(32)))
            tokens = sum(row[1] for row in tables[name])
            mean = sum(row[1] * row[2] for row in tables[name]) / tokens
            result = self.log(name + ".jsonl")[-1]
            loss = next(value for key, value in result.items() if key.endswith("loss"))
            self.assertLess(abs(mean - loss), 2e-6 * loss, name)
            for a, b in zip(tables["one"], tables[name], strict=True):
                self.assertEqual(a[:2], b[:2])
                self.assertLess(abs(a[2] - b[2]), 1e-5, name)
        # Longer than in training: what is at the first positions sees the same.
        text, _ = self.trifold(*evaluate, "--seq-length", 64, "--loss-by-position", "long")
        self.assertEqual(len(self.table("long")), 64)
        self.assertRegex(text, r"loss by position\n +0-0 +\d.*\n +1-1 +\d[^$]*\n +32-63 +\d")

    def test_documents_on_context_ranks_tell_their_balance(self):
        (self.folder / "text.jsonl").write_text("".join(json.dumps({"text": "word " * (1 + i % 7)}) + "\n" for i in range(60)))
        run = ["--train-iters", 1, "--ranks", 2, "--cp", 2, "--tokenizer-type", "huggingface", "--tokenizer-model",
               GOLDEN / "hf_tokenizers" / "gpt2.json"]
        documents = ["--reset-attention-mask", "--reset-position-ids", "--eod-mask-loss"]
        _, text = self.pretrain(*run, *documents, data="text.jsonl")
        ratio = re.search(r"documents   the busiest context rank has (\d\.\d\d) times the mean number of query-key pairs", text)
        self.assertTrue(ratio, text)
        self.assertGreaterEqual(float(ratio[1]), 1)
        _, text = self.pretrain(*run, data="text.jsonl")
        self.assertNotIn("the busiest context rank", text)

    def test_learned_positions_have_an_end(self):
        self.pretrain("--train-iters", 1, "--save", "learned")
        _, text = self.trifold("evaluate", "--load", "learned", "--data-path", "text", "--seq-length", 33, status=2)
        self.assertIn("--seq-length 33 is more than the model's 32 learned positions", text)

    def test_activations_in_a_file_change_nothing(self):
        self.pretrain("--train-iters", 3, "--log-json", "kept.jsonl")
        self.pretrain("--train-iters", 3, "--log-json", "left.jsonl", "--cpu-offloading-num-layers", 2, "--cpu-offloading-folder", ".")
        self.assertEqual(self.losses("kept.jsonl"), self.losses("left.jsonl"))
        shape = ["plan", "--num-layers", 4, "--hidden-size", 64, "--num-attention-heads", 2, "--seq-length", 256,
                 "--micro-batch-size", 1, "--global-batch-size", 4, "--vocab-size", 100, "--ranks", 2, "--pp", 2]
        leave = ["--cpu-offloading-num-layers", 2, "--cpu-offloading-folder", "."]
        text, _ = self.trifold(*shape, *leave, "--schedule-csv", "plan.csv", "--svg", "plan.svg")
        self.assertIn("off-load    activations of a rank, to files and back in a step", text)
        plan = (self.folder / "plan.csv").read_text()
        self.assertIn("0OFFLOAD0@1,", plan)
        self.assertIn("0FETCH0@1,", plan)
        self.assertIn("off-load</text>", (self.folder / "plan.svg").read_text())
        # What was written is a schedule, with the same off-loading.
        again, _ = self.trifold(*shape, *leave, "--schedule", "plan.csv")

        def of_memory(plan):
            return plan[plan.index("memory "):plan.index("\nrehearse ")]

        self.assertEqual(of_memory(text), of_memory(again))
        _, text = self.trifold(*shape, "--schedule", "plan.csv", status=2)
        self.assertIn("moves activations, which needs --cpu-offloading-num-layers", text)

    def test_mistakes_are_reported(self):
        for arguments, part in (
                (["--cpu-offloading-num-layers", 2], "--cpu-offloading-num-layers 2 needs --cpu-offloading-folder DIR"),
                (["--cpu-offloading-folder", "."], "has no effect without --cpu-offloading-num-layers"),
                (["--cpu-offloading-num-layers", 3, "--cpu-offloading-folder", "."], "is more than --num-layers 2"),
                (["--cpu-offloading-num-layers", 2, "--cpu-offloading-folder", ".", "--ranks", 2, "--pp", 2],
                 "is more than the layers of the largest stage: give at most 1"),
                (["--cpu-offloading-num-layers", 1, "--cpu-offloading-folder", ".", "--device", "cuda"],
                 "has no effect with --device cuda, because the activations of a device go to host memory"),
                (["--cpu-offloading-num-layers", 1, "--cpu-offloading-folder", "nowhere"], "nowhere: no file can be created")):
            _, text = self.pretrain("--train-iters", 1, *arguments, status=2)
            self.assertIn(part, text)
        _, text = self.trifold("plan", "--num-layers", 4, "--hidden-size", 64, "--num-attention-heads", 2, "--seq-length", 256,
                               "--global-batch-size", 4, "--vocab-size", 100, "--ranks", 2, "--search",
                               "--cpu-offloading-num-layers", 1, "--cpu-offloading-folder", ".", status=2)
        self.assertIn("which the search does not count", text)


if __name__ == "__main__":
    unittest.main()
