"""A tree made by `cmake --install` runs wherever it is moved, with its own libraries."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import installed


class Install(installed.InstalledTest):
    def test_the_tree_can_be_moved(self):
        subprocess.run(["cmake", "--install", os.environ["TRIFOLD_BUILD"], "--prefix", "/usr"], check=True,
                       env={**os.environ, "DESTDIR": str(self.folder / "first")}, capture_output=True, timeout=200)
        home = self.folder / "moved" / "trifold"
        home.parent.mkdir()
        (self.folder / "first" / "usr").rename(home)
        self.assertEqual([p.name for p in (self.folder / "first").iterdir()], [])
        binary = home / "bin" / "trifold"

        for line in self.run_there("ldd", binary).splitlines():
            name, _, rest = line.strip().partition(" => ")
            if not re.match(installed.HOST_LIBRARIES, name):
                self.assertTrue(pathlib.Path(rest.split(" ")[0]).resolve().is_relative_to(home.resolve()), line)

        self.check_program(binary)
        self.check_in_clean_root(["libc6"], lambda root: shutil.copytree(home, root / "opt", symlinks=True), "/opt/bin/trifold")
        self.check_share(home / "share")
        self.check_documents(home / "share" / "doc" / "trifold")


if __name__ == "__main__":
    unittest.main()
