"""Every figure of a GPU says where it is from.

A paragraph, list item or row of a table that names a GPU and a speed, in a page or in a comment of the sources, has a tag: in
itself, in the caption of its table, or in the first paragraph below its heading. A tag is one of

    measured on one H100, 2026-11-27, 2534c6fc     a run on that card; day and commit; so too "emulated", "counted", "planned"
    published, arXiv 2104.04473                    a figure of others
    `trifold plan ...`                             the command that plans the figure
    [gpt2_h100](measurements/gpt2_h100.json)       a measurement, whose record has status, card, day and commit
    [benchmarks](docs/benchmarks.md)               of README and CHANGELOG: the page that has the figure with its tag
    decision 0016                                  of a comment: the record that has the figure with its tag

What `trifold plan` prints where a page shows it is planned.
"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(path for folder in ("src", "tests", "tools", "launch") for path in (ROOT / folder).rglob("*")
                 if path.suffix in {".h", ".cpp", ".cu", ".cuh", ".sh", ".py"} and path.name != Path(__file__).name)
GPU = re.compile(r"\b(?:V100|A100|H100|H200|GH200|B200|GB200)\b", re.IGNORECASE)
SPEED = re.compile(r"\d\s?(?:%|us\b|ms\b|times\b|[TGM]?FLOP/s|[TG]B/s|(?:million )?(?:tokens|samples|rows)/s)|(?:FLOP|tokens|samples|[TG]B)/s")
TAG = re.compile(r"\b(?:measured|emulated|counted|planned)(?: on [^;|]{1,60}?)?,\s+\d{4}-\d\d-\d\d,\s+[0-9a-f]{8}\b|\bpublished\b|\barXiv \d{4}\.?\d{4,5}\b|`trifold plan "
                 r"|\]\((?:\.\./|docs/)?measurements/\w+\.json\)")
QUOTED = re.compile(r"\]\(docs/(?:benchmarks|performance)\.md")
DECISION = re.compile(r"\bdecision\s+\d{4}\b")


def blocks(text):
    """Yields (line, lines) of what empty lines and headings part, without comments."""
    found = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line and not line.startswith(("#", "<!--")):
            found.append(line)
        elif found and (not line or line.startswith("#")):
            yield number - len(found), found
            found = []
        if line.startswith("#"):
            yield number, [line]


def figures(text):
    """Yields (line, figure, what it is below) of paragraphs, list items, commands with their output, and rows of tables, which
    have caption and head of the table as a part."""
    first, last = "", ""
    for line, block in blocks(text):
        joined = "\n".join(block)
        if block[0].startswith("#"):
            first = ""
        elif block[0].startswith("|"):
            over = "\n".join([last if last.startswith("*") else "", *block[:2]])
            for row in block[2:]:
                yield line, f"{over}\n{row}", first
        else:
            for part in re.split(r"\n(?=\s*(?:[-*]|\d+\.) |    \$ )", joined):
                yield line, part, first
            first = first or joined
        last = joined


def untagged(text, is_own_page=False):
    """Yields (line, text) of each figure of a GPU without a tag."""
    for line, figure, first in figures(text):
        if not GPU.search(figure) or not SPEED.search(figure) or figure.startswith("    $ trifold plan"):
            continue
        if not TAG.search(figure) and not TAG.search(first) and (is_own_page or not QUOTED.search(figure)):
            yield line, figure


def comments(path, text):
    """Yields (line, text) of each comment of consecutive lines."""
    mark = re.compile(r"^\s*#\s?(?!include|pragma|define|if|endif)" if path.suffix in {".sh", ".py"} else r"^.*?//\s?")
    found, start = [], 0
    for number, line in enumerate([*text.split("\n"), ""]):
        match = mark.match(line)
        if match:
            start = start if found else number + 1
            found.append(line[match.end():])
        elif found:
            yield start, " ".join(found)
            found = []


class GpuFigures(unittest.TestCase):
    def test_pages_tag_them(self):
        for page in PAGES:
            name = page.relative_to(ROOT).as_posix()
            for line, paragraph in untagged(page.read_text(encoding="utf-8"), name.startswith("docs/")):
                self.fail(f"{name}:{line}: a figure of a GPU has no tag (see {Path(__file__).name}):\n{paragraph[:300]}")

    def test_comments_tag_them(self):
        for path in SOURCES:
            for line, comment in comments(path, path.read_text(encoding="utf-8", errors="replace")):
                if GPU.search(comment) and SPEED.search(comment) and not TAG.search(comment) and not DECISION.search(comment):
                    self.fail(f"{path.relative_to(ROOT)}:{line}: a figure of a GPU has no tag (see {Path(__file__).name}): {comment[:300]}")

    def test_finds_what_it_is_for(self):
        figure = "On an H100 it reaches 300 TFLOP/s."
        tag = "measured on one H100, 2026-11-27, 2534c6fc"
        self.assertEqual(len(list(untagged(figure))), 1)
        self.assertEqual(len(list(untagged(f"## Speed\n\nFast.\n\n{figure}"))), 1)
        self.assertEqual(len(list(untagged(f"## Speed\n\nAll {tag}.\n\n{figure}\n\n## More\n\nText.\n\n- {figure}"))), 1)
        self.assertEqual(len(list(untagged(f"- one, {tag}\n- {figure}"))), 1)
        self.assertEqual(len(list(untagged("*An H100*\n\n| case | tokens/s |\n|---|---|\n| a | 5 |\n"))), 1)
        self.assertEqual(len(list(untagged(f"*An H100* ({tag})\n\n| case | tokens/s |\n|---|---|\n| a | 5 |\n"))), 0)
        for fine in (f"{figure} ({tag})", f"{figure} (`trifold plan --hardware h100`)", f"{figure} Emulated, not measured on an H100; planned, 2026-11-27, 2534c6fc", f"A published run: {figure}",
                     "On an H100 it ran.", "On two cores it reaches 300 GFLOP/s."):
            self.assertEqual(list(untagged(fine)), [], fine)
        quoted = f"{figure} See [benchmarks](docs/benchmarks.md)."
        self.assertEqual((len(list(untagged(quoted))), len(list(untagged(quoted, is_own_page=True)))), (0, 1))
        for vague in ("measured", "measured yesterday", "measured on an H100, 2026-11-27", "planned"):
            self.assertEqual(len(list(untagged(f"{figure} ({vague})"))), 1, vague)
        self.assertEqual([text for _, text in comments(Path("a.cpp"), f"int a;  // {figure}\nint b;\n// One\n// two\n")], [figure, "One two"])


if __name__ == "__main__":
    unittest.main()
