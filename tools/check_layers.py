#!/usr/bin/env python3
"""Checks that rooms depend only on lower rooms.

Rooms and their levels are the table below, the same as in docs/architecture.md. Checked, with file:line messages:
  - a file includes headers of its own room or of rooms of a lower level, nothing else;
  - a header of the project is included with its room in front ("core/error.h"), never by a path relative to the file;
  - every folder under src is a known room;
  - the sub-folders listed in APART include nothing else of their room;
  - the sub-folders of a room in ORDERED include only themselves and those listed before them;
  - a room's CMakeLists.txt names only lower rooms, in trifold_room(... ROOMS ...) or anywhere else.

    tools/check_layers.py [ROOT]     exit status 0: clean, 1: something points up
"""

import re
import sys
from pathlib import Path

# room -> level. A dependency goes to the same room or to a room of a lower level.
LEVELS = {
    "core": 0,
    "ops": 1, "config": 1, "files": 1,
    "comm": 2, "optim": 2, "tokenize": 2, "schedule": 2,
    "mesh": 3, "data": 3,
    "nn": 4, "checkpoint": 4, "text": 4, "clicks": 4,
    "graph": 5, "tensor_parallel": 5, "embedding": 5, "preprocess": 5, "tasks": 5,
    "models": 6, "pipeline": 6, "data_parallel": 6, "zero": 6,
    "layout": 7,
    "plan": 8,
    "run": 9,
    "train": 10, "recommend": 10,
    "monitor": 11, "convert": 11, "bench": 11, "rehearse": 11,
    "launch": 12,
}

# (from, to): the allowed exceptions between rooms of one level.
EXCEPTIONS = {("zero", "data_parallel")}

# Sub-folders with an idea of their own: the rest of the room may use them, not the other way round.
APART = {"plan/forecast", "tokenize/unicode"}

# Rooms whose sub-folders stand in an order: each uses itself and those before it.
ORDERED = {"config": ["fields", "options", "subjects", "commands", "foreign", "command_line"]}

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
TARGET = re.compile(r"\btrifold_(\w+)\b")
ROOM_CALL = re.compile(r"\btrifold_room\s*\(([^)]*)\)", re.DOTALL)
KEYWORDS = {"ROOMS", "LIBS"}


def may_use(room, other):
    """True when files of `room` may include headers of `other`."""
    return room == other or LEVELS[other] < LEVELS[room] or (room, other) in EXCEPTIONS


def why_not(room, other):
    return (f"room '{room}' (level {LEVELS[room]}) may not use room '{other}' (level {LEVELS[other]}): "
            "only rooms of a lower level")


def check_include(room, included):
    """The problem with `#include "included"` in a file of `room`, or None."""
    parts = included.split("/")
    if len(parts) == 1 or "." in parts or ".." in parts:
        return f'write "{included}" with its room in front, as in "{room}/{parts[-1]}"'
    if parts[0] not in LEVELS:
        return f"'{parts[0]}' in \"{included}\" is not a room; an outside header is included with <>"
    return None if may_use(room, parts[0]) else why_not(room, parts[0])


def check_apart(place, included):
    """The problem with `#include "included"` in a file of the sub-folder `place`, or None."""
    room = place.split("/")[0]
    if place in APART and included.startswith(room + "/") and not included.startswith(place + "/"):
        return f"sub-folder '{place}' stands apart: it may not use \"{included}\" of its room"
    return None


def check_ordered(place, included):
    """The problem with `#include "included"` in a file of the sub-folder `place` of a room in ORDERED, or None."""
    room, folder = place.split("/")[:2]
    parts = included.split("/")
    if room not in ORDERED or parts[0] != room:
        return None
    order = ORDERED[room]
    for name in (folder, parts[1]):
        if name not in order:
            return f"'{room}/{name}' has no place in the order of {room}'s sub-folders: add it to ORDERED in tools/check_layers.py"
    if order.index(parts[1]) <= order.index(folder):
        return None
    return f"sub-folder '{room}/{folder}' comes before '{room}/{parts[1]}': it may not use \"{included}\""


def check_source(room, folder, path):
    place = f"{room}/{path.relative_to(folder).parent.as_posix()}"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        problem = match and (check_include(room, match.group(1)) or check_apart(place, match.group(1)) or
                             check_ordered(place, match.group(1)))
        if problem:
            yield path, number, problem


def strip_comments(text):
    return re.sub(r"#[^\n]*", "", text)


def linked_rooms(text):
    """(offset, room) of each room that the text of a CMakeLists.txt names as something to link."""
    for match in TARGET.finditer(text):
        if match.group(1) in LEVELS:
            yield match.start(), match.group(1)
    for call in ROOM_CALL.finditer(text):
        wanted = False
        for word in list(re.finditer(r"\S+", call.group(1)))[1:]:
            if word.group() in KEYWORDS:
                wanted = word.group() == "ROOMS"
            elif wanted:
                yield call.start(1) + word.start(), word.group()


def check_cmake(room, path):
    text = strip_comments(path.read_text(encoding="utf-8"))
    for offset, other in linked_rooms(text):
        number = text.count("\n", 0, offset) + 1
        if other not in LEVELS:
            yield path, number, f"'{other}' is not a room"
        elif not may_use(room, other):
            yield path, number, why_not(room, other)


def rooms_of(root):
    """(name, folder) of each room present."""
    for folder in sorted((root / "src").iterdir()) if (root / "src").is_dir() else []:
        if folder.is_dir():
            yield folder.name, folder
    if (root / "launch").is_dir():
        yield "launch", root / "launch"


def check_tree(root):
    """All problems of the tree at `root`, as (path, line, message)."""
    problems = []
    for room, folder in rooms_of(root):
        if room not in LEVELS:
            problems.append((folder, 1, f"'{room}' is not a room: add it, with its level, to tools/check_layers.py "
                                        "and docs/architecture.md"))
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in SOURCES:
                problems += check_source(room, folder, path)
            elif path.name == "CMakeLists.txt":
                problems += check_cmake(room, path)
    return problems


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    if not (root / "src").is_dir():
        print(f"{root}: no folder src here", file=sys.stderr)
        return 1
    problems = check_tree(root)
    for path, number, message in problems:
        print(f"{path.relative_to(root)}:{number}: {message}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
