#!/usr/bin/env python3
"""Reads, checks, repeats and shows the measurements of docs/measurements, one JSON file each (docs/measurements/README.md).

    tools/measurements.py list [TEXT]          the measurements, or those whose name, area or title has TEXT
    tools/measurements.py show NAME            one as a table in Markdown, with its commands and notes
    tools/measurements.py check                what is wrong with the files; exit status 1 if anything is
    tools/measurements.py repeat NAME [...]    runs its commands here, and prints old figures, new ones and their ratio
    tools/measurements.py pages [--check]      rewrites the generated tables of the pages

`repeat` needs the built program (--program) and runs each command from the root of the repository in a shell. In its PATH
are the program as `trifold` and the measuring programs of the same build; $TRIFOLD is the program, $BUILD its build folder,
$WORK an empty folder. --write adds a record with the new figures, today's date, the present commit (or --commit) and this
machine; other figures of that record are null. --all also runs commands with `needs`. `pages` replaces what is between
`<!-- table NAME -->` and `<!-- end -->` in docs/benchmarks.md, docs/performance.md and docs/measurements/README.md; NAME is
a measurement or one of the names in GENERATED.
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/measurements"
PAGES = {"docs/benchmarks.md": "measurements/", "docs/performance.md": "measurements/", "docs/measurements/README.md": ""}
STATUSES = ("measured", "emulated", "planned", "counted")
WIDTH = 120

TEXT, TEXTS, OPTIONAL = str, [str], (str, type(None))
FIELDS = {"name": TEXT, "area": TEXT, "title": TEXT, "compared_with": OPTIONAL, "limit": OPTIONAL, "unit": (str, dict),
          "commands": list, "columns": TEXTS, "targets": list, "comparisons": list, "notes": TEXTS, "records": list}
RECORD = {"date": TEXT, "commit": TEXT, "status": TEXT, "hardware": dict, "rows": list, "notes": TEXTS}
HARDWARE = {"name": TEXT, "cpu": OPTIONAL, "device": OPTIONAL, "notes": OPTIONAL}
COMMAND = {"run": TEXT}
COMMAND_OPTIONS = {"extract": list, "repeats": int, "needs": TEXT}
WHERE = {"row": TEXT, "column": TEXT}
SOURCES = ("json", "regex", "seconds", "ratio")
TAKES = {"first": lambda values: values[0], "least": min, "most": max,
         "range": lambda values: {"least": min(values), "most": max(values)}}


class Problem(Exception):
    """A fault of a file or of an argument."""


# ---- Files ----

def text_of(value, indent=0):
    """JSON as the files are written: a container is on one line if it fits, else each of its items is on its own."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (list, dict)) or not value or (indent > 0 and indent + len(line) <= WIDTH):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {text_of(item, indent + 2)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + item for item in items) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(inner + text_of(item, indent + 2) for item in value) + "\n" + " " * indent + "]"


def write(folder, measurement):
    (folder / f"{measurement['name']}.json").write_text(text_of(measurement) + "\n", encoding="utf-8")


def load(folder, name):
    path = folder / f"{name}.json"
    if not path.is_file():
        raise Problem(f"there is no measurement {name}; `tools/measurements.py list` has their names")
    return json.loads(path.read_text(encoding="utf-8"))


def load_all(folder=FOLDER):
    """{name: measurement} in the order of names."""
    return {path.stem: load(folder, path.stem) for path in sorted(folder.glob("*.json"))}


# ---- Cells: null, a text, a number, a list of numbers (runs of one figure) or {"least": number, "most": number} ----

def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_cell(cell):
    if isinstance(cell, list):
        return len(cell) > 0 and all(map(is_number, cell))
    if isinstance(cell, dict):
        return set(cell) == {"least", "most"} and all(map(is_number, cell.values())) and cell["least"] <= cell["most"]
    return cell is None or isinstance(cell, str) or is_number(cell)


def number_text(value):
    """12345.5 as '12 345.5'."""
    if isinstance(value, float) and (abs(value) < 1e-4 or abs(value) >= 1e15) and value != 0:
        return f"{value:g}".replace("e-0", "e-")
    whole, point, rest = repr(value).partition(".")
    if len(whole.lstrip("-")) > 4:
        whole = f"{int(whole):,}".replace(",", " ")
    return whole + point + rest if rest != "0" else whole


