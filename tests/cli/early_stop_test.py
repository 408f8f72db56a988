"""Runs that mark their best checkpoint and end when evaluations are no better, also across kills."""

import os
import unittest

from program import CLICKS, ProgramTest


class EarlyStop(ProgramTest):
    # Learning rates at which the AUC on a few thousand clicks soon falls again.
    LINE = (*[word for pair in zip(CLICKS[::2], CLICKS[1::2]) if "lr" not in pair[0] for word in pair], "--lr", 0.5,
            "--embedding-lr", 1.0, "--lr-decay-style", "constant", "--train-epochs", 30, "--eval-interval", 5)

    def recommend(self, *arguments, **options):
        """Trains a small model; an option in `arguments` takes the place of its."""
        kept = [word for pair in zip(self.LINE[::2], self.LINE[1::2]) if pair[0] not in arguments for word in pair]
        return self.trifold("recommend", *kept, *arguments, **options)

    def evaluations(self, name="log.jsonl"):
        return {line["step"]: line["valid_auc"] for line in self.log(name) if "valid_auc" in line}

    def best(self, folder="d"):
        return (self.folder / folder / "BEST").read_text()

    def checkpoints(self, folder="d"):
        return sorted(p.name for p in (self.folder / folder).iterdir() if p.name.startswith("step_"))

    def test_a_run_ends_when_evaluations_are_no_better(self):
        _, err = self.recommend("--save", "d", "--save-best", "--save-interval", 1, "--save-retain", 2,
                                 "--early-stop-patience", 4, "--log-json", "log.jsonl")
        aucs = self.evaluations()
        best = max(aucs, key=lambda step: (aucs[step], -step))
        last = max(aucs)
        self.assertEqual(last, best + 20)
        self.assertLess(last, 600)
        self.assertIn(f"early stop  4 evaluations after the best AUC, {aucs[best]:.5f} after step {best}, were no better", err)
        # Retention keeps the best.
        self.assertEqual(self.best(), f"step_{best:010}\n")
        self.assertEqual(self.checkpoints(), [f"step_{step:010}" for step in (best, last - 1, last)])
        out, _ = self.trifold("inspect", "d/BEST")
        self.assertIn(f"step_{best:010}", out)
        _, err = self.recommend("--save", "d", "--auto-resume", "--early-stop-patience", 4)
        self.assertIn(f"the run ended early: 4 evaluations after the best AUC, {aucs[best]:.5f}", err)
        self.assertIn("nothing is left to train", err)
        _, err = self.recommend("--load", "d", "--early-stop-patience", 4, status=2)
        self.assertIn("give more than --early-stop-patience 4 to train on", err)

        # With more patience the run continues like one that had it from the beginning.
        more = ("--early-stop-patience", 6, "--save-best", "--log-json")
        _, parts = self.recommend("--save", "d", "--auto-resume", *more, "log.jsonl")
        _, whole = self.recommend("--save", "whole", *more, "whole.jsonl")
        self.assertEqual(self.evaluations(), self.evaluations("whole.jsonl"))
        self.assertEqual(self.best(), self.best("whole"))
        self.assertEqual([line for line in parts.splitlines() if line.startswith("early stop")],
                         [line for line in whole.splitlines() if line.startswith("early stop")])
        out, _ = self.trifold("inspect", "whole", "--diff", "d")
        self.assertIn("are bitwise equal", out)

    def killed(self, phase, time, *arguments):
        """A run that is killed when a save is in `phase` for the `time`-th time."""
        os.environ["TRIFOLD_TEST_KILL_AT"] = f"{phase}:{time}"
        try:
            self.recommend(*arguments, status=-9)
        finally:
            del os.environ["TRIFOLD_TEST_KILL_AT"]

    def test_kills_change_neither_the_best_nor_the_end(self):
        options = ("--save-best", "--early-stop-patience", 3, "--ranks", 2)
        _, whole = self.recommend("--save", "whole", *options, "--log-json", "whole.jsonl")
        for number, phase in enumerate(("half-written", "committed", "latest-written")):
            name = f"d{number}"
            on = ("--save", name, "--auto-resume", "--save-interval", 7, *options)
            self.killed(phase, 2, *on)
            self.killed(phase, 2, *on)
            _, parts = self.recommend(*on)
            self.assertEqual(self.best(name), self.best("whole"), phase)
            for err in (parts, whole):
                self.assertEqual(err.count("early stop"), 1)
            self.assertEqual(parts[parts.index("early stop"):].splitlines()[0], whole[whole.index("early stop"):].splitlines()[0])
            out, _ = self.trifold("inspect", "whole", "--diff", name)
            self.assertIn("are bitwise equal", out)
            out, _ = self.trifold("inspect", "whole/BEST", "--diff", f"{name}/BEST")
            self.assertIn("are bitwise equal", out)

    def test_a_best_step_is_saved_once_in_the_background(self):
        on = ("--save-best", "--early-stop-patience", 4, "--save-interval", 5)
        _, parts = self.recommend("--save", "d", *on, "--async-save", "--log-json", "log.jsonl")
        self.recommend("--save", "whole", *on)
        steps = [line.split()[1] for line in parts.splitlines() if line.startswith("saved ")]
        self.assertEqual(len(steps), max(self.evaluations()) // 5)
        self.assertEqual(len(steps), len(set(steps)))
        self.assertEqual(self.best(), self.best("whole"))

    def test_a_language_model_goes_by_its_loss(self):
        line = ("--train-iters", 40, "--eval-interval", 2, "--eval-iters", 2, "--lr", 3.0, "--save", "d", "--save-best",
                "--early-stop-patience", 2, "--log-json", "log.jsonl")
        _, err = self.pretrain(*line)
        losses = {entry["step"]: entry["valid_loss"] for entry in self.log() if "valid_loss" in entry}
        best = min(losses, key=lambda step: (losses[step], step))
        self.assertEqual(max(losses), best + 4)
        self.assertIn(f"early stop  2 evaluations after the best loss, {losses[best]:.5f} after step {best}, were no better", err)
        self.assertEqual(self.best(), f"step_{best:010}\n")
        _, err = self.pretrain(*line[:-2], "--auto-resume")
        self.assertIn("the run ended early: 2 evaluations after the best loss", err)

    def test_bad_input(self):
        for arguments, message in (
                (("--save-best",), "--save-best has no effect without --save DIR"),
                (("--save-best", "--save", "d", "--eval-interval", 0), "--save-best has no effect without --eval-interval 1 or more, because the run is not evaluated"),
                (("--early-stop-patience", 2, "--eval-interval", 0), "--early-stop-patience 2 has no effect without --eval-interval 1 or more"),
                (("--early-stop-patience", 0), "--early-stop-patience")):
            _, err = self.recommend(*arguments, status=2)
            self.assertIn(message, err)
        _, err = self.pretrain("--train-iters", 1, "--early-stop-patience", 2, status=2)
        self.assertIn("--early-stop-patience 2 has no effect without --eval-interval 1 or more, because the run is not evaluated while it trains: give --eval-interval", err)
        self.recommend("--train-epochs", 1, "--save", "d")
        (self.folder / "d" / "BEST").write_text("step_7\n../x")
        _, err = self.trifold("inspect", "d/BEST", status=2)
        self.assertIn("is not the name of a checkpoint", err)
        (self.folder / "d" / "BEST").write_text("step_0000000009\n")
        _, err = self.trifold("inspect", "d/BEST", status=2)
        self.assertIn("d/BEST names the checkpoint d/step_0000000009, which does not exist", err)


if __name__ == "__main__":
    unittest.main()
