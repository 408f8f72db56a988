"""What changes over a run or with the width: growing batches, weight decay, mixtures of data, and muP."""

import json
import unittest

from program import ProgramTest

RAMP = ["--rampup-batch-size", 4, 4, 60, "--global-batch-size", 12, "--train-samples", 150]


class Scaling(ProgramTest):
    def test_a_batch_that_grows(self):
        lr = ["--lr-decay-style", "cosine", "--lr-warmup-samples", 12, "--weight-decay-incr-style", "linear",
              "--start-weight-decay", 0, "--end-weight-decay", 0.4]
        _, err = self.pretrain(*RAMP, *lr, "--log-json", "one.jsonl")
        self.assertIn("--train-samples 150 is --train-iters 19 with batches of 4 to 12 samples", err)
        self.assertIn("batch       4 in steps 1 to 8", err)
        self.assertIn("batch       8 in steps 9 to 12", err)
        self.assertIn("batch       12 in steps 13 to 19", err)
        log = self.log("one.jsonl")
        sizes = [4] * 8 + [8] * 4 + [12] * 7
        self.assertEqual([line["consumed_samples"] for line in log], [sum(sizes[:i + 1]) for i in range(19)])
        self.assertEqual([line["tokens"] for line in log], [32 * size for size in sizes])
        for line, size in zip(log, sizes):
            before = line["consumed_samples"] - size
            self.assertAlmostEqual(line["weight_decay"], 0.4 * before / sum(sizes), 12)
        self.assertEqual(log[0]["lr"], 0)
        self.assertAlmostEqual(log[3]["lr"], 1e-3, 12)
        # Stopped inside the ramp, and continued on two ranks.
        self.pretrain(*RAMP, *lr, "--log-json", "parts.jsonl", "--save", "d", "--exit-interval", 10)
        self.pretrain(*RAMP, *lr, "--log-json", "parts.jsonl", "--save", "d", "--load", "d")
        self.assertEqual(self.losses("one.jsonl"), self.losses("parts.jsonl"))
        self.pretrain(*RAMP, *lr, "--log-json", "two.jsonl", "--ranks", 2)
        for a, b in zip(self.losses("one.jsonl"), self.losses("two.jsonl"), strict=True):
            self.assertLess(abs(a - b), 1e-4 * a)
        # Without the ramp, the checkpoint has consumed too few samples for its steps.
        _, err = self.pretrain("--global-batch-size", 12, "--train-iters", 30, "--load", "d", status=2)
        self.assertIn("resume with the --rampup-batch-size of its run", err)

    def test_sizes_that_ranks_cannot_share_are_listed(self):
        run = [*RAMP[4:], "--ranks", 4, "--micro-batch-size", 1]
        _, err = self.pretrain(*run, "--rampup-batch-size", 2, 2, 60, status=2)
        self.assertIn("2, 6, 10 of the sizes 2, 4, 6, 8, 10, 12 are not divisible by --micro-batch-size 1 x data parallel "
                      "size 4 = 4: give a START and an INCREMENT that are multiples of 4", err)
        _, err = self.pretrain(*run, "--rampup-batch-size", 4, 4, status=2)
        self.assertIn("give three: START INCREMENT SAMPLES", err)

    def test_a_plan_has_every_size(self):
        model = ("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 500 "
                 "--micro-batch-size 2 --ranks 4 --pp 2").split()
        out, _ = self.trifold("plan", *model, "--schedule", "gpipe", "--rampup-batch-size", 8, 8, 1000, "--global-batch-size",
                              32, "--json", "plan.json")
        sizes = json.loads((self.folder / "plan.json").read_text())["batch_sizes"]
        self.assertEqual([size["samples"] for size in sizes], [8, 16, 24, 32])
        self.assertEqual([size["micro_batches"] for size in sizes], [2, 4, 6, 8])
        self.assertEqual([size.get("steps") for size in sizes], [42, 21, 14, None])
        self.assertEqual(sorted(size["bytes"] for size in sizes), [size["bytes"] for size in sizes])
        self.assertIn("batches     grow with --rampup-batch-size", out)
        # The largest decides whether the run fits.
        limit = sizes[-2]["bytes"] / 2**30
        _, err = self.trifold("plan", *model, "--schedule", "gpipe", "--rampup-batch-size", 8, 8, 1000,
                              "--global-batch-size", 32, "--memory-limit", limit, status=2)
        self.assertIn("--memory-limit", err)

    def mixture(self, *arguments, kind="txt", **options):
        return self.trifold(*"pretrain --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 "
                            "--micro-batch-size 2 --global-batch-size 4 --lr 1e-3 --lr-decay-style constant "
                            "--split 100,0,0 --threads-per-rank 1 --train-iters 20".split(),
                            "--data-path", f"web.{kind}", f"code.{kind}", *arguments, **options)

    def test_a_mixture_that_changes(self):
        for name, letters in (("web", "abcd "), ("code", "{}();")):
            (self.folder / f"{name}.txt").write_text("".join(letters[i * i % 5] for i in range(4000)))
        (self.folder / "mix.json").write_text('{"0": {"web": 3, "code": 1}, "640": {"code": 1}, "960": {"web": 1, "code": 1}}')
        self.mixture("--data-schedule", "mix.json", "--log-json", "one.jsonl")
        tokens = [line["source_tokens"] for line in self.log("one.jsonl")]
        # 64 tokens a step; points after 10 and 15 steps.
        self.assertEqual(tokens[9], {"web": 480, "code": 160})
        self.assertEqual(tokens[14]["web"], 480)
        self.assertEqual(tokens[14]["code"], 480)
        self.assertEqual(tokens[19], {"web": 640, "code": 640})
        # The same in a line of its own, on other ranks, and after a resume.
        line = (self.folder / "mix.json").read_text()
        self.mixture("--data-schedule", line, "--log-json", "inline.jsonl")
        self.mixture("--data-schedule", "mix.json", "--log-json", "parts.jsonl", "--save", "d", "--exit-interval", 12)
        self.mixture("--data-schedule", "mix.json", "--log-json", "parts.jsonl", "--load", "d")
        self.mixture("--data-schedule", "mix.json", "--log-json", "two.jsonl", "--ranks", 2)
        for name in ("inline.jsonl", "parts.jsonl"):
            self.assertEqual(self.losses("one.jsonl"), self.losses(name), name)
            self.assertEqual(tokens, [line["source_tokens"] for line in self.log(name)], name)
        for a, b in zip(self.losses("one.jsonl"), self.losses("two.jsonl"), strict=True):
            self.assertLess(abs(a - b), 1e-4 * a)
        # Other weights are other data.
        _, err = self.mixture("--data-schedule", line.replace("640", "320"), "--load", "d", status=2)
        self.assertIn("of --data-schedule", err)
        _, err = self.mixture("--data-schedule", '{"0": {"web": 1, "wiki": 1}}', status=2)
        self.assertIn("no path of --data-path is called 'wiki'", err)
        _, err = self.mixture("--data-schedule", "mix.json", "--train-epochs", 2, status=2)
        self.assertIn("because a changing blend has no single pass", err)

    def test_a_mixture_of_streamed_text_resumes(self):
        for name, letters in (("web", "abcd "), ("code", "{}();")):
            lines = ["".join(letters[(i * i + line) % 5] for i in range(200)) for line in range(60)]
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
        schedule = ["--data-schedule", '{"0": {"web": 1, "code": 1}, "1280": {"code": 1}, "between": "lines"}']
        self.mixture(*schedule, "--log-json", "one.jsonl", kind="jsonl")
        self.mixture(*schedule, "--log-json", "parts.jsonl", "--save", "d", "--exit-interval", 7, kind="jsonl")
        self.mixture(*schedule, "--log-json", "parts.jsonl", "--load", "d", kind="jsonl")
        self.assertEqual(self.losses("one.jsonl"), self.losses("parts.jsonl"))
        last = self.log("one.jsonl")[-1]["source_tokens"]
        self.assertEqual(sum(last.values()), 1280)
        self.assertLess(abs(last["web"] - 320), 33)

    def test_rates_are_transferred_to_another_width(self):
        _, err = self.pretrain("--mup-base-hidden-size", 8, "--mup-base-head-dim", 4, "--train-iters", 3, "--save", "d",
                               "--log-json", "wide.jsonl")
        self.assertIn("width       32 is 4 x 8; logits / 4; scores of attention x 0.125", err)
        self.assertIn("initial values x 0.5, rate x 0.25, weight decay x 4  (all other matrices)", err)
        out, _ = self.trifold(*"plan --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --vocab-size 256 "
                              "--micro-batch-size 2 --mup-base-hidden-size 8 --json p.json".split())
        self.assertIn("width       32 is 4 x 8", out)
        self.assertEqual(len(json.loads((self.folder / "p.json").read_text())["width_rules"]), 4)
        # Another base width is another model.
        _, err = self.pretrain("--load", "d", "--train-iters", 5, status=2)
        self.assertIn("mup_base_hidden_size", err)


if __name__ == "__main__":
    unittest.main()
