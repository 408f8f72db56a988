"""What `cmake --install` makes runs where it is moved to, with the libraries that stand beside it."""

import os
import pathlib
import re
import subprocess
import unittest

import program

# What every Linux host has in its own version: glibc and the kernel's.
OF_THE_HOST = re.compile(r"^(lib(c|m|dl|rt|pthread|util|resolv|anl)\.so|/lib.*/ld-linux|linux-vdso)")


class Install(program.ProgramTest):
    def test_the_tree_can_be_moved(self):
        build = os.environ["TRIFOLD_BUILD"]
        subprocess.run(["cmake", "--install", build, "--prefix", str(self.folder / "first")], check=True,
                       capture_output=True, timeout=200)
        home = self.folder / "moved" / "trifold"
        home.parent.mkdir()
        (self.folder / "first").rename(home)
        binary = home / "bin" / "trifold"
        environment = {"PATH": os.environ["PATH"]}

        found = subprocess.run(["ldd", str(binary)], env=environment, capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            name, _, rest = line.strip().partition(" => ")
            if not OF_THE_HOST.match(name):
                self.assertTrue(pathlib.Path(rest.split(" ")[0]).resolve().is_relative_to(home.resolve()), line)

        done = subprocess.run([str(binary), "pretrain", *program.SMALL, "--data-path", str(program.TEXT),
                               "--train-iters", "2"], cwd=self.folder, env=environment, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
