"""The files of docs/measurements follow their schema and have commands that exist, the pages and the picture are made from
them, statements elsewhere agree with them, and tools/measurements.py repeats a measurement."""

import copy
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]
sys.dont_write_bytecode = True

import measurements as tool  # noqa: E402
import pages_test  # noqa: E402
import plot_performance  # noqa: E402

MOST_LINES = {"docs/performance.md": 120}

# (page, pattern with one group, measurement, row, column): a figure that a page quotes, rounded as it likes.
QUOTES = (
    ("README.md", r"runs at (\d+) % of the rate of bare\s+matrix products", "gpt2_124m_step", "share of the rate of matrix products", "value"),
    ("README.md", r"trains\s+([\d.]+) \(1558M\)", "gpt2_h100", "1558M, 16 x 1024", None),
    ("README.md", r"to ([\d.]+) times\s+\(355M\)", "gpt2_h100", "355M, 16 x 1024", None),
    ("README.md", r"a layer of experts is ([\d.]+) \(Zen 4\)", "experts_speed", "experts over PyTorch's grouped products", "both"),
    ("README.md", r"off by ([\d.]+) % on average", "published_runs", "average of sources", "error"),
    ("docs/benchmarks.md", r"f32 runs at (\d+) % of the rate of bare matrix products", "gpt2_124m_step",
     "share of the rate of matrix products", "value"),
    ("docs/benchmarks.md", r"bf16 is ([\d.]+) times as fast as f32", "gpt2_124m_bf16", "bf16 over f32", "value"),
    ("docs/benchmarks.md", r"two tensor ranks run at (\d+) %", "pipeline_ranks", "two tensor ranks", "over one rank"),
    ("docs/benchmarks.md", r"two pipeline ranks at (\d+) %", "pipeline_ranks", "two pipeline ranks, 1f1b, 8 micro-batches", "over one rank"),
    ("docs/benchmarks.md", r"([\d.]+) % off on average over 359", "published_runs", "average of sources", "error"),
    ("docs/benchmarks.md", r"loading at ([\d.]+) times", "checkpoint_speed", "load over dd", "value"),
    ("docs/benchmarks.md", r"The program has ([\d.]+) MB", "program_size", "build/release/launch/trifold", "size"),
    ("docs/benchmarks.md", r"run at ([\d.]+) of the speed of tables in\s+memory", "tables_in_files",
     "20 GB in 3.72 GiB, 1.6 GiB of cache a rank, steps 1501 to 1900", "share of the speed in memory"),
)

TINY = {
    "name": "tiny", "area": "tests", "title": "A tiny measurement", "compared_with": None, "limit": None, "unit": {"speed": "rows/s", "share": "%"},
    "commands": [
        {"run": "trifold --json $WORK/a.json", "repeats": 3, "extract": [
            {"row": "one", "column": "speed", "json": "a.json:step.rates.1", "times": 10},
            {"row": "two", "column": "speed", "lines": "^two", "regex": r"speed ([\d.]+)"},
            {"row": "range", "column": "speed", "regex": r"speed ([\d.]+)", "take": "range"},
            {"row": "log", "column": "speed", "json": "a.jsonl:rate"}]},
        {"run": "exit 3", "needs": "a machine that does not exist"},
        {"run": "true", "extract": [
            {"row": "time", "column": "speed", "seconds": True},
            {"row": "two", "column": "share", "ratio": [{"row": "two", "column": "speed"}, {"row": "one", "column": "speed"}], "times": 100}]}],
    "columns": ["run", "speed", "share", "note"],
    "targets": [{"row": "two", "column": "share", "at_least": 60}, {"row": "one", "column": "speed", "at_most": 10}],
    "comparisons": [{"case": "both", "ours": {"row": "two", "column": "speed"}, "theirs": {"row": "one", "column": "speed"}, "than": "one"}],
    "notes": [], "records": [
        {"date": "2026-01-02", "commit": "01234567", "status": "measured", "hardware": {"name": "A", "cpu": "A", "device": None, "notes": None},
         "rows": [["one", [10, 30, 20], None, "kept"], ["two", 10, 50, "12 of 13"], ["range", {"least": 1, "most": 2}, None, None], ["log", 1, None, None],
                  ["time", 1, None, None], ["other", 12345.5, None, None]], "notes": []}]}

