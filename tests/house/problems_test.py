"""Problems of a configuration (src/config/options/problems.h) are typed: every problem names its options, which exist,
including every option that its text calls wrong. Unit tests check problems as they are made; this test reads the
sources, so that no check is missed.

    tests/house/problems_test.py [-v]
"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDED = re.compile(r"\.about\((.*?)\)\s*\.wrong\((.*?)\)\s*\.right\(", re.S)
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def known_options():
    return set(re.findall(r"^  --([a-z0-9-]+)", (ROOT / "tests/golden/options.txt").read_text(encoding="utf-8"), re.M))


def added_problems():
    """(file:line, options named by literals, the text of what is wrong) of every check."""
    for path in sorted((ROOT / "src").rglob("*.cpp")):
        text = path.read_text(encoding="utf-8")
        for match in ADDED.finditer(text):
            place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            yield place, TEXT.findall(match.group(1)), "".join(TEXT.findall(match.group(2)))


class Problems(unittest.TestCase):
    def test_options_exist_and_are_named(self):
        known = known_options()
        problems = list(added_problems())
        self.assertGreater(len(problems), 50, "the pattern finds the checks")
        for place, options, wrong in problems:
            for option in options:
                self.assertTrue(option in known, f"{place}: there is no option --{option}")
            for option in re.findall(r"--([a-z][a-z0-9-]+)", wrong) if options else ():  # a list made elsewhere: unit tests
                self.assertIn(option, options, f"{place}: about(...) leaves out --{option}")


if __name__ == "__main__":
    unittest.main()
