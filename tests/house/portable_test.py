"""The project is self-contained: its presets parse, its scripts are executable, and no file names a path outside it."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A home or work folder, which exists on one machine only.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:home|root|Users|work|mnt|scratch)/[\w./-]+")
UPWARDS = re.compile(r"(?<![\w.])(?:\.\./)+[\w-]+")
RUN_BY_HAND = ["launch/quickstart.sh", "tests/run.sh", ".ci/run", "tools/install_dependencies.sh", "tools/format.sh",
               "tools/tidy.sh", "tools/check_layers.py", "tools/plot_loss.py"]


def project_files():
    """Paths of the files of the project, relative to its root: what git tracks, or every file outside build folders."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
            if path.is_file() and path.relative_to(ROOT).parts[0] not in ("build", ".git")]


def outside_paths(name, text):
    """(line, path) of each path in `text`, the content of file `name`, that lies outside the project."""
    depth = name.count("/")
    for number, line in enumerate(text.splitlines(), 1):
        for match in MACHINE_PATH.finditer(line):
            yield number, match.group()
        for match in UPWARDS.finditer(line):
            if match.group().count("../") > depth:
                yield number, match.group()


class StandsAlone(unittest.TestCase):
    def test_the_search_finds_each_pattern(self):
        home = "/" + "home/ann/data.txt"
        self.assertEqual(list(outside_paths("README.md", f"ok\nsee {home}")), [(2, home)])
        self.assertEqual(list(outside_paths("README.md", "see .." + "/notes")), [(1, ".." + "/notes")])
        self.assertEqual(list(outside_paths("docs/decisions/a.md", "see ../architecture.md, $HOME/some/x")), [])

    def test_no_file_names_a_place_outside(self):
        found = []
        for name in project_files():
            try:
                text = (ROOT / name).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # binary
            found += [f"{name}:{line}: {path}" for line, path in outside_paths(name, text)]
        self.assertEqual(found, [])


class Presets(unittest.TestCase):
    def test_cmake_accepts_them(self):
        done = subprocess.run(["cmake", "--list-presets=all"], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for preset in ("release", "debug", "asan", "tsan", "clang"):
            self.assertIn(f'"{preset}"', done.stdout)

    def test_every_build_goes_under_build(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        folders = [p["binaryDir"] for p in presets["configurePresets"] if "binaryDir" in p]
        self.assertEqual(folders, ["${sourceDir}/build/${presetName}"])


class Scripts(unittest.TestCase):
    def test_they_can_be_run(self):
        for name in RUN_BY_HAND:
            with self.subTest(name):
                self.assertTrue(os.access(ROOT / name, os.X_OK))


if __name__ == "__main__":
    unittest.main()