# What the measuring programs print, and figures that the rules of a measurement find in it.
SAMPLES = {
    "experts_speed": ("""\
dense                            forward  206.6 GFLOP/s, backward  214.6, both  211.8
experts                          forward  185.3 GFLOP/s, backward  182.9, both  183.7
two ranks                        forward  161.2 GFLOP/s, backward  171.7, both  168.0
two ranks, ep 2                  forward  153.0 GFLOP/s, backward  168.9, both  163.2
PyTorch 2.15.0, eager            forward  150.4 GFLOP/s, backward   88.2, both  102.3
PyTorch 2.15.0, grouped_mm       forward  143.8 GFLOP/s, backward  135.7, both  138.3
experts against dense: 0.867 (asked 0.85)
ep 2 against ep 1, on two ranks: 0.970 (asked 0.90)
experts against PyTorch 2.15.0, eager: 1.80 (asked 1.5)
experts against PyTorch 2.15.0, grouped_mm: 1.33 (asked 1.5)
""", {("one network", "both"): 211.8, ("two ranks of a core each, all experts on both", "forward"): 161.2, ("--ep 2 over --ep 1", "both"): 97,
      ("PyTorch 2.15, the same, grouped products", "backward"): 135.7, ("experts over PyTorch's grouped products", "both"): 1.33}),
    "embedding_rows": ("""\
2 workers, x86-64-v4: memory 69.8 GB/s
D  16 uniform pooling  1: forward  20.6 GB/s 103 % of 20.0 GB/s, 140.0 million rows/s, rows 74 % | changed 37.6 GB/s | sgd   9.1 GB/s  91 % (sort 3.40 of 7.30 ms) | adagrad   9.9 GB/s  99 % | rowwise   9.3 GB/s  93 %
D  16 zipf    pooling 20: forward  20.6 GB/s 153 % of 20.0 GB/s, 140.0 million rows/s, rows 93 % | changed 37.6 GB/s | sgd   9.1 GB/s  19 % (sort 3.40 of 7.30 ms) | adagrad   9.9 GB/s  49 % | rowwise   9.3 GB/s  33 %
D  64 uniform pooling  1: forward  20.6 GB/s  61 % | sgd   9.1 GB/s  48 % (sort 3.40 of 7.30 ms) | adagrad   9.9 GB/s  95 % | rowwise   9.3 GB/s  70 %
D 128 zipf    pooling  1: forward  20.6 GB/s  50 % | sgd   9.1 GB/s  58 % (sort 3.40 of 7.30 ms) | adagrad   9.9 GB/s  75 % | rowwise   9.3 GB/s  70 %
""", {("bandwidth of adding two arrays", "forward"): 69.8, ("64 and 128 columns", "forward"): {"least": 50, "most": 61},
      ("64 and 128 columns", "backward"): {"least": 48, "most": 95}, ("16 columns, uniform ids", "forward"): {"least": 103, "most": 153},
      ("16 columns, uniform ids", "backward"): {"least": 91, "most": 99}, ("16 columns, Zipf ids", "backward"): {"least": 19, "most": 49},
      ("16 columns, rows looked up over lines read, one uniform id", "forward"): 74}),
    "row_stores": ("""\
ours      median   28.50 ms, 90th percentile   34.50,    81400 rows/s; a batch:  2320 rows,   11.5 MB read,    1.8 MB written,   8.20 ms of processors;  1.08 GB on disk, filled in 3 s, settled in 0.1, peak of memory 0.61 GiB
""", {("ours (embedding/stored/row_file.h)", "median, ms a batch"): 28.5, ("ours (embedding/stored/row_file.h)", "90th percentile, ms a batch"): 34.5,
      ("ours (embedding/stored/row_file.h)", "rows/s"): 81400, ("ours (embedding/stored/row_file.h)", "MB read a batch"): 11.5,
      ("ours (embedding/stored/row_file.h)", "MB written a batch"): 1.8, ("ours (embedding/stored/row_file.h)", "ms of processors a batch"): 8.2,
      ("ours (embedding/stored/row_file.h)", "GB on disk"): 1.08}),
    "predicted_steps": ("""\
layout                       predicted    measured    error  by hardware    error
tp 2                          100.1 ms    110.2 ms   -7.3 %      90.0 ms   -11.5 %
dp 2, MPI                     100.1 ms     90.2 ms   +8.4 %      95.0 ms   +9.3 %
""", {("13 layouts, from measured blocks", "error"): {"least": -7.3, "most": 8.4},
      ("13 layouts, from one bench --what hardware", "error"): {"least": -11.5, "most": 9.3}}),
    "checkpoint_speed": ("""\
medians of 3 rounds: save 2.40 of dd (at least 0.80), load 1.94 of dd (at least 0.80), stall 0.92 copies (at most 1.50)
medians of 3 rounds: reshard 1.16 copies (at most 2.50), 40 MiB (at most 256)
""", {("save over dd conv=fsync", "value"): 2.4, ("load over dd", "value"): 1.94, ("stall of --async-save over a copy of the state in memory", "value"): 0.92,
      ("reshard of 2.1 GB to 2 x 2 ranks over cp -r and a sync", "value"): 1.16, ("memory of that reshard beyond the file cache", "value"): 40}),
    "shakespeare": ("validation loss 1.877512  perplexity 6.5372  (111488 tokens of s/step_0000002000, step 2000, 3.1 s)\n",
                    {("validation loss over the whole held-out tenth", "value"): 1.877512}),
    "published_runs": ("average of sources                     359  100.0 %    4.8 %    311/363   325/336\n",
                       {("average of sources", "error"): 4.8}),
}

