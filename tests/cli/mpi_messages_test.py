"""Messages between MPI ranks that are not as the program sends them: an error of the program that names the sender.

  mpi_messages_test.py       a selection, seconds
  TRIFOLD_WHOLE=1 ...        every kind of message, several of each
"""

import os
import unittest

from fault_test import HAS_MPI, FaultTest
from program import CLICKS, TRIFOLD, WHOLE

LIAR = os.environ.get("TRIFOLD_LYING_MPI", "")
# The kinds of MpiTag, by number.
CALL, ROW, ROW_PROBLEM, SPLIT, DATA, SEND_HEADER, RECEIVE_HEADER, NEWS = range(8)
LENGTHS = ["16", "-1", "-1000000"]


@unittest.skipUnless(HAS_MPI and os.path.exists(LIAR), "mpiexec, or the library that changes messages, is missing")
class Messages(FaultTest):
    def run_with(self, lie, line, ranks=2):
        words = [str(word) for word in [os.environ["MPIEXEC"], "-n", ranks, *line]]
        return self.watch(words, dict(self.environment(), LD_PRELOAD=LIAR, TRIFOLD_LIE=lie))

    def recommend(self, *more):
        return [TRIFOLD, "recommend", *CLICKS, "--train-iters", 3, "--distributed-timeout-minutes", 0.1, *more]

    def pipeline(self):
        """Its ranks exchange activations, whose messages have headers."""
        return self.line("--train-iters", 3, mesh="pipeline")

    def check_lie(self, lie, line, words=()):
        outcome = self.run_with(lie, line)
        self.assertEqual(outcome.left, [], outcome.text)
        self.assertEqual(outcome.status, 1, outcome.text)
        self.assertRegex(outcome.text, r"(?m)^trifold: ", outcome.text)
        for text in ("Fatal error in", "Segmentation", "json.exception"):
            self.assertNotIn(text, outcome.text)
        for word in words:
            self.assertIn(word, outcome.text)

    def test_messages_of_another_length(self):
        cases = [(tag, number, change) for tag in (CALL, ROW, ROW_PROBLEM, SPLIT, DATA) for number in (0, 1, 3) for change in LENGTHS]
        for tag, number, change in cases if WHOLE else cases[::4]:
            with self.subTest(tag=tag, number=number, change=change):
                self.setUp()
                self.check_lie(f"1:{tag}:{number}:{change}", self.recommend(), ["a message from rank 1 has "])

    def test_headers_of_another_length(self):
        cases = [(tag, change) for tag in (SEND_HEADER, RECEIVE_HEADER) for change in LENGTHS]
        for tag, change in cases if WHOLE else cases[::3]:
            with self.subTest(tag=tag, change=change):
                self.setUp()
                self.check_lie(f"1:{tag}:0:{change}", self.pipeline(), ["a message from rank 1 has "])

    def news(self, change):
        """Rank 1 fails, and tells the others with news that are changed."""
        lie = f"1:{NEWS}:0:{change}"
        words = [os.environ["MPIEXEC"], "-n", "2", *map(str, self.recommend())]
        return self.watch(words, dict(self.environment("1:error:update:2"), LD_PRELOAD=LIAR, TRIFOLD_LIE=lie))

    def test_news_are_checked(self):
        """A kind that does not exist, a sender that is no rank, a length."""
        for change in ("@0=77", "@4=1000000", "@4=-5", "16", "-100"):
            with self.subTest(change=change):
                self.setUp()
                outcome = self.news(change)
                self.assertEqual(outcome.left, [], outcome.text)
                self.assertNotIn(outcome.status, (0, None), outcome.text)
                self.assertNotIn("Segmentation", outcome.text)
                self.assertIn("news from rank 1 are not as a rank sends them", outcome.text)

    def test_other_data_of_the_right_length(self):
        """The rank that seems to send another number of rows than expected."""
        self.check_lie(f"1:{ROW_PROBLEM}:0:@0=-1", self.recommend(), ["a message about its row counts names ranks -1 and "])


if __name__ == "__main__":
    unittest.main()
