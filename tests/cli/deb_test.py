"""The Debian package: cpack makes it from the build folder, it names every package it needs, and it runs from where it
is unpacked."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import clean_root
import installed


def output_of(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=True).stdout


def needed_libraries(file):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", file))


def owners(library):
    """Packages that have a library of this name."""
    found = output_of("dpkg-query", "--search", f"*/{library}")
    return {line.split(":")[0] for line in found.splitlines() if line.endswith("/" + library)}


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "dpkg-shlibdeps is missing (package dpkg-dev)")
class Deb(installed.InstalledTest):
    def test_the_package(self):
        config = pathlib.Path(os.environ["TRIFOLD_BUILD"]) / "CPackConfig.cmake"
        output_of("cpack", "--config", config, "-B", self.folder)
        (package,) = self.folder.glob("trifold_*_*.deb")
        root = self.folder / "root"
        output_of("dpkg", "-x", package, root)

        self.assertEqual(output_of("dpkg-deb", "--field", package, "Package"), "trifold\n")
        depends = set(re.findall(r"([\w.+-]+)(?: \([^)]*\))?(?:, |$)",
                                 output_of("dpkg-deb", "--field", package, "Depends").strip()))
        self.assertIn("libc6", depends)
        binaries = [root / "usr/bin/trifold", *(root / "usr/lib/trifold").iterdir()]
        self.assertTrue(all(b.name == "trifold" or b.name.startswith("trifold_") for b in binaries), binaries)
        for library in {name for binary in binaries for name in needed_libraries(binary)}:
            self.assertTrue(owners(library) & depends, f"{library} is in none of {depends}")

        self.check_program(root / "usr/bin/trifold")
        self.check_in_clean_root(clean_root.with_dependencies(depends), lambda clean: output_of("dpkg", "-x", package, clean),
                                 "/usr/bin/trifold")
        self.check_share(root / "usr/share")
        documents = root / "usr/share/doc/trifold"
        self.check_documents(documents)
        self.assertIn("Apache-2.0", (documents / "copyright").read_text(encoding="utf-8"))
        self.check_with_lintian(package)

    def check_with_lintian(self, package):
        if not shutil.which("lintian"):
            print("lintian is missing (package lintian): the package is not checked by it")
            return
        # Without DEBEMAIL the maintainer's address names this host, which lintian reports.
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", "--suppress-tags",
                               "bogus-mail-host,bogus-mail-host-in-debian-changelog", package], capture_output=True,
                              text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