FAKE = """#!/bin/bash
echo '{"step": {"rates": [1, 2.5]}}' > "$2"
printf '{"rate": 1}\\n{"rate": 5}\\n{"rate": 3}\\n{"loss": 7}\\n' > "${2}l"
printf 'one speed 4\\ntwo speed 12.5\\n'
"""


def tiny(**changes):
    return {**copy.deepcopy(TINY), **changes}


class Files(unittest.TestCase):
    def test_all_follow_the_schema(self):
        self.assertEqual(list(tool.check(tool.FOLDER)), [])

    def test_commands_have_their_options(self):
        options = pages_test.options_by_command()
        for name, measurement in tool.load_all().items():
            text = "\n".join(f"    {re.sub(r'^mpiexec -n [0-9]+ ', '', command['run'])}" for command in measurement["commands"])
            with self.subTest(name):
                self.assertEqual(list(pages_test.unknown_options(text, options)), [])
                files = re.findall(r"(?:tools|tests|launch)/[\w./-]+\.(?:py|sh|cfg)", text)
                self.assertEqual([file for file in files if not (ROOT / file).exists()], [])

    def test_each_fault_is_found(self):
        self.assertEqual(tool.problems("tiny", tiny()), [])
        row = tiny()
        row["records"][0]["rows"][1].pop()
        faults = {
            "the file has no notes": {key: value for key, value in tiny().items() if key != "notes"},
            "the file has an unknown field size": tiny(size=1),
            "the name is 'other'": tiny(name="other"),
            "there is no record": tiny(records=[], targets=[], comparisons=[], commands=[]),
            "there is no column 'speeds'": tiny(targets=[{"column": "speeds", "at_most": 1}]),
            "there is no row 'three'": tiny(targets=[{"row": "three", "column": "speed", "at_most": 1}]),
            "a target needs either at_least or at_most": tiny(targets=[{"column": "speed"}]),
            "a command has no run": tiny(commands=[{}]),
            "needs a row, a column and one of": tiny(commands=[{"run": "true", "extract": [{"row": "one", "column": "speed"}]}]),
            "the row 'two' has the wrong number of cells": row,
            "the status is none of": tiny(records=[{**TINY["records"][0], "status": "guessed"}]),
            "the date is not": tiny(records=[{**TINY["records"][0], "date": "today"}]),
            "the commit is not": tiny(records=[{**TINY["records"][0], "commit": "main"}]),
            "hardware has no device": tiny(records=[{**TINY["records"][0], "hardware": {"name": "A", "cpu": None, "notes": None}}]),
        }
        for problem, measurement in faults.items():
            with self.subTest(problem):
                self.assertIn(problem, "\n".join(tool.problems("tiny", measurement)))


