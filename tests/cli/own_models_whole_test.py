"""All meshes of eight ranks for three models that PyTorch exported, and a hundred kills of a run of one.

  TRIFOLD_CRASH_ROUNDS=N   another number of kills; TRIFOLD_CRASH_SEED=N other moments
"""

import itertools
import os
import unittest

from kills import KillTest
from own_models import MODELS, OwnModelsTest

KILLS = int(os.environ.get("TRIFOLD_CRASH_ROUNDS", "100"))
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "zb-v")
STAGES_OF_ZERO = (0, 1, 2, 3)
RECOMPUTE = ([], ["--recompute-granularity", "full"])


class EightRanks(OwnModelsTest):
    """Copies times stages are eight ranks, each copy with micro-batches of one sample."""

    def mesh(self, copies, stages):
        return ["--f64", "--micro-batch-size", 1, "--ranks", copies * stages, "--pipeline-model-parallel-size", stages]

    def check(self, name):
        one = self.curve(name, *self.mesh(1, 1))
        cases = 0
        for stages in (1, 2, 4):
            copies = 8 // stages
            alike = self.curve(name, *self.mesh(copies, 1))
            for mine, theirs in zip(alike, one, strict=True):
                self.assertAlmostEqual(mine[1], theirs[1], delta=1e-11 * abs(theirs[1]))
            schedules = SCHEDULES if stages > 1 else SCHEDULES[:1]
            for schedule, zero, recompute in itertools.product(schedules, STAGES_OF_ZERO, RECOMPUTE):
                if schedule == "zb-v" and stages > 2:
                    continue  # twice as many stages as these models have blocks
                arguments = [*self.mesh(copies, stages), "--zero-stage", zero, *recompute]
                if stages > 1:
                    arguments += ["--schedule", schedule]
                with self.subTest(" ".join(map(str, arguments))):
                    self.assertEqual(self.curve(name, *arguments), alike)
                cases += 1
        self.assertEqual(cases, 8 + 32 + 24)

    def test_gpt2(self):
        self.check("gpt2")

    def test_t5(self):
        self.check("t5")

    def test_roberta(self):
        self.check("roberta")


class Kills(KillTest, OwnModelsTest):
    def line(self, save, *more, steps=40):
        return [os.environ["TRIFOLD"], "pretrain", "--model", str(MODELS / "t5.pt2"), "--arrays", *self.words, "--global-batch-size",
                "8", "--micro-batch-size", "2", "--train-iters", str(steps), "--lr", "1e-3", "--lr-decay-style", "constant",
                "--threads-per-rank", "1", "--save", str(save), "--save-interval", "2", "--save-retain", "2", "--auto-resume", *more]

    def test_a_hundred_kills(self):
        self.words = self.arrays("t5")
        ranks = ["--ranks", "4", "--pipeline-model-parallel-size", "2", "--zero-stage", "1"]
        self.assertGreaterEqual(self.kill_rounds(KILLS, ranks), KILLS)


if __name__ == "__main__":
    unittest.main()
