"""The object files of the kernels define one global symbol each: their table.

They are compiled for instruction sets that the host may not have. A function with external linkage in one of them (an
inline function of a header, say) would be one of several copies that the linker takes for the same, and the one it
keeps might be the one that only newer processors can run.

usage: kernels_test.py NM OBJECT...
"""
import pathlib
import subprocess
import sys
import unittest

NM = ""
OBJECTS = []
TABLES = {"generic": "kKernelsGeneric", "x86_64_v3": "kKernelsV3", "x86_64_v4": "kKernelsV4"}


class Kernels(unittest.TestCase):
    def test_only_the_table_is_global(self):
        self.assertTrue(OBJECTS, "no object files were named")
        for path in OBJECTS:
            with self.subTest(path=path):
                text = subprocess.run([NM, "-C", "--extern-only", "--defined-only", "--format=posix", path],
                                      check=True, capture_output=True, text=True).stdout
                symbols = {line.rsplit(" ", 3)[0] for line in text.splitlines()}
                table = TABLES[pathlib.Path(path).name.split(".")[0]]
                self.assertEqual(symbols, {"trifold::cpu::" + table})


if __name__ == "__main__":
    NM, *OBJECTS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
