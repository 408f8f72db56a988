#!/usr/bin/env python3
"""Writes FOLDER/tidy/compile_commands.json: how each of FILE... is compiled alone, for tools/tidy.sh.

Usage: tools/tidy_commands.py FOLDER FILE...

FOLDER is a configured build folder. One that joins files (CMAKE_UNITY_BUILD) has commands only for files that include
others; a file then gets the command of the one that includes it. Options that name a precompiled header are left out:
only the compiler that wrote it can read it. Prints the files that have a command."""

import json
import re
import sys
from pathlib import Path

PRECOMPILED = re.compile(r" -Xclang -include-pch -Xclang \S+ -Xclang -include -Xclang \S+| -include \S*/cmake_pch\.hxx")


def by_source(commands):
    """Source: its entry, alone or joined with others."""
    found = {}
    for entry in commands:
        source = Path(entry["file"])
        if source.parent.name == "Unity" and source.exists():
            for name in re.findall(r'^#include "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE):
                found.setdefault(name, {**entry, "file": name, "command": entry["command"].replace(str(source), name)})
        else:
            found[str(source)] = entry
    return found


def main(folder, files):
    commands = by_source(json.loads((folder / "compile_commands.json").read_text(encoding="utf-8")))
    chosen = {file: commands[name] for file in files if (name := str(Path(file).resolve())) in commands}
    (folder / "tidy").mkdir(exist_ok=True)
    alone = [{**entry, "command": PRECOMPILED.sub("", entry["command"])} for entry in chosen.values()]
    (folder / "tidy" / "compile_commands.json").write_text(json.dumps(alone, indent=1), encoding="utf-8")
    print(*chosen, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
