"""JSON is written and parsed by the functions of core/read_json.h, whose errors are for people.

The library's own dump() throws at a byte that is not UTF-8, such as a file's name may have, and its exceptions begin with
"[json.exception". What ranks of a run send each other may be parsed directly.
"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = "src/core/read_json.cpp"
OWN_MESSAGES = {"src/checkpoint/writer.cpp", "src/checkpoint/background_saver.cpp", "src/run/terms.cpp", "src/text/stream_bookmark.cpp"}


def calls(text):
    """(line, call) of each use of the library's functions that throw."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\.dump\(", line) and "error_handler_t" not in line:
            yield number, "dump"
        if re.search(r"json::parse\(", line) and "nullptr, false)" not in line:
            yield number, "parse"
        if re.search(r"catch \(.*json::\w*exception", line):
            yield number, "catch"


class Json(unittest.TestCase):
    def test_the_search_finds_each_call(self):
        text = "value.dump();\nvalue.dump(2)\njson::parse(text)\ncatch (const nlohmann::json::exception& e)\nx.dump(1, ' ', true, json::error_handler_t::replace)"
        self.assertEqual([call for _, call in calls(text)], ["dump", "dump", "parse", "catch"])

    def test_nobody_else_calls_the_library(self):
        found = []
        for folder in ("src", "launch"):
            for path in sorted((ROOT / folder).rglob("*.[ch]*")):
                name = str(path.relative_to(ROOT))
                found += [f"{name}:{line}: {call}" for line, call in calls(path.read_text())
                          if name != HOME and not (call == "parse" and name in OWN_MESSAGES)]
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
