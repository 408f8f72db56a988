"""tools/tidy.sh checks the files it is given, also where the build joins them, and says which it cannot check."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# In the place of clang-tidy: prints the file, and the command that the database has for it.
CHECKER = """#!/usr/bin/env python3
import json, sys
folder = sys.argv[sys.argv.index("-p") + 1]
file = next(word for word in sys.argv[1:] if word.endswith(".cpp"))
print(file, next(entry["command"] for entry in json.load(open(folder + "/compile_commands.json")) if entry["file"].endswith("/" + file)))
"""


class Tidy(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name).resolve()
        build = self.root / "build/release"
        unity = build / "src/Unity/unity_0_cxx.cxx"
        for folder in (self.root / "tools", self.root / "src", self.root / "bin", unity.parent):
            folder.mkdir(parents=True)
        for tool in ("tidy.sh", "tidy_commands.py"):
            shutil.copy(ROOT / "tools" / tool, self.root / "tools")
        for name in ("a", "b", "c", "d"):
            (self.root / f"src/{name}.cpp").touch()
        unity.write_text("".join(f'#include "{self.root}/src/{name}.cpp"\n' for name in "ab"))
        alone = self.root / "src/c.cpp"
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "file": str(unity), "command": f"g++ -DJOINED -include {build}/cmake_pch.hxx -c {unity}"},
             {"directory": str(build), "file": str(alone), "command": f"g++ -DALONE -c {alone}"}]))
        checker = self.root / "bin/clang-tidy"
        checker.write_text(CHECKER)
        checker.chmod(0o755)

    def tidy(self, *arguments):
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "TRIFOLD_JOBS": "1"}
        return subprocess.run(["tools/tidy.sh", *arguments], cwd=self.root, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def test_named_files_are_checked_alone(self):
        done = self.tidy("src/b.cpp", "src/c.cpp", "src/d.cpp")
        self.assertEqual(done.stdout, f"clang-tidy on 2 files\nsrc/b.cpp g++ -DJOINED -c {self.root}/src/b.cpp\n"
                                      f"src/c.cpp g++ -DALONE -c {self.root}/src/c.cpp\n", done.stderr)
        self.assertEqual(done.stderr, "not compiled here, so not checked: src/d.cpp\n")
        self.assertEqual(done.returncode, 0)

    def test_nothing_checked_is_a_failure(self):
        done = self.tidy("src/d.cpp")
        self.assertEqual((done.returncode, done.stdout), (1, "clang-tidy on 0 files\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