class Pages(unittest.TestCase):
    def test_they_are_up_to_date(self):
        found = tool.load_all()
        for name, link in tool.PAGES.items():
            text = (ROOT / name).read_text(encoding="utf-8")
            self.assertEqual(tool.page_of(text, found, link), text, f"{name}: run tools/measurements.py pages")
        self.assertEqual(plot_performance.draw(plot_performance.bars()), plot_performance.PICTURE.read_text(encoding="utf-8"),
                         "run tools/plot_performance.py")

    def test_they_are_short(self):
        for name, most in MOST_LINES.items():
            self.assertLessEqual(len((ROOT / name).read_text(encoding="utf-8").splitlines()), most, name)

    def test_each_area_has_a_link(self):
        text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
        areas = {measurement["area"] for measurement in tool.load_all().values()}
        self.assertEqual(areas, set(re.findall(r"measurements/README\.md#(\w+)", text)))

    def test_quoted_figures_are_those_of_the_files(self):
        found = tool.load_all()
        ratios = {(measurement["name"], comparison["ours"]["row"]): tool.ratio_of(ours, theirs)
                  for measurement, _, comparison, ours, theirs in tool.comparisons(found)}
        for page, pattern, name, row, column in QUOTES:
            with self.subTest(page=page, pattern=pattern):
                quoted = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"))
                self.assertIsNotNone(quoted, "the statement has changed; so must this list")
                if column is None:
                    figure = ratios[name, row]
                else:
                    figure = tool.middle(tool.cell_of(found[name], tool.current(found[name])[0], {"row": row, "column": column}))
                digits = len(quoted[1].partition(".")[2])
                self.assertEqual(f"{figure:.{digits}f}", quoted[1])

    def test_ratios_are_those_to_pytorch_2(self):
        self.assertNotIn("PyTorch 1.", (ROOT / "README.md").read_text(encoding="utf-8"))
        for _, _, comparison, _, _ in tool.comparisons(tool.load_all()):
            self.assertRegex(comparison["than"], r"^PyTorch 2\.")

    def test_a_table_shows_figures_units_and_targets(self):
        lines = tool.table(tiny()).splitlines()
        self.assertEqual(lines[0], "| run | speed, rows/s | share, % | note | asked |")
        self.assertEqual(lines[2], "| one | 10; 30; 20 |  | kept | at most 10 rows/s |")
        self.assertEqual(lines[4], "| range | 1 to 2 |  |  |  |")
        self.assertIn("| other | 12 345.5 |", lines[7])
        with_units = tiny(unit={"speed": "rows/s", "other": "MB"})
        self.assertIn("| other | 12 345.5 MB |", tool.table(with_units))
        missed = tool.missed_table({"tiny": tiny()}, "")
        self.assertIn("| [tiny](tiny.json) | two: share | at least 60 % | 50 % | A |", missed)
        self.assertIn("| [tiny](tiny.json) | one: speed | at most 10 rows/s | 10; 30; 20 rows/s | A |", missed)
        self.assertIn("| 10 | 10; 30; 20 | rows/s | one | 0.50 |", tool.comparison_table({"tiny": tiny()}, ""))

    def test_markers_get_tables(self):
        page = "a\n<!-- table tiny -->\nold\n<!-- end -->\nb\n"
        text = tool.page_of(page, {"tiny": tiny()})
        self.assertIn("| two | 10 | 50 |", text)
        self.assertEqual(tool.page_of(text, {"tiny": tiny()}), text)
        with self.assertRaises(tool.Problem):
            tool.page_of(page.replace("tiny", "huge"), {"tiny": tiny()})


