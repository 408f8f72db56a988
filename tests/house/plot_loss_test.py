"""tools/plot_loss.py reads the log of a run and draws a picture of the requested kind."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True

import plot_loss  # noqa: E402


class PlotLoss(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log = self.folder / "log.jsonl"

    def write(self, entries, tail=""):
        self.log.write_text("".join(json.dumps(entry) + "\n" for entry in entries) + tail, encoding="utf-8")

    def run_tool(self, *pictures):
        return subprocess.run([sys.executable, str(TOOLS / "plot_loss.py"), str(self.log), *map(str, pictures)],
                              capture_output=True, text=True, check=False)

    def test_reads_both_curves_and_the_later_of_two_lines(self):
        self.write([{"step": 2, "loss": 4.0}, {"step": 1, "loss": 5.0}, {"step": 2, "valid_loss": 4.5},
                    {"step": 2, "loss": 3.5}, {"step": 3, "loss": None}], tail='{"step": 4, "lo')
        self.assertEqual(plot_loss.read_log(self.log), ([(1, 5.0), (2, 3.5)], [(2, 4.5)]))

    def test_the_mean_of_a_constant_is_the_constant(self):
        for span in (0, 1, 40):
            for _, loss in plot_loss.smooth([(step, 2.5) for step in range(100)], span):
                self.assertAlmostEqual(loss, 2.5)
        self.assertEqual(plot_loss.smooth([(1, 6.0), (2, 0.0), (3, 3.0)], 3), [(1, 6.0), (2, 3.0), (3, 1.5)])

    def test_long_runs_are_thinned(self):
        points = [(step, 1.0) for step in range(1, 11)]
        self.assertEqual(plot_loss.thinned(points, 10), (points, 1))
        kept, every = plot_loss.thinned(points, 4)
        self.assertEqual(([step for step, _ in kept], every), ([1, 4, 7, 10], 3))
        self.assertEqual([step for step, _ in plot_loss.thinned(points, 5)[0]], [1, 3, 5, 7, 9, 10])
        long = [(step, 1.0 + step % 2) for step in range(1, 4000)]
        self.assertIn("1 step in 4", plot_loss.gnuplot_script(long, [], Path("a.svg"), "title"))

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_draws_svg_and_png(self):
        self.write([{"step": step, "loss": 4 / step + 1} for step in range(1, 50)] + [{"step": 49, "valid_loss": 1.2}])
        svg, png = self.folder / "it's a curve.svg", self.folder / "curve.png"
        done = self.run_tool(svg, png)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = " ".join(xml.etree.ElementTree.parse(svg).getroot().itertext())
        self.assertIn("validation, last 1.200", texts)
        self.assertEqual(png.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_bad_input_is_reported_in_one_line(self):
        self.write([])
        self.assertIn("no loss yet", self.run_tool(self.folder / "a.svg").stderr)
        self.log.write_text("not json\n{}\n", encoding="utf-8")
        done = self.run_tool(self.folder / "a.svg")
        self.assertEqual(done.returncode, 2)
        self.assertIn("log.jsonl:1:", done.stderr)
        self.assertIn(".svg or .png", self.run_tool(self.folder / "a.jpg").stderr)


if __name__ == "__main__":
    unittest.main()