def cell_text(cell):
    if cell is None:
        return ""
    if isinstance(cell, list):
        return "; ".join(map(number_text, cell))
    if isinstance(cell, dict):
        return f"{number_text(cell['least'])} to {number_text(cell['most'])}"
    return cell if isinstance(cell, str) else number_text(cell)


def ends(cell):
    """(least, most) of a cell with figures, else None."""
    if isinstance(cell, list):
        return min(cell), max(cell)
    if isinstance(cell, dict):
        return cell["least"], cell["most"]
    return (cell, cell) if is_number(cell) else None


def middle(cell):
    """The number that stands for a cell in comparisons: the median of runs, the middle of a range; None for other cells."""
    if is_number(cell):
        return cell
    if isinstance(cell, list):
        return statistics.median(cell)
    return sum(ends(cell)) / 2 if ends(cell) else None


def cell_of(measurement, record, where):
    row = next((row for row in record["rows"] if row[0] == where["row"]), None)
    return row[measurement["columns"].index(where["column"])] if row else None


def set_cell(measurement, record, where, value):
    row = next(row for row in record["rows"] if row[0] == where["row"])
    row[measurement["columns"].index(where["column"])] = value


# ---- Records, targets and comparisons ----

def current(measurement):
    """The last record of each machine, in the order of the file."""
    last = {}
    for record in measurement["records"]:
        last.pop(record["hardware"]["name"], None)
        last[record["hardware"]["name"]] = record
    return list(last.values())


def unit_of(measurement, row, column):
    """The unit of a cell: of its row, else of its column, else of the measurement."""
    unit = measurement["unit"]
    return unit.get(row, unit.get(column, "")) if isinstance(unit, dict) else unit


def asked_text(measurement, row, target):
    bound = "at least" if "at_least" in target else "at most"
    return f"{bound} {number_text(target.get('at_least', target.get('at_most')))} {unit_of(measurement, row, target['column'])}".rstrip()


def machine_text(record):
    """The machine of a record, or how its figures were found where none was needed."""
    hardware = record["hardware"]
    return hardware["name"] if hardware["cpu"] or hardware["device"] else record["status"]


def rows_of_target(target, record):
    return [row[0] for row in record["rows"] if target.get("row", row[0]) == row[0]]


def misses(measurement):
    """(record, label of the row, target, cell) of figures on the wrong side of their target. Of several runs the worst counts."""
    for record in current(measurement):
        for target in measurement["targets"]:
            for row in rows_of_target(target, record):
                cell = cell_of(measurement, record, {"row": row, "column": target["column"]})
                found = ends(cell)
                if found and (found[0] < target.get("at_least", found[0]) or found[1] > target.get("at_most", found[1])):
                    yield record, row, target, cell


def comparisons(measurements):
    """Of each comparison with another program, on each machine: (measurement, record, comparison, ours, theirs)."""
    for measurement in measurements.values():
        for record in current(measurement):
            for comparison in measurement["comparisons"]:
                ours, theirs = (cell_of(measurement, record, comparison[side]) for side in ("ours", "theirs"))
                if ours is not None and theirs is not None:
                    yield measurement, record, comparison, ours, theirs


# ---- Check ----

def fits(value, kind):
    return isinstance(value, list) and all(isinstance(item, kind[0]) for item in value) if isinstance(kind, list) else isinstance(value, kind)


def field_problems(where, value, fields, optional=()):
    if not isinstance(value, dict):
        yield f"{where} is not an object"
        return
    for key, kind in fields.items():
        if key not in value:
            yield f"{where} has no {key}"
        elif not fits(value[key], kind):
            yield f"{where}: {key} has the wrong type"
    for key in value:
        if key not in fields and key not in optional:
            yield f"{where} has an unknown field {key}"


def place_problems(where, measurement, place):
    if place.get("column") not in measurement["columns"][1:]:
        yield f"{where}: there is no column {place.get('column')!r}"
    if "row" in place and not any(row[0] == place["row"] for record in measurement["records"] for row in record["rows"]):
        yield f"{where}: there is no row {place['row']!r}"


