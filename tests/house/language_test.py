"""Words that readers stumble over stay out of comments, messages and pages, no string literal ends in an orphan: a last
line of a word or two, and a message about a file is a sentence with the file as its subject."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AVOIDED = {
    r"\btold\b": "say who says it: `the report says`, `the option gives`",
    r"\bshare[sd]? out\b|\bsharing out\b": "shard",
    r"\bworked out\b": "computed",
    r"\bof before\b": "earlier",
    r"\b[Ww]hoever\b": "name the reader, the caller or the thread",
    r"\b(?:struct|class|using|enum class) (?:How|Held|Surroundings)\b": "a name that says the role: Options, Environment",
    r"\bspeaks\b": "is_reporter",
}
SOURCES = ("*.cpp", "*.h", "*.cu", "*.cuh", "*.py", "*.sh", "*.cmake", "*.md", "*CMakeLists.txt")
ANY_AVOIDED = re.compile("|".join(AVOIDED))
HEADLESS = re.compile(r'"\{0?\}: (is|has|was|cannot|contains|holds|needs) ')  # not "a.csv: has no labels", but "a.csv has no labels"
ORPHAN = re.compile(r' "\n\s*"([\w .,;:\'`)-]{1,12})"(?=.)')  # a literal, continued by a short one, and the code goes on


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def avoided(text):
    """(number of the line, better words) of each avoided word."""
    for match in ANY_AVOIDED.finditer(text):
        yield line_of(text, match.start()), next(better for word, better in AVOIDED.items() if re.fullmatch(word, match.group()))


def orphans(text):
    """(number of the line, the orphan) of literals that are continued by a word or two."""
    for match in ORPHAN.finditer(text):
        yield line_of(text, match.start(1)), match.group(1)


def headless(text):
    """(number of the line, the verb) of messages whose subject is cut off by a colon."""
    for match in HEADLESS.finditer(text):
        yield line_of(text, match.start()), match.group(1)


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/golden/") and (ROOT / name) != Path(__file__).resolve() and (ROOT / name).exists():
            yield name, (ROOT / name).read_text(encoding="utf-8", errors="replace")


class Language(unittest.TestCase):
    maxDiff = None

    def test_it_finds_each_mistake(self):
        self.assertEqual(list(avoided("// work is\n// shared out\n// by what it was told\n")),
                         [(2, "shard"), (3, AVOIDED[r"\btold\b"])])
        self.assertEqual(list(orphans('  fail("too many of these "\n       "ranks", 3);\n')), [(2, "ranks")])
        self.assertEqual(list(headless('  fail(\n  "{}: is empty", path);\n  fail("{}: the file is empty", path);\n')), [(2, "is")])
        self.assertEqual(list(orphans('  fail("too many of these, "\n       "fewer ranks would do", 3);\n')), [])

    def test_words(self):
        self.assertEqual([f"{name}:{number}: {better}" for name, text in files(*SOURCES) for number, better in avoided(text)], [])

    def test_literals(self):
        self.assertEqual([f"{name}:{number}: {orphan}" for name, text in files("src/*", "launch/*.cpp", "launch/*.h")
                          for number, orphan in orphans(text)], [], "break the literal at a clause")

    def test_subjects(self):
        self.assertEqual([f"{name}:{number}: {verb}" for name, text in files("src/*", "launch/*.cpp", "launch/*.h")
                          for number, verb in headless(text)], [], "leave out the colon: the file is the subject")


if __name__ == "__main__":
    unittest.main()
