"""The layer check finds violations, this tree passes it, and its table is the one in docs/architecture.md."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import check_layers  # noqa: E402


def messages(files):
    """What the check says about a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return [f"{path.relative_to(root)}:{line}: {text}" for path, line, text in check_layers.check_tree(root)]


class Includes(unittest.TestCase):
    def test_downward_and_own_are_fine(self):
        self.assertEqual(messages({"src/mesh/mesh.h": '#include <map>\n#include "core/error.h"\n#include "mesh/rect.h"\n',
                                   "launch/main.cpp": '#include "train/trainer.h"\n'}), [])

    def test_upward_is_caught_with_its_place(self):
        found = messages({"src/core/tensor.h": '#pragma once\n#include "mesh/mesh.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("src/core/tensor.h:2: room 'core' (level 0) may not use room 'mesh' (level 3)", found[0])

    def test_sideways_is_caught_but_for_the_exception(self):
        self.assertEqual(len(messages({"src/models/gpt.h": '#include "pipeline/executor.h"\n'})), 1)
        self.assertEqual(len(messages({"src/data_parallel/norm.h": '#include "zero/store.h"\n'})), 1)
        self.assertEqual(messages({"src/zero/store.h": '#include "data_parallel/bucket.h"\n'}), [])

    def test_own_header_needs_its_room(self):
        self.assertIn('as in "core/error.h"', messages({"src/core/error.cpp": '#include "error.h"\n'})[0])
        self.assertIn('as in "ops/ops.h"', messages({"src/ops/x.cpp": '#include "../ops/ops.h"\n'})[0])

    def test_sub_folders_that_stand_apart(self):
        self.assertEqual(messages({"src/plan/report.h": '#include "plan/forecast/hardware.h"\n',
                                   "src/plan/forecast/kernels.h": '#include "plan/forecast/hardware.h"\n#include "config/fields/config.h"\n'}), [])
        found = messages({"src/plan/forecast/kernels.h": '#pragma once\n#include "plan/report.h"\n'})
        self.assertEqual(found, ["src/plan/forecast/kernels.h:2: sub-folder 'plan/forecast' stands apart: it may not use \"plan/report.h\" of its room"])

    def test_sub_folders_in_an_order(self):
        self.assertEqual(messages({"src/config/options/option.h": '#include "config/fields/named.h"\n#include "config/options/rule.h"\n'}), [])
        found = messages({"src/config/options/option.h": '#pragma once\n#include "config/commands/json.h"\n'})
        self.assertEqual(found, ["src/config/options/option.h:2: sub-folder 'config/options' comes before 'config/commands': "
                                 "it may not use \"config/commands/json.h\""])
        self.assertIn("'config/attic' has no place", messages({"src/config/attic/box.h": '#include "config/fields/config.h"\n'})[0])

    def test_unknown_rooms(self):
        self.assertIn("'attic' is not a room", messages({"src/attic/box.h": ""})[0])
        self.assertIn("'fmt'", messages({"src/core/error.h": '#include "fmt/format.h"\n'})[0])


class Links(unittest.TestCase):
    def test_lower_rooms_are_fine(self):
        text = "trifold_room(mesh ROOMS core comm LIBS fmt::fmt)  # not trifold_train\n"
        self.assertEqual(messages({"src/mesh/CMakeLists.txt": text}), [])

    def test_upward_room_is_caught(self):
        found = messages({"src/comm/CMakeLists.txt": "trifold_room(comm\n  ROOMS core\n  mesh\n  LIBS fmt::fmt)\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("src/comm/CMakeLists.txt:3: room 'comm' (level 2) may not use room 'mesh'", found[0])

    def test_upward_target_is_caught(self):
        text = "trifold_room(comm ROOMS core)\ntarget_link_libraries(module PRIVATE trifold_train)\n"
        self.assertIn("CMakeLists.txt:2:", messages({"src/comm/CMakeLists.txt": text})[0])


class Table(unittest.TestCase):
    def test_this_tree_is_clean(self):
        self.assertEqual(check_layers.check_tree(ROOT), [])

    def test_the_architecture_page_has_the_same_table(self):
        levels, level = {}, None
        for line in (ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines():
            match = re.match(r"\| (\d+)? ?\| `(\w+)` \|", line)
            level = int(match.group(1)) if match and match.group(1) else level
            if match and match.group(2) in check_layers.LEVELS:
                levels[match.group(2)] = level
        self.assertEqual(levels, check_layers.LEVELS)

    def test_sub_folders_that_stand_apart_exist(self):
        for place in check_layers.APART:
            self.assertTrue((ROOT / "src" / place).is_dir(), place)


if __name__ == "__main__":
    unittest.main()
