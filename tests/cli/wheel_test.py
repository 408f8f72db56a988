"""The Python wheel: tools/wheel.sh makes it from the build folder, and pip installs a working program."""

import importlib.util
import os
import pathlib
import re
import subprocess
import unittest

import clean_root
import installed

ROOT = pathlib.Path(os.environ["TRIFOLD_ROOT"])
NO_TOOLS = 3  # the exit status of tools/wheel.sh when pip cannot get auditwheel


@unittest.skipUnless(importlib.util.find_spec("ensurepip"), "venv is missing (package python3-venv)")
class Wheel(installed.InstalledTest):
    def test_the_wheel(self):
        made = subprocess.run([str(ROOT / "tools/wheel.sh"), "--build", os.environ["TRIFOLD_BUILD"], "--output",
                               str(self.folder)], capture_output=True, text=True, timeout=400, check=False)
        if made.returncode == NO_TOOLS:
            self.skipTest(made.stderr)
        self.assertEqual(made.returncode, 0, made.stderr)
        (wheel,) = self.folder.glob("trifold-*-py3-none-manylinux_2_*_x86_64.whl")

        subprocess.run(["python3", "-m", "venv", str(self.folder / "venv")], timeout=100, check=True)
        binaries = self.folder / "venv" / "bin"
        self.run_there(binaries / "pip", "install", "--no-index", "--quiet", wheel)
        (package,) = (self.folder / "venv" / "lib").glob("python3.*/site-packages/trifold")

        libraries = package.with_name("trifold.libs")
        for line in self.run_there("ldd", package / "bin" / "trifold").splitlines():
            name, _, rest = line.strip().partition(" => ")
            # The libraries that PEP 600 guarantees on every host of this kind of wheel, and those in the wheel.
            if not re.match(installed.HOST_LIBRARIES + r"|^lib(gcc_s|stdc\+\+|z)\.so", name):
                self.assertTrue(pathlib.Path(rest.split(" ")[0]).resolve().is_relative_to(libraries.resolve()), line)

        self.check_program(binaries / "trifold")
        self.assertRegex(self.run_there(binaries / "python", "-m", "trifold", "--version"), r"^trifold \d")
        self.run_there(binaries / "python", "-c", "import trifold; trifold.export, trifold.train")
        self.check_in_clean_root(
            clean_root.with_dependencies(["python3", "libgcc-s1", "libstdc++6", "zlib1g"]),
            lambda root: self.run_there(binaries / "pip", "install", "--no-index", "--quiet", "--target", root / "opt", wheel),
            "/usr/bin/python3", "-m", "trifold", environment={"PYTHONPATH": "/opt"})
        self.check_share(self.folder / "venv" / "share")
        self.check_documents(package / "share" / "doc" / "trifold")


if __name__ == "__main__":
    unittest.main()