def extract_problems(measurement):
    for command in measurement["commands"]:
        yield from field_problems("a command", command, COMMAND, COMMAND_OPTIONS)
        for rule in command.get("extract", ()):
            where = f"the rule for {rule.get('row')!r}, {rule.get('column')!r}"
            if not set(WHERE) <= set(rule) or sum(source in rule for source in SOURCES) != 1:
                yield f"{where} needs a row, a column and one of {', '.join(SOURCES)}"
                continue
            yield from place_problems(where, measurement, rule)
            for place in rule.get("ratio", ()):
                yield from place_problems(where, measurement, place)
            if rule.get("take", "first") not in TAKES:
                yield f"{where}: take is none of {', '.join(TAKES)}"
            if "regex" in rule and re.compile(rule["regex"]).groups != 1:
                yield f"{where}: the expression has not one group"


def record_problems(measurement, record):
    where = f"the record of {record.get('date')}"
    found = list(field_problems(where, record, RECORD))
    yield from found
    if found:
        return
    yield from field_problems(f"{where}: hardware", record["hardware"], HARDWARE)
    if record["status"] not in STATUSES:
        yield f"{where}: the status is none of {', '.join(STATUSES)}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"]):
        yield f"{where}: the date is not YYYY-MM-DD"
    if not re.fullmatch(r"[0-9a-f]{8,40}", record["commit"]):
        yield f"{where}: the commit is not 8 to 40 hexadecimal digits"
    labels = [row[0] for row in record["rows"]]
    if len(set(labels)) != len(labels):
        yield f"{where}: two rows have the same label"
    for row in record["rows"]:
        if len(row) != len(measurement["columns"]) or not all(map(is_cell, row)):
            yield f"{where}: the row {row[0]!r} has the wrong number of cells, or a cell of no known kind"


def problems(name, measurement):
    """What is wrong with a measurement, as texts."""
    found = list(field_problems("the file", measurement, FIELDS))
    if not found:
        if measurement["name"] != name:
            found.append(f"the name is {measurement['name']!r}")
        if not measurement["records"]:
            found.append("there is no record")
        for record in measurement["records"]:
            found += record_problems(measurement, record)
    if not found:
        found += extract_problems(measurement)
        for target in measurement["targets"]:
            found += place_problems("a target", measurement, target)
            if ("at_least" in target) == ("at_most" in target):
                found.append("a target needs either at_least or at_most")
        for comparison in measurement["comparisons"]:
            found += field_problems("a comparison", comparison, {"case": TEXT, "ours": dict, "theirs": dict, "than": TEXT}, ("recorded",))
            for side in ("ours", "theirs"):
                found += place_problems("a comparison", measurement, comparison.get(side, {}))
    return found


def check(folder):
    """(name, problem) of all files."""
    for path in sorted(folder.glob("*.json")):
        text = path.read_text(encoding="utf-8")
        try:
            measurement = json.loads(text)
        except ValueError as error:
            yield path.stem, f"not JSON: {error}"
            continue
        found = problems(path.stem, measurement)
        if not found and text != text_of(measurement) + "\n":
            found = ["not written as tools/measurements.py writes it; `tools/measurements.py check --rewrite` does that"]
        for problem in found:
            yield path.stem, problem


# ---- Tables ----

def markdown(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows])


def heading(measurement, column):
    unit = measurement["unit"].get(column) if isinstance(measurement["unit"], dict) else None
    return f"{column}, {unit}" if unit else column


def row_texts(measurement, row):
    """The cells of a row; figures have the unit of the row, if it has one."""
    unit = measurement["unit"].get(row[0]) if isinstance(measurement["unit"], dict) else None
    return [cell_text(cell) + (f" {unit}" if unit and ends(cell) else "") for cell in row]


def bounds(targets):
    return {(target.get("at_least"), target.get("at_most")) for target in targets}


def table(measurement):
    """The current records as a table; a column names the machine if there are several, another what was asked."""
    records = current(measurement)
    columns = [heading(measurement, column) for column in measurement["columns"]]
    several, asks = len(records) > 1, bool(measurement["targets"])
    rows = []
    for record in records:
        for row in record["rows"]:
            asked = [target for target in measurement["targets"] if target.get("row", row[0]) == row[0]]
            texts = {asked_text(measurement, row[0], target) if len({each["column"] for each in asked}) == 1 or len(bounds(asked)) == 1
                     else f"{target['column']}: {asked_text(measurement, row[0], target)}": None for target in asked}
            rows.append([*([machine_text(record)] if several else ()), *row_texts(measurement, row), *(["; ".join(texts)] if asks else ())])
    return markdown([*(["machine"] if several else ()), *columns, *(["asked"] if asks else ())], rows)


