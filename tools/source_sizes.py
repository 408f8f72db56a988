#!/usr/bin/env python3
"""Sizes of the source in lines: files, functions and rooms under src and launch.

    tools/source_sizes.py [ROOT]    prints the figures; those of functions need the package lizard (pip install lizard)
    tools/source_sizes.py --check   exit status 1 if a room but ops has more than 4000 lines, sub-folders not counted
"""

import sys
from pathlib import Path

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
MOST_LINES, EXEMPT = 4000, {"ops"}


def files_of(root):
    """{path relative to the root: lines} of C++ and CUDA."""
    return {path.relative_to(root): path.read_text(encoding="utf-8").count("\n")
            for top in ("src", "launch") for path in sorted((root / top).rglob("*")) if path.suffix in SOURCES}


def folders_of(files):
    """{room or sub-folder: (files, lines)}, each without its own sub-folders."""
    folders = {}
    for path, lines in files.items():
        name = "/".join(path.parent.parts[1:]) or path.parts[0]
        count, total = folders.get(name, (0, 0))
        folders[name] = (count + 1, total + lines)
    return folders


def percentiles(values, wanted):
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in wanted]


def functions_of(root, files):
    """(lines, place) of each function of C++, or None without lizard."""
    try:
        import lizard  # pylint: disable=import-outside-toplevel
    except ImportError:
        return None
    return [(function.end_line - function.start_line + 1, f"{path}: {function.name}")
            for path in files if path.suffix in {".h", ".cpp"}
            for function in lizard.analyze_file(str(root / path)).function_list]


def report(root):
    files = files_of(root)
    print(f"files, lines: {len(files)}, {sum(files.values())}")
    median, ninetieth = percentiles(files.values(), (50, 90))
    longest = max(files, key=files.get)
    print(f"a file: median {median}, 90th percentile {ninetieth}, longest {files[longest]} ({longest})")
    folders = folders_of(files)
    rooms = [count for name, (count, _) in folders.items() if "/" not in name]
    median, ninetieth = percentiles(rooms, (50, 90))
    print(f"files in a room: median {median}, 90th percentile {ninetieth}")
    for name, (count, lines) in sorted(folders.items(), key=lambda item: -item[1][1])[:12]:
        print(f"    {name}: {count} files, {lines} lines")
    functions = functions_of(root, files)
    if functions is None:
        print("functions: lizard is not installed (pip install lizard)")
        return
    median, ninetieth, ninety_ninth = percentiles([lines for lines, _ in functions], (50, 90, 99))
    print(f"a function: median {median}, 90th percentile {ninetieth}, 99th {ninety_ninth}")
    for lines, place in sorted(functions, reverse=True)[:5]:
        print(f"    {lines} lines: {place}")


def check(root):
    """0 if every room keeps the limit."""
    large = {name: lines for name, (_, lines) in folders_of(files_of(root)).items()
             if lines > MOST_LINES and name.split("/")[0] not in EXEMPT}
    for name, lines in large.items():
        print(f"{name} has {lines} lines, more than {MOST_LINES}: give one of its ideas a sub-folder or a room")
    return 1 if large else 0


def main(arguments):
    root = Path(__file__).resolve().parents[1]
    if arguments == ["--check"]:
        return check(root)
    if len(arguments) > 1 or any(word.startswith("-") for word in arguments):
        print("\n".join(__doc__.splitlines()[2:]), file=sys.stderr)
        return 2
    report(Path(arguments[0]) if arguments else root)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
