"""Runs on pipeline and tensor meshes from the command line: the same numbers, and compatible files."""

import unittest

from program import TEXT, ProgramTest

EVALUATION = ["--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4]


def mesh(pp=1, tp=1, dp=1, schedule=None):
    options = ["--ranks", pp * tp * dp, "--pipeline-model-parallel-size", pp, "--tensor-model-parallel-size", tp]
    return options + (["--schedule", schedule] if schedule else [])


class Pipeline(ProgramTest):
    def train(self, *arguments, **options):
        return self.pretrain("--num-layers", 5, "--global-batch-size", 8, *arguments, **options)

    def valid(self, name):
        return [line["valid_loss"] for line in self.log(name) if "valid_loss" in line]

    def test_one_curve_on_every_mesh(self):
        common = ["--train-iters", 6, "--eval-interval", 3, "--eval-iters", 2, "--hidden-dropout", 0.1, "--f64"]
        self.train(*common, "--log-json", "one.jsonl")
        one = self.losses("one.jsonl"), self.valid("one.jsonl")
        self.assertEqual((len(one[0]), len(one[1])), (6, 2))
        for number, place in enumerate([mesh(pp=2), mesh(pp=4, schedule="zb-h1"), mesh(pp=2, schedule="zb-v")]):
            self.train(*common, *place, "--log-json", f"{number}.jsonl")
            self.assertEqual((self.losses(f"{number}.jsonl"), self.valid(f"{number}.jsonl")), one)
        self.train(*common, *mesh(pp=2, tp=2, dp=2), "--sequence-parallel", "--log-json", "cut.jsonl")
        for seen, expected in zip(self.losses("cut.jsonl") + self.valid("cut.jsonl"), one[0] + one[1]):
            self.assertLess(abs(seen - expected), 1e-11 * expected)

    def test_the_cut_is_reported(self):
        _, message = self.train("--train-iters", 1, *mesh(pp=3))
        self.assertIn("stages      3, 1 a rank", message)
        self.assertRegex(message, r"\n +0  rank 0: embedding, layers? 1.* parameters .*% of the cost\n")
        self.assertRegex(message, r"\n +2  rank 2: layer.*5, head .* parameters")
        self.assertRegex(message, r"\nmemory      .* on pipeline rank \d, .* on rank \d: parameters")
        _, message = self.train("--train-iters", 1)
        self.assertNotIn("stages      ", message)

    def test_one_curve_on_every_cut(self):
        common = ["--train-iters", 4, "--hidden-dropout", 0.1, "--f64"]
        self.train(*common, "--log-json", "one.jsonl", "--save", "one")
        cuts = ([*mesh(pp=4), "--pipeline-model-parallel-layout", "E|ttt|tt|L"],  # stages without a layer
                [*mesh(pp=3), "--decoder-first-pipeline-num-layers", 1, "--decoder-last-pipeline-num-layers", 1],
                [*mesh(pp=2), "--pipeline-cut", "even"],
                # 5 layers on 2 x 3 places: more than layers, with the head counted as one
                [*mesh(pp=2, schedule="interleaved"), "--num-virtual-stages-per-pipeline-rank", 3,
                 "--account-for-loss-in-pipeline-split"])
        for number, cut in enumerate(cuts):
            _, message = self.train(*common, *cut, "--log-json", f"{number}.jsonl", "--save", f"cut{number}")
            self.assertEqual(self.losses(f"{number}.jsonl"), self.losses("one.jsonl"), cut)
            out, _ = self.trifold("inspect", "one", "--diff", f"cut{number}")
            self.assertIn("are bitwise equal", out)
        self.assertIn("5  rank 1: head", message)

    def test_a_checkpoint_loads_on_every_cut(self):
        common = ["--train-iters", 8]
        self.train(*common, "--log-json", "whole.jsonl")
        self.train(*common, *mesh(pp=4), "--pipeline-model-parallel-layout", "E|ttt|tt|L", "--exit-interval", 4,
                   "--log-json", "parts.jsonl", "--save", "parts")
        _, message = self.train(*common, *mesh(pp=2), "--decoder-first-pipeline-num-layers", 4,
                                "--log-json", "parts.jsonl", "--load", "parts", "--save", "parts")
        self.assertNotIn("changed", message)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))

    def test_resume_on_another_mesh(self):
        common = ["--train-iters", 8, "--lr-decay-style", "linear"]
        self.train(*common, "--log-json", "whole.jsonl", "--save", "whole")
        self.train(*common, *mesh(pp=4), "--exit-interval", 4, "--log-json", "parts.jsonl", "--save", "parts")
        _, message = self.train(*common, *mesh(pp=2, schedule="interleaved"),
                                "--num-virtual-stages-per-pipeline-rank", 2, "--log-json", "parts.jsonl",
                                "--load", "parts", "--save", "parts")
        self.assertNotIn("changed", message)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))
        out, _ = self.trifold("inspect", "whole", "--diff", "parts")
        self.assertIn("are bitwise equal", out)

    def test_evaluate_and_generate_read_checkpoints_of_a_pipeline(self):
        self.train("--train-iters", 4, *mesh(pp=2, tp=2), "--save", "d")
        values = []
        for number, place in enumerate([mesh(), mesh(pp=2), mesh(pp=3), mesh(tp=2)]):
            self.trifold("evaluate", "--load", "d", *EVALUATION, *place, "--log-json", f"{number}.jsonl")
            values += self.valid(f"{number}.jsonl")
        self.assertEqual(values[0:2], values[1:3])  # the pipeline changes no bit
        self.assertLess(abs(values[3] - values[0]), 2e-5 * values[0])
        out, _ = self.trifold("generate", "--load", "d", "--prompt", "KING", "--max-new-tokens", 8)
        self.assertTrue(out.startswith("KING"))

    def test_evaluation_cuts_its_last_batch_as_the_others(self):
        self.pretrain("--train-iters", 1, "--seq-length", 31, "--save", "d")
        evaluate = ["evaluate", "--load", "d", *EVALUATION, "--micro-batch-size"]
        _, message = self.trifold(*evaluate, 1, *mesh(tp=2), "--sequence-parallel", status=2)
        self.assertIn("31", message)
        self.assertIn("leave out --sequence-parallel", message)
        self.trifold(*evaluate, 2, "--log-json", "one.jsonl")
        self.trifold(*evaluate, 2, *mesh(tp=2), "--sequence-parallel", "--log-json", "two.jsonl")
        (one,), (two,) = self.valid("one.jsonl"), self.valid("two.jsonl")
        self.assertLess(abs(one - two), 2e-5 * one)

    def test_a_signal_saves_on_a_pipeline(self):
        self.assertIn("checkpoint", self.stop(*mesh(pp=2, tp=2), "--save", "d", "--log-json", "l.jsonl"))
        steps = len(self.losses("l.jsonl"))
        out, _ = self.trifold("inspect", "d", "--verify")
        self.assertRegex(out, rf"\b{steps}\b")
        self.pretrain("--train-iters", steps + 2, "--load", "d", "--log-json", "l.jsonl", *mesh(pp=2))
        self.assertEqual([line["step"] for line in self.log("l.jsonl")], list(range(1, steps + 3)))

    def test_an_asynchronous_run_stops_at_the_end_of_a_window(self):
        window = ["--async-window", 4, "--clip-grad", 0, *mesh(pp=2, schedule="pipedream")]
        self.stop("--save", "d", "--log-json", "parts.jsonl", *window)
        steps = len(self.losses("parts.jsonl"))
        self.assertEqual(steps % 4, 0)
        self.pretrain("--train-iters", steps + 8, "--load", "d", "--log-json", "parts.jsonl", *window)
        self.pretrain("--train-iters", steps + 8, "--log-json", "whole.jsonl", *window)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))

    def test_a_failure_of_one_rank_ends_all_and_is_reported_once(self):
        _, message = self.train("--train-iters", 5, *mesh(pp=4), "--log-json", "/dev/full", status=1)
        self.assertEqual(message.count("trifold: "), 1, message)
        self.assertIn("trifold: rank 0: --log-json /dev/full", message)

    def test_a_schedule_of_ones_own(self):
        (self.folder / "own.csv").write_text("0F1,0F0,,0F2,0B0,0B1,0F3,0B2,0B3\n1F1,1F0,1B0,1B1,1F2,1B2,1F3,1B3\n")
        self.train("--train-iters", 4, *mesh(pp=2, schedule="1f1b"), "--log-json", "known.jsonl")
        self.train("--train-iters", 4, *mesh(pp=2, schedule="own.csv"), "--log-json", "own.jsonl")
        for seen, expected in zip(self.losses("own.jsonl"), self.losses("known.jsonl")):
            self.assertLess(abs(seen - expected), 1e-5 * expected)  # forwards in another order: another sum
        for text, words in [("0F0,0B0\n1F0,1B0\n", ["micro-batch"]), ("0F0,0B0\n", ["own.csv", "1 row"]),
                            ("0F0,0Q0\n1F0,1B0\n", ["own.csv", "0Q0"])]:
            (self.folder / "own.csv").write_text(text)
            _, message = self.train("--train-iters", 4, *mesh(pp=2, schedule="own.csv"), status=2)
            for word in words:
                self.assertIn(word, message)


if __name__ == "__main__":
    unittest.main()
