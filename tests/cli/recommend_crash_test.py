"""Killed recommenders, like language models in crash_test.py: committed checkpoints survive, nothing else is left, and
the run resumes bit by bit.

  recommend_crash_test.py          a short version, seconds
  TRIFOLD_CRASH_ROUNDS=100 ...     the long one; TRIFOLD_CRASH_SEED=N another one
"""

import concurrent.futures
import os
import unittest

from kills import AT_ONCE, PHASES, STEPS, KillTest
from program import CLICKS, TRIFOLD

ROUNDS = int(os.environ.get("TRIFOLD_CRASH_ROUNDS", "3"))
RANKS = ["--ranks", "2", "--placement", "row,column,table,replicated"]  # both of them write


class RecommendCrash(KillTest):
    def line(self, save, *more, steps=STEPS):
        return [TRIFOLD, "recommend", *CLICKS, "--train-iters", str(steps), "--save", str(save), "--save-interval", "2",
                "--save-retain", "2", "--auto-resume", *more]

    def test_killed_at_random_moments(self):
        self.assertGreaterEqual(self.kill_rounds(ROUNDS, RANKS), ROUNDS)

    def test_killed_at_random_moments_while_saving_shared_state_in_the_background(self):
        rounds = (ROUNDS + 1) // 2
        self.assertGreaterEqual(self.kill_rounds(rounds, [*RANKS, "--async-save", "--zero-stage", "1"]), rounds)

    def test_killed_at_each_phase_of_a_save(self):
        self.complete(self.line("whole", *RANKS, steps=12))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for phase, done in [(phase, pool.submit(self.kill_at, phase, RANKS, "whole")) for phase in PHASES]:
                with self.subTest(phase=phase):
                    done.result()

    def test_damage_is_passed_over_and_the_end_is_known(self):
        self.complete(self.line("d", *RANKS, steps=8))
        shard = self.folder / "d" / "step_0000000008" / "shard_00001.h5"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 4
        shard.write_bytes(data)
        _, text = self.complete(self.line("d", *RANKS, steps=12))
        self.assertIn("WARNING     passed over d/step_0000000008", text)
        self.assertIn("steps       7 to 12", text)
        self.complete(self.line("whole", *RANKS, steps=12))
        self.expect_same("d", "whole")
        _, text = self.complete(self.line("d", *RANKS, steps=12))
        self.assertIn("nothing is left to train", text)


if __name__ == "__main__":
    unittest.main()
