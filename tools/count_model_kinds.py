#!/usr/bin/env python3
"""Counts the places outside the families' own files that decide by the kind of model.

A family of models has its files, whose names contain it (bert, gpt, gpt2, llama, graph), the files of Hugging Face's
families that are of its kind (models/hugging_face/families), and an entry in the tables of
config/subjects/model_family.cpp and models/language_family.cpp. All other code uses the tables. Usage:
count_model_kinds.py [--most N] [ROOT]

Prints each place, and their number. With --most the exit status is 1 if there are more than N.
"""
import argparse
import pathlib
import re
import sys

# Patterns of code that tests the kind of model, each with an example.
PATTERNS = {
    r"\bis_(?:bert|gpt|llama)\(": "if (is_bert(model)) return;",
    r"\bModelType::\w+": "model.model_type == ModelType::Bert",
    r"\bmodel_type\s*[=!]=": "if (config.model_type != other)",
    r"\bswitch \([\w.]*model_type\)": "switch (config.model_type) {",
}
# Files of one family, the tables, and the files of the enum and its names.
OWN = re.compile(r"(?:^|[/_])(?:bert|gpt|gpt2|llama|graph)(?:[._]|$)|/(?:model|language)_family\.|^src/models/hugging_face/families/|^src/config/fields/(?:choices|config|model_config)\.h$")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def places(root):
    """"file:line: text" of each place."""
    found = []
    for folder in ("src", "launch"):
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cpp", ".cu") or OWN.search(name):
                continue
            for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
                if any(re.search(pattern, line) for pattern in PATTERNS):
                    found.append(f"{name}:{number}: {line.strip()}")
    return found


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    given = parser.parse_args(arguments)
    for pattern, example in PATTERNS.items():
        assert re.search(pattern, example), f"{pattern} does not find its example"
    found = places(given.root)
    print("\n".join([*found, f"{len(found)} places outside a family's own files decide by the kind of model"]))
    return 1 if given.most is not None and len(found) > given.most else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