def caption(measurement, link="measurements/"):
    """What the table shows, where and when: the line above it."""
    unit = measurement["unit"] if isinstance(measurement["unit"], str) else ""
    taken = []
    for record in current(measurement):
        where = f" on {machine_text(record)}" if machine_text(record) != record["status"] else ""
        taken.append(f"{record['status']}{where}, {record['date']}, {record['commit']}")
    return f"*{measurement['title']}{', ' + unit if unit else ''}* ([{measurement['name']}]({link}{measurement['name']}.json); {'; '.join(taken)})"


def link_to(name, link):
    return f"[{name}]({link}{name}.json)"


def missed_table(measurements, link):
    rows = []
    for name, measurement in measurements.items():
        for record, row, target, cell in misses(measurement):
            figure = row if len(measurement["columns"]) == 2 else f"{row}: {target['column']}"
            rows.append([link_to(name, link), figure, asked_text(measurement, row, target),
                         f"{cell_text(cell)} {unit_of(measurement, row, target['column'])}".rstrip(), machine_text(record)])
    return markdown(["measurement", "figure", "asked", "measured", "machine"], rows)


def ratio_of(ours, theirs):
    return middle(ours) / middle(theirs)


def comparison_table(measurements, link):
    rows = []
    for measurement, record, comparison, ours, theirs in comparisons(measurements):
        place = comparison["ours"]
        unit = unit_of(measurement, place["row"], place["column"])
        rows.append([machine_text(record), comparison["case"], cell_text(ours), cell_text(theirs), unit, comparison["than"],
                     f"{ratio_of(ours, theirs):.2f}", f"{record['date']}, {comparison.get('recorded', record['commit'])}",
                     link_to(measurement["name"], link)])
    return markdown(["machine", "case", "Trifold", "PyTorch 2", "unit", "release", "ratio", "recorded", "measurement"], rows)


def is_repeatable(measurement):
    return any("extract" in command for command in measurement["commands"])


def index_of(measurements, link):
    """A heading and a table for each area."""
    parts = []
    for area in sorted({measurement["area"] for measurement in measurements.values()}):
        rows = [[link_to(name, link), measurement["title"], measurement["records"][-1]["status"], measurement["records"][-1]["date"],
                 "yes" if is_repeatable(measurement) else ""] for name, measurement in measurements.items() if measurement["area"] == area]
        parts.append(f"### {area}\n\n{markdown(['measurement', 'content', 'status', 'date', 'repeatable'], rows)}")
    return "\n\n".join(parts)


GENERATED = {"missed targets": missed_table, "comparisons": comparison_table, "all measurements": index_of}
MARKED = re.compile(r"^(<!-- table ([^\n]*) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


def page_of(text, measurements, link="measurements/"):
    """A page with its generated tables as of today; links to measurements begin with `link`."""
    def replaced(match):
        name = match[2]
        if name in GENERATED:
            content = GENERATED[name](measurements, link)
        elif name in measurements:
            content = f"{caption(measurements[name], link)}\n\n{table(measurements[name])}"
        else:
            raise Problem(f"a page has a table of {name}, which is no measurement")
        return f"{match[1]}{content}\n{match[3]}"
    return MARKED.sub(replaced, text)


def shown(measurement):
    lines = [caption(measurement, "docs/measurements/"), "", table(measurement), ""]
    lines += [f"{label}: {measurement[field]}" for field, label in (("compared_with", "Compared with"), ("limit", "Limit")) if measurement[field]]
    lines += [f"    {command['run']}" + (f"    # needs {command['needs']}" if "needs" in command else "") for command in measurement["commands"]]
    lines += [f"- {note}" for note in measurement["notes"]]
    lines += [f"- {record['date']}: {note}" for record in measurement["records"] for note in record["notes"]]
    return "\n".join(lines)


# ---- Repeat ----

def value_at(value, path):
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def extracted(rule, output, seconds, work):
    """The figure of a rule: of a JSON file of the command, of its output, or its time."""
    if "seconds" in rule:
        return seconds
    try:
        if "json" in rule:
            file, _, path = rule["json"].partition(":")
            text = (work / file).read_text(encoding="utf-8")
            documents = map(json.loads, text.splitlines()) if file.endswith(".jsonl") else [json.loads(text)]
            values = [value_at(document, path) for document in documents if file.endswith(".json") or path in document]
            return statistics.median(values) * rule.get("times", 1)
        lines = [line for line in output.splitlines() if re.search(rule.get("lines", ""), line)]
        values = [float(value) * rule.get("times", 1) for line in lines for value in re.findall(rule["regex"], line)]
        if not values:
            raise LookupError("the output has no match")
        return TAKES[rule.get("take", "first")](values)
    except (OSError, LookupError, ValueError, TypeError) as error:
        raise Problem(f"no figure for {rule['row']!r}, {rule['column']!r}: {error}\n{output[-2000:]}") from error


def environment(program, work):
    build = program.absolute().parents[1]
    programs = work / "programs"
    programs.mkdir()
    (programs / "trifold").symlink_to(program.absolute())
    for path in (build / "tests/conformance").glob("*_bench"):
        (programs / path.name).symlink_to(path.absolute())
    scratch = work / "scratch"
    scratch.mkdir()
    return dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}", TRIFOLD=str(program.absolute()), BUILD=str(build), WORK=str(scratch))


