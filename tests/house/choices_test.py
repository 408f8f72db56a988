"""Once the command line is parsed, every choice is an enum or a number: no code compares a choice with text, looks up a
name or decides by part of a name. Each rule below finds nothing in the sources, and finds the violation in its example.

    tests/house/choices_test.py [-v]     counts; fails if something is found
    tests/house/choices_test.py --count [ROOT]   prints the number for each rule, also for another tree
"""

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The choices of a run, by the names of fields, variables and parameters.
CHOICES = ("schedule|zero_stage|stage|zero_group_size|group_size|groups|offload|device|style|lr_decay_style|optimizer|reduction|"
           "recompute|policy|on_bad_record|on_save_error|tokenizer_type|model_type|position_embedding_type|normalization|gelu|"
           "bert_head|head|task|precision|interaction|pooling|loss|embedding_optimizer|placement|dense_transform|id_policy|ids|"
           "bottom_mlp|top_mlp|table_rows|table_max_ids")
TEXT = r"(?:const std::string&|std::string_view|const char\*|std::string)"

# name -> (what is counted, an example of it). Reading text belongs to the room config, to readers of other programs'
# files (Hugging Face's), and to plan files.
RULES = {
    "compared with text": (
        re.compile(rf'(?:\.|->)(?:{CHOICES})(?:\.value_or\("[^"]*"\))? ?[=!]= ?"'), 'if (config.device == "cuda") return;'),
    "taken as text": (
        re.compile(rf"[(,]\s*{TEXT} (?:{CHOICES})\s*[,)]"), "bool on_cuda(std::string_view device);"),
    "kept as text": (
        re.compile(rf"^\s*(?:std::optional<)?std::string>? (?:{CHOICES})(?: = [^;]*)?;", re.M), '  std::string device = "auto";'),
    "looked up": (
        re.compile(r"\b(?:find_schedule|dtype_named)\(\*?config\."), "return dtype_named(*config.dtype);"),
    "decided by a part of a name": (
        re.compile(r'\b(?:name|difference|option|problem|layer|what)\.(?:find|starts_with|ends_with|contains)\("(?!\.)'),
        'if (name.starts_with("param/")) return;'),
}

# Code that looks like a choice but is none.
EXCEPTIONS = {
    "src/plan/report.h": "the name of the schedule, as a report shows it",
    "src/zero/param_store.h": "the folder that files are in",
    "src/preprocess/ids/number_ids.h": "the file that ids are written to",
}

# Files whose purpose is text.
READERS = re.compile(r"^src/(?:config/(?!fields/(?:recommend_)?config\.h)|models/hugging_face|schedule/torch/|ops/|comm/|core/)|^launch/faults/fault_test|"
                     r"^src/(?:tokenize/|preprocess/|clicks/|text/text_)")


def sources(root):
    for folder in ("src", "launch"):
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix in (".h", ".cpp", ".cu") and not READERS.match(name) and name not in EXCEPTIONS:
                yield path


def findings(root):
    """{rule: ["file:line: text"]} of a tree."""
    found = {rule: [] for rule in RULES}
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        for rule, (pattern, _) in RULES.items():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found[rule].append(f"{path.relative_to(root)}:{line}: {match.group(0).strip()}")
    return found


class Choices(unittest.TestCase):
    def test_each_rule_finds_its_pattern(self):
        for rule, (pattern, example) in RULES.items():
            self.assertTrue(pattern.search(example), rule)

    def test_there_is_nothing_to_look_up(self):
        for rule, places in findings(ROOT).items():
            self.assertEqual(places, [], f"a choice is {rule}")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--count":
        for rule, places in findings(Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT).items():
            print(f"{len(places):4}  {rule}")
            print("".join(f"      {place}\n" for place in places), end="")
        sys.exit(0)
    unittest.main()
