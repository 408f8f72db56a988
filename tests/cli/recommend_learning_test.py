"""The quickstart's recommender reaches the quality that its clicks allow. Takes minutes, hence the label long."""

import os
import pathlib
import unittest

from program import ProgramTest

CONFIG = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs" / "dlrm-small.cfg"


class RecommendLearning(ProgramTest):
    def test_reaches_97_percent_of_the_best_excess(self):
        _, message = self.trifold("recommend", "--config", CONFIG, "--ranks", 2, "--log-json", "log.jsonl", timeout=500)
        best = float(message.split("best AUC")[1].split()[0].rstrip(":"))
        curve = [line["valid_auc"] for line in self.log() if "valid_auc" in line]
        share = (curve[-1] - 0.5) / (best - 0.5)
        print(f"test AUC {curve[-1]:.4f} of {best:.4f}: {100 * share:.1f} % of the excess over 0.5")
        self.assertGreaterEqual(share, 0.97)


if __name__ == "__main__":
    unittest.main()