def joined(values):
    """One figure of several runs: the median of numbers, the range of ranges."""
    if isinstance(values[0], dict):
        return {"least": min(value["least"] for value in values), "most": max(value["most"] for value in values)}
    return statistics.median(values)


def run_command(command, environ):
    """{(row, column): figure} of a command's rules, medians of its repeats. Ratios are left to the caller."""
    rules = [rule for rule in command.get("extract", ()) if "ratio" not in rule]
    figures = {(rule["row"], rule["column"]): [] for rule in rules}
    for _ in range(command.get("repeats", 1)):
        print(f"$ {command['run']}", file=sys.stderr, flush=True)
        start = time.monotonic()
        done = subprocess.run(["bash", "-c", command["run"]], cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, check=False)
        seconds = time.monotonic() - start
        # Some tools print their figures and end with status 1 because a target is missed.
        if done.returncode != 0 and not any("regex" in rule for rule in rules):
            raise Problem(f"the command ended with status {done.returncode}:\n{done.stdout[-2000:]}")
        for rule in rules:
            figures[rule["row"], rule["column"]].append(extracted(rule, done.stdout, seconds, Path(environ["WORK"])))
    return {place: joined(values) for place, values in figures.items()}


def measured(measurement, program, run_all):
    """{(row, column): figure} of all commands that can be repeated here."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        environ = environment(program, Path(folder))
        for command in measurement["commands"]:
            if "needs" in command and not run_all:
                print(f"left out, because it needs {command['needs']}: {command['run']}", file=sys.stderr)
                continue
            figures.update(run_command(command, environ))
    for command in measurement["commands"]:
        for rule in command.get("extract", ()):
            if "ratio" in rule:
                parts = [figures.get((place["row"], place["column"])) for place in rule["ratio"]]
                if None not in parts:
                    figures[rule["row"], rule["column"]] = middle(parts[0]) / middle(parts[1]) * rule.get("times", 1)
    return {place: rounded(value) for place, value in figures.items()}


def rounded(value):
    """Four significant digits, of large numbers all before the point."""
    if isinstance(value, dict):
        return {end: rounded(number) for end, number in value.items()}
    return int(round(value)) if abs(value) >= 1000 else float(f"{value:.4g}")


def this_machine():
    cpu = platform.processor() or platform.machine()
    try:
        cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))[1]
    except (OSError, TypeError):
        pass
    cores = os.cpu_count()
    return {"name": f"{cpu}, {cores} cores", "cpu": f"{cpu}, {cores} cores", "device": None,
            "notes": f"load average {os.getloadavg()[0]:.1f} before the run"}


def new_record(measurement, figures, hardware, commit):
    """A record with these figures. Labels and texts without figures come from the last record; other cells are null. Figures
    that depend on no machine keep its hardware."""
    last = measurement["records"][-1]
    if machine_text(last) == last["status"]:
        hardware = last["hardware"]
    rows = [[cell if i == 0 or isinstance(cell, str) and not re.search(r"\d", cell) else None for i, cell in enumerate(row)]
            for row in last["rows"]]
    record = {"date": datetime.date.today().isoformat(), "commit": commit, "status": last["status"], "hardware": hardware, "rows": rows, "notes": []}
    for (row, column), value in figures.items():
        set_cell(measurement, record, {"row": row, "column": column}, value)
    return record


def commit_named(name):
    done = subprocess.run(["git", "rev-parse", "--verify", "--short=8", name + "^{commit}"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"--commit {name}: git knows no such commit")
    return done.stdout.strip()


def repeat(measurement, arguments):
    if not is_repeatable(measurement):
        raise Problem(f"{measurement['name']} has no command with a rule that extracts a figure")
    if not arguments.program.is_file():
        raise Problem(f"there is no program {arguments.program}; build it, or name one with --program")
    commit = commit_named(arguments.commit) if arguments.write else None
    hardware = this_machine()
    if machine_text(measurement["records"][-1]) != measurement["records"][-1]["status"] and os.getloadavg()[0] > 0.5:
        print(f"load average {os.getloadavg()[0]:.1f}: other programs run on this machine, which times show", file=sys.stderr)
    figures = measured(measurement, arguments.program, arguments.all)
    old = next((record for record in reversed(measurement["records"]) if record["hardware"]["name"] == hardware["name"]), measurement["records"][-1])
    rows = []
    for (row, column), value in figures.items():
        before = cell_of(measurement, old, {"row": row, "column": column})
        ratio = f"{middle(value) / middle(before):.3f}" if middle(before) else ""
        unit = unit_of(measurement, row, column)
        rows.append([row, f"{column}, {unit}" if unit else column, cell_text(before), cell_text(value), ratio])
    print(f"{measurement['title']}: {old['hardware']['name']}, {old['date']}, {old['commit']}, and this machine now\n")
    print(markdown([measurement["columns"][0], "figure", "old", "new", "new over old"], rows))
    if arguments.write:
        measurement["records"].append(new_record(measurement, figures, hardware, commit))
        write(arguments.folder, measurement)
        print(f"\nwritten to {arguments.folder / measurement['name']}.json; `tools/measurements.py pages` brings the pages up to date")


# ---- Commands ----

def update_pages(measurements, only_check):
    stale = []
    for name, link in PAGES.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        page = page_of(text, measurements, link)
        if page != text:
            stale.append(name)
            if not only_check:
                path.write_text(page, encoding="utf-8")
    for name in stale:
        print(f"{name} {'is not up to date; run tools/measurements.py pages' if only_check else 'written'}")
    return 1 if stale and only_check else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the folder of measurements")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("text", nargs="?", default="")
    commands.add_parser("show").add_argument("name")
    commands.add_parser("check").add_argument("--rewrite", action="store_true", help="write the files in their usual form first")
    repeating = commands.add_parser("repeat")
    repeating.add_argument("name")
    repeating.add_argument("--program", type=Path, default=ROOT / "build/release/launch/trifold")
    repeating.add_argument("--write", action="store_true", help="add a record with the new figures to the file")
    repeating.add_argument("--commit", default="HEAD", help="what the program was built from, for --write")
    repeating.add_argument("--all", action="store_true", help="also run commands with `needs`")
    commands.add_parser("pages").add_argument("--check", action="store_true", help="write nothing; exit status 1 if a page is not up to date")
    arguments = parser.parse_args()
    folder = arguments.folder
    try:
        if arguments.command == "show":
            print(shown(load(folder, arguments.name)))
        elif arguments.command == "repeat":
            repeat(load(folder, arguments.name), arguments)
        elif arguments.command == "check":
            for path in sorted(folder.glob("*.json")) if arguments.rewrite else ():
                write(folder, load(folder, path.stem))
            found = list(check(folder))
            for name, problem in found:
                print(f"docs/measurements/{name}.json: {problem}")
            return 1 if found else 0
        elif arguments.command == "pages":
            return update_pages(load_all(folder), arguments.check)
        else:
            for name, measurement in load_all(folder).items():
                if arguments.text in " ".join((name, measurement["area"], measurement["title"])):
                    last = measurement["records"][-1]
                    print(f"{name:24} {measurement['area']:12} {last['status']:8} {last['date']} "
                          f"{'repeatable' if is_repeatable(measurement) else '':10} {measurement['title']}")
    except Problem as problem:
        print(f"measurements.py: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
