"""docs/families.md says what the program does with each family of Hugging Face's models."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from program import TRIFOLD

ROOT = pathlib.Path(os.environ["TRIFOLD_ROOT"])
PAGE = ROOT / "docs" / "families.md"
LIST = ROOT / "src" / "models" / "hugging_face" / "families.inc"


class FamiliesPage(unittest.TestCase):
    def test_it_is_up_to_date(self):
        done = subprocess.run([sys.executable, str(ROOT / "tools" / "families_page.py"), TRIFOLD, "--check", str(PAGE)],
                              capture_output=True, text=True, encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_it_has_every_family(self):
        families = re.findall(r"^FAMILY\((\w+)\)", LIST.read_text(encoding="utf-8"), re.MULTILINE)
        rows = re.findall(r"^\| \w+ \| `([\w-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(set(families) - {row.replace("-", "_") for row in rows}, set())


if __name__ == "__main__":
    unittest.main()
