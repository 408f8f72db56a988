"""docs/options.md lists the options that the program has."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from program import TRIFOLD

ROOT = pathlib.Path(os.environ["TRIFOLD_ROOT"])
PAGE = ROOT / "docs" / "options.md"


sys.path.insert(0, str(ROOT / "tools"))
import options_page  # noqa: E402


def check(page):
    return subprocess.run([sys.executable, str(ROOT / "tools" / "options_page.py"), TRIFOLD, "--check", str(page)],
                          capture_output=True, text=True, encoding="utf-8", check=False)


class OptionsPage(unittest.TestCase):
    def test_it_is_up_to_date(self):
        done = check(PAGE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_it_has_every_option(self):
        golden = (ROOT / "tests" / "golden" / "options.txt").read_text(encoding="utf-8")
        spelled = {name for names in re.findall(r"^  (--\S+)", golden, re.MULTILINE) for name in names.split(",")}
        listed = set(re.findall(r"`(--[\w-]+)", PAGE.read_text(encoding="utf-8")))
        self.assertEqual(spelled - listed, set())

    def test_megatron_spellings_are_of_options(self):
        rows = PAGE.read_text(encoding="utf-8").splitlines()
        listed = {option for option, spelling in options_page.MEGATRON.items()
                  if any(re.match(rf"\| `{option}[ `]", row) and f"| {spelling} |" in row for row in rows)}
        self.assertEqual(set(options_page.MEGATRON) - listed, set())

    def test_another_help_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "options.md"
            page.write_text(PAGE.read_text(encoding="utf-8").replace("Transformer blocks.", "Blocks."), encoding="utf-8")
            done = check(page)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Transformer blocks.", done.stdout)
        self.assertIn("write it with: tools/options_page.py", done.stderr)


if __name__ == "__main__":
    unittest.main()