class Repeat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        tool.write(self.folder, tiny())
        self.program = self.folder / "build/launch/trifold"
        self.program.parent.mkdir(parents=True)
        self.program.write_text(FAKE, encoding="utf-8")
        self.program.chmod(0o755)

    def run_tool(self, *words):
        return subprocess.run([sys.executable, str(ROOT / "tools/measurements.py"), "--folder", str(self.folder), *words],
                              capture_output=True, text=True, check=False)

    def repeat(self, *words):
        return self.run_tool("repeat", "tiny", "--program", str(self.program), *words)

    def test_figures_are_extracted_and_compared(self):
        done = self.repeat()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| one | speed, rows/s | 10; 30; 20 | 25 | 1.250 |", done.stdout)
        self.assertIn("| two | speed, rows/s | 10 | 12.5 | 1.250 |", done.stdout)
        self.assertIn("| range | speed, rows/s | 1 to 2 | 4 to 12.5 | 5.500 |", done.stdout)
        self.assertIn("| log | speed, rows/s | 1 | 3 | 3.000 |", done.stdout)
        self.assertIn("| two | share, % | 50 | 50 | 1.000 |", done.stdout)
        self.assertEqual(done.stderr.count("$ trifold"), 3)
        self.assertIn("left out, because it needs a machine that does not exist", done.stderr)
        self.assertEqual(len(tool.load(self.folder, "tiny")["records"]), 1)

    def test_rules_find_what_the_measuring_programs_print(self):
        for name, (output, figures) in SAMPLES.items():
            rules = [rule for command in tool.load(tool.FOLDER, name)["commands"] for rule in command.get("extract", ())]
            for (row, column), figure in figures.items():
                with self.subTest(name=name, row=row, column=column):
                    rule = next(rule for rule in rules if (rule["row"], rule["column"]) == (row, column))
                    found = tool.extracted(rule, output, 0, self.folder)
                    self.assertEqual(tool.rounded(found) if name != "shakespeare" else found, figure)

    def test_a_record_is_added(self):
        done = self.repeat("--write")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(tool.check(self.folder)), [])
        old, new = tool.load(self.folder, "tiny")["records"]
        self.assertEqual(old, TINY["records"][0])
        self.assertEqual(new["rows"][0], ["one", 25.0, None, "kept"])
        self.assertEqual(new["rows"][1], ["two", 12.5, 50.0, None])
        self.assertEqual(new["rows"][5], ["other", None, None, None])
        self.assertEqual(new["status"], "measured")
        self.assertRegex(new["commit"], "^[0-9a-f]{8,}$")

    def test_what_cannot_be_repeated_says_why(self):
        for words, message in ((("show", "huge"), "there is no measurement huge"),
                               (("repeat", "tiny", "--program", str(self.folder / "none")), "there is no program"),
                               (("repeat", "tiny", "--write", "--commit", "none", "--program", str(self.program)), "git knows no such commit"),
                               (("repeat", "tiny", "--all", "--program", str(self.program)), "ended with status 3")):
            done = self.run_tool(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)
        self.program.write_text("#!/bin/bash\necho nothing\n", encoding="utf-8")
        self.assertIn("no figure for 'one', 'speed'", self.repeat().stderr)
        tool.write(self.folder, tiny(commands=[{"run": "false", "extract": [{"row": "time", "column": "speed", "seconds": True}]}]))
        self.assertIn("ended with status 1", self.repeat().stderr)
        tool.write(self.folder, tiny(commands=[{"run": "echo 1", "extract": [{"row": "time", "column": "speed", "regex": "a(1)"}]}]))
        self.assertIn("the output has no match", self.repeat().stderr)
        tool.write(self.folder, tiny(commands=[{"run": "echo a1; false", "extract": [{"row": "time", "column": "speed", "regex": "a(1)"}]}]))
        self.assertIn("| time | speed, rows/s | 1 | 1 | 1.000 |", self.repeat().stdout)

    def test_files_are_listed_shown_and_checked(self):
        self.assertIn("tiny ", self.run_tool("list", "tiny").stdout)
        self.assertEqual(self.run_tool("list", "large").stdout, "")
        self.assertIn("| two | 10 | 50 |", self.run_tool("show", "tiny").stdout)
        self.assertEqual(self.run_tool("check").returncode, 0)
        (self.folder / "tiny.json").write_text(tool.json.dumps(tiny()), encoding="utf-8")
        self.assertEqual(self.run_tool("check").returncode, 1)
        self.assertEqual(self.run_tool("check", "--rewrite").returncode, 0)
        (self.folder / "bad.json").write_text("{", encoding="utf-8")
        self.assertIn("bad.json: not JSON", self.run_tool("check").stdout)


if __name__ == "__main__":
    unittest.main()
