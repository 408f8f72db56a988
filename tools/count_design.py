#!/usr/bin/env python3
"""Measures what changes of the sources cost, and how far the sources are from their design.

    tools/count_design.py [ROOT]              the figures of the sources in ROOT, by default this project's
    tools/count_design.py --commit REV        those of a commit of ROOT's repository; nothing is checked out
    tools/count_design.py --since REV         also the lines added, deleted and moved since that commit
    tools/count_design.py --list              also the places, or the command, behind each figure
    tools/count_design.py --features N        of the newest N features instead of 140
    tools/count_design.py --json              for other programs

The tables below define what each section counts. Extend them when folders, functions or types get other names. Comments
do not count, except in the numbers of lines.
"""

import argparse
import collections
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TOPS = ("src", "launch")
SOURCES = (".h", ".cpp", ".cu", ".cuh")

# ---- Lines ----

# A block has moved if it was deleted in one place and added unchanged in another, and has at least this many lines that are
# not blank, and this many letters and digits.
MOVED_LINES, MOVED_LETTERS = 3, 20

# ---- Features ----

# Folders whose share of the features is counted.
FEATURE_FOLDERS = {
    "that touch src/config": r"src/config/",
    "that touch plans and costs": r"src/(?:plan|walk|layout|recommend/planning)/|src/embedding/planner\.|"
                                  r"src/models/(?:block_flops|dlrm_shape)\.|src/recommend/forecast\.",
}

# ---- Costs of a model outside the walk that counts them ----

# Names by which code says what a model computes or sends. Totals for reports (train_flops, flops_of_sample) and rates of
# machines (peak_flops, gemm_flops) are results, so they are not here; nor are loads of tables (embedding/planner.h), because
# the planner compares placements before there is a model.
COST_NAMES = {
    # formulas of what a block computes
    "flops of blocks": r"BlockFlops|block_flops|flops_of_(?!sample)\w+|(?:bottom|top|more_expert)_flops|(?:\w+_)?head_flops",
    # structs and functions of what a block sends over the mesh's axes
    "traffic of blocks": r"TensorSums|tensor_sums|ContextNumbers|RouterNumbers|ExpertNumbers|context_overlap|gathered_groups|"
                         r"(?:sums|context|experts|routers)_of_layer",
    # sums of them by which stages are cut, and the fields of a block that hold them
    "costs of blocks": r"(?:\w+_)?head_cost|embedding_cost|(?<=[.:/])block_costs|(?<=block[.])(?:flops|cost|parts)",
    # bytes of that traffic
    "bytes of messages": r"(?:tensor|context|expert|boundary|row_number)_bytes(?:_of)?(?=\()",
    # a model's widths copied for formulas of time, and these formulas
    "shapes for formulas": r"(?:make_)?[Ww]orkload|BlockCosts?|dense_by_rates",
    # formulas of what a rank holds, next to the dry run that counts it
    "weights and activations": r"(?:(?:layer|embedding|head|cut_attention|whole_attention)_weights|kept_bytes)(?=\()|KeptBytes|"
                               r"(?<=plan/forecast/)kept_activations",
}
# Files that may use these names, each with the reason; a name that ends in / is a folder.
COST_EXEMPT = {
    "src/walk/": "the walk that counts",
    "src/plan/walk": "the walk, as a part of the plan",
    "src/models/model_walk.": "the walk of a model's blocks",
    "src/core/work_log.": "the list that it writes",
    "src/ops/count": "its table of operations, which records instead of computing",
}
# Structs of models/model.h that describe a block's costs to plans.
COST_STRUCTS = ("BlockFlops", "TensorSums", "Overlap", "RouterNumbers", "ContextNumbers", "ExpertNumbers")

# ---- Configurations of commands below the code that resolves them ----

CONFIG_FOLDERS = ("src/plan", "src/layout", "src/train", "src/recommend")
# A configuration is a command's if `resolve` or `problems` in a header of src/config takes it, or if it is one of these.
MORE_COMMAND_CONFIGS = ("TrainedRecommenderConfig",)
CONFIG_EXEMPT = {
    r"/(?:resolve\w*|run_spec)\.h$": "turns a command's configuration into a RunSpec",
    r"^src/plan/(?:layout_search|layout_space|memory_fit)\.h$": "proposes options, and resolves each proposal",
}

# ---- Places that make a part of a run's plan ----

# What is made: functions that make it, types that do so when constructed.
MAKERS = {
    "specifications": (("run_spec", "run_spec_here"), ()),
    "searches": (("search_layouts", "choose_layout", "search_recommender"), ()),
    "whole plans": (("make_zero_table", "make_recommend_plan", "plan_on_schema"), ("PlannedRun",)),
    "orders": (("step_order", "order_of_plan", "table_step", "table_forward"), ()),
    "plans": (("complete_plan", "plan_shape"), ()),
    "models": (("make_model", "make_dlrm"), ()),
    "cuts": (("cut_stages",), ("CutModel",)),
    "layouts": (("recommender_setup", "placement_of", "group_tables", "zero_sharing"), ("RankLayout", "FlatLayout")),
    "costs": (("make_plan_costs", "make_schedule_costs", "make_forecast", "predict_step"), ()),
    "memory": (("memory_of_ranks", "measure_step", "activations", "Executor::measure", "Executor::measure_forward"), ()),
}
# Files that define these, whose own uses do not count, each with what it defines.
MAKERS_EXEMPT = {
    "src/layout/cut_model.": "CutModel itself",
    "src/layout/rank_layout.": "RankLayout itself",
    "src/plan/planned_run.": "PlannedRun itself",
    "src/layout/zero_sharing.": "one overload calls the other",
    "src/models/stage_cut.": "one overload calls the other",
    "src/schedule/": "the orders themselves",
    "src/data_parallel/flat_layout.": "FlatLayout itself",
}

# ---- Messages of src/config ----

# Rules as data, from which messages are made: the entries of tables.
RULES = {
    "a range of an option": r"\.(?:range|at_least|positive|fraction|need)\(",
    "needs": r"\.needs\(|\bNeeds\{",
    "excludes": r"\.excludes\(|\bExcludes\{",
    "has no effect unless": r"\.(?:no_effect_unless|no_effect_with|only_with)\(|\b(?:OnlyWith|NoEffect\w*)\{",
    "compares with": r"\.compares?(?:_with)?\(|\bCompares?(?:With)?\{",
}
# Folders that define what such an entry is.
RULES_EXEMPT = re.compile(r"src/config/(?:fields|options)/")
# Messages that code writes: about rules, which relate several values, and about the text of one value.
WRITTEN = {"about rules": r"(?<=\.)wrong\(|\bProblem\{", "about one value": r"\bbad_input\("}
# Messages about rules, by the first form that their text has.
FORMS = {
    "has no effect": r"\bha(?:s|ve) (?:no|an) effect\b",
    "needs": r"\bneeds?\b|\b(?:is|are) needed\b|\bis given without\b|\bneither .* nor\b",
    "excludes": r"\bnot possible\b|\bcannot be (?:combined|used)\b|\bexclude\b|\bboth say\b|\bis an option of\b|\balready\b",
    "compares": r"\b(?:more|less|fewer|smaller|larger|longer|shorter) than\b|\bless than the\b|\bnot (?:divisible|a multiple)\b|"
                r"\b(?:does not|do not|must) divide\b|\bat (?:least|most)\b|\bdiffers from\b|\bdoes not end with\b|"
                r"\bis not (?:{} x|above|below)|, and --[\w-]+ (?:is )?{}|\ba rank is {}",
}

# ---- Arrows inside src/config ----

# Its sub-folders; each may include those before it.
CONFIG_ORDER = ("fields", "options", "patterns", "groups", "subjects", "rules", "commands", "foreign", "command_line")

# ---- Enums that say the same ----

# Enums of an option and of a layer or an operation with the same values. RouterScore and RouterGate are no such pair: a gate
# is decided by two options, --moe-router-score-function and --moe-router-pre-softmax.
TWINS = (("TokenDispatcher", "TokenDispatch"), ("TokenDrop", "KeptChoices"), ("RouterBalance", "BalanceOver"),
         ("ContextExchange", "ContextSharing"), ("Normalization", "NormKind"))


# `how` explains the value: places, or a command.
Figure = collections.namedtuple("Figure", ("name", "value", "how"), defaults=((),))

COMMENT_OR_TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def without_comments(text):
    def blank(match):
        return "\n" * match.group().count("\n") if match.group().startswith("/") else match.group()
    return COMMENT_OR_TEXT.sub(blank, text)


def git(root, *arguments):
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout


def is_source(name):
    return name.endswith(SOURCES) and name.startswith(tuple(top + "/" for top in TOPS))


def files_of_folder(root):
    """{path: text} of the sources in a folder."""
    names = (path.relative_to(root).as_posix() for top in TOPS for path in sorted((root / top).rglob("*")))
    return {name: (root / name).read_text(encoding="utf-8") for name in names if is_source(name)}


def files_of_commit(root, commit):
    """{path: text} of the sources of a commit."""
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", commit, *TOPS))) as archive:
        return {member.name: archive.extractfile(member).read().decode("utf-8")
                for member in archive if member.isfile() and is_source(member.name)}


class Tree:
    """The sources, with and without comments."""

    def __init__(self, files):
        self.files = files
        self.code = {name: without_comments(text) for name, text in files.items()}

    def places(self, pattern, wanted=lambda name: True):
        """"file:line: text" of each line of code with the pattern, in the files that are wanted."""
        known = re.compile(pattern, re.MULTILINE)
        return [f"{name}:{number}: {line.strip()}" for name, code in self.code.items() if wanted(name) and known.search(code)
                for number, line in enumerate(code.splitlines(), 1) if known.search(line)]


def files_in(places):
    return sorted({place.split(":")[0] for place in places})


def is_exempt(name, table):
    return any(name.startswith(start) for start in table)


# ---- Sections: each returns its figures ----

def runs_of_diff(text):
    """The lines of `git diff --unified=0` that are not blank, as lists of consecutive ones: deleted, added."""
    runs = {"-": [], "+": []}
    last, ahead = "", {"-": 0, "+": 0}  # `ahead`: lines of the hunk that are still to come
    for line in text.split("\n"):
        if hunk := re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", line):
            ahead = {"-": int(hunk.group(1) or 1), "+": int(hunk.group(2) or 1)}
            last = ""
        elif line[:1] in runs and ahead[line[:1]] > 0:
            ahead[line[0]] -= 1
            if line[0] != last:
                runs[line[0]].append([])
            last = line[0]
            if line[1:].strip():
                runs[last][-1].append(line[1:])
    return runs["-"], runs["+"]


def moved_lines(deleted, added):
    """Lines of `added` that are a block of `deleted`; a deleted line is found once."""
    starts = collections.defaultdict(list)
    for run in deleted:
        for at in range(len(run) - MOVED_LINES + 1):
            starts[tuple(run[at:at + MOVED_LINES])].append((run, at))
    used, moved = set(), 0

    def length(run, at, new, there):
        count = 0
        while (at + count < len(run) and there + count < len(new) and run[at + count] == new[there + count]
               and (id(run), at + count) not in used):
            count += 1
        return count

    for new in added:
        there = 0
        while there < len(new):
            found = [(length(run, at, new, there), run, at) for run, at in starts[tuple(new[there:there + MOVED_LINES])]]
            count, run, at = max(found, key=lambda one: one[0], default=(0, None, 0))
            letters = sum(character.isalnum() for line in new[there:there + count] for character in line)
            if count < MOVED_LINES or letters < MOVED_LETTERS:
                there += 1
                continue
            used.update((id(run), at + step) for step in range(count))
            moved += count
            there += count
    return moved


def difference(old, new):
    """`git diff` of the files that differ, without context; a renamed file is deleted and added."""
    with tempfile.TemporaryDirectory() as folder:
        for side, files, others in (("a", old, new), ("b", new, old)):
            (Path(folder) / side).mkdir()
            for name, text in files.items():
                if others.get(name) != text:
                    path = Path(folder) / side / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
        command = ["git", "diff", "--no-index", "--no-renames", "--no-color", "--no-ext-diff", "--unified=0", "a", "b"]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout.decode("utf-8")


def lines(tree, older, since):
    texts = [line for text in tree.files.values() for line in text.splitlines()]
    figures = [Figure("files", len(tree.files)), Figure("lines", len(texts)),
               Figure("lines, not blank", sum(1 for line in texts if line.strip()))]
    if older is None:
        return figures
    deleted, added = runs_of_diff(difference(older, tree.files))
    moved = moved_lines(deleted, added)
    how = (f"git diff --no-renames {since} -- {' '.join(TOPS)}; lines that are not blank",)
    rule = (f"blocks of {MOVED_LINES} lines and {MOVED_LETTERS} letters or more, deleted in one place and added in another",)
    count_added, count_deleted = (sum(map(len, runs)) for runs in (added, deleted))
    return figures + [Figure("lines added", count_added, how), Figure("lines deleted", count_deleted, how),
                      Figure("of both, moved", moved, rule), Figure("written anew", count_added - moved),
                      Figure("gone", count_deleted - moved)]


def percentile(values, percent):
    """As in source_sizes.py; None for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else None


def feature_commits(root, commit, count):
    """[(subject, files)] of the newest `count` commits whose subject begins with feat."""
    log = git(root, "log", "--no-merges", "--format=%x01%h %s", "--name-only", commit).decode("utf-8", errors="replace")
    commits = []
    for one in log.split("\x01")[1:]:
        subject, *names = one.strip().splitlines()
        if re.match(r"\w+ feat\b", subject):
            commits.append((subject, [name for name in names if name]))
    return commits[:count]


def features(root, commit, count):
    commits = feature_commits(root, commit, count)
    touched = [sum(name.startswith(tuple(top + "/" for top in TOPS)) for name in names) for _, names in commits]
    how = tuple(f"{number} files: {subject}" for number, (subject, _) in sorted(zip(touched, commits), key=lambda one: -one[0]))
    figures = [Figure("features", len(commits), (f"git log --no-merges --name-only {commit}, subjects feat",)),
               Figure("files of a feature, median", percentile(touched, 50), how),
               Figure("files of a feature, 90th percentile", percentile(touched, 90))]
    for name, pattern in FEATURE_FOLDERS.items():
        those = tuple(subject for subject, names in commits if any(re.match(pattern, one) for one in names))
        figures.append(Figure(name, len(those), those))
    return figures


def costs(tree):
    def counted(name):
        return not is_exempt(name, COST_EXEMPT)
    figures, everything = [], []
    for kind, pattern in COST_NAMES.items():
        places = tree.places(rf"(?<!\w)(?:{pattern})(?!\w)", counted)
        figures.append(Figure(f"files with {kind}", len(files_in(places)), tuple(places)))
        everything += places
    files = files_in(everything)
    structs = [place for name in COST_STRUCTS for place in tree.places(rf"^struct {name} {{", counted)]
    return [Figure("files, all kinds", len(files), tuple(files)),
            Figure("lines, all kinds", len(set(everything))), *figures,
            Figure("structs that describe a block's costs", len(structs), tuple(structs))]


def command_configs(tree):
    found = set(MORE_COMMAND_CONFIGS)
    for name, code in tree.code.items():
        if name.startswith("src/config/") and name.endswith(".h"):
            found.update(re.findall(r"\b(?:resolve|problems)\((?:const )?(\w+Config)\b", code))
    return sorted(found)


def configs(tree):
    names = command_configs(tree)
    headers = {}
    for name, code in tree.code.items():
        if name.endswith(".h") and name.startswith(tuple(folder + "/" for folder in CONFIG_FOLDERS)):
            count = sum(len(re.findall(rf"\b{config}\b", code)) for config in names)
            if count > 0 and not any(re.search(pattern, name) for pattern in CONFIG_EXEMPT):
                headers[name] = count
    figures = [Figure("headers", len(headers), tuple(f"{count} in {name}" for name, count in headers.items())),
               Figure("names in them", sum(headers.values()), (f"of {', '.join(names)}",))]
    for folder in CONFIG_FOLDERS:
        counts = [count for name, count in headers.items() if name.startswith(folder + "/")]
        figures.append(Figure(f"names in {folder}", sum(counts)))
    return figures


def is_declaration(before):
    """Whether a name that this text of its line stands before is declared there, not called."""
    words = re.findall(r"\w+", before)
    return bool(re.match(r"[\s\w:<>,&*\[\]]*[\w>&*]\s+[&*]?(?:\w+::)*$", before)) and words[-1] not in (
        "return", "else", "throw", "case", "new", "co_return")


def calls(code, function):
    """Numbers of the lines that call a function."""
    for number, line in enumerate(code.splitlines(), 1):
        for match in re.finditer(rf"(?<!\w){re.escape(function)}\(", line):
            if not is_declaration(line[:match.start()]):
                yield number


def members_of(kind, *codes):
    """Names of members of the type, alone or in a container, in the code of a header and its source file."""
    holder = rf"(?:std::\w+<(?:[^;()]*\W)?{kind}(?: const)?>|{kind})"
    return {name for code in codes for name in re.findall(rf"^\s+(?:const )?{holder} (\w+);", code, re.MULTILINE)}


def constructions(name, tree, kind):
    """Numbers of the lines of a file that construct a value of the type: variables, temporaries, members."""
    code = tree.code[name]
    stem = name.rsplit(".", 1)[0]
    members = members_of(kind, *(tree.code.get(stem + suffix, "") for suffix in (".h", ".cpp")))
    patterns = [rf"(?<![\w:~]){kind} \w+[({{]", rf"(?<![\w:~]){kind}[({{]"]
    if name.endswith(".cpp") and members:
        any_member = "|".join(sorted(members))
        patterns += [rf"(?:^\s*|[:,] ?)(?:{any_member})[({{]", rf"\b(?:{any_member})\.(?:try_)?(?:emplace|push)\w*\("]
    for number, line in enumerate(code.splitlines(), 1):
        declares = re.match(rf"\s*(?:struct|class|explicit|friend) |\s*{kind}\(const {kind}&", line)
        if not declares and any(re.search(pattern, line) for pattern in patterns):
            yield number


def makers(tree):
    figures = []
    for kind, (functions, types) in MAKERS.items():
        found = set()
        for name, code in tree.code.items():
            if is_exempt(name, MAKERS_EXEMPT):
                continue
            numbers = {number for function in functions if function in code for number in calls(code, function)}
            numbers |= {number for one in types for number in constructions(name, tree, one)}
            rows = code.splitlines()
            found |= {(name, number, rows[number - 1].strip()) for number in numbers}
        places = tuple(f"{name}:{number}: {text}" for name, number, text in sorted(found))
        figures.append(Figure(kind, len(places), places))
    return [Figure("places, all kinds", sum(figure.value for figure in figures)), *figures]


def end_of_group(code, begin):
    """The position after the bracket that closes the one before `begin`."""
    depth, at = 1, begin
    brackets = re.compile(r'"(?:\\.|[^"\\\n])*"|[(){}]')
    while depth > 0 and (match := brackets.search(code, at)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(match.group(), 0)
        at = match.end()
    return at


def literals(code):
    """The text of the string literals in code, continued ones as one."""
    return "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', code))


def written_messages(code, pattern):
    """(number of the line, text) of each message with the pattern; the text of a rule's is `wrong: right`."""
    for match in re.finditer(pattern, code):
        end = end_of_group(code, match.end())
        text = literals(code[match.end():end])
        if (right := re.compile(r"\s*\.right\(").match(code, end)):
            text += ": " + literals(code[right.end():end_of_group(code, right.end())])
        yield code.count("\n", 0, match.start()) + 1, text


def messages(tree):
    written = {kind: [] for kind in WRITTEN}
    for name, code in tree.code.items():
        if name.startswith("src/config/") and name.endswith(".cpp"):
            for kind, pattern in WRITTEN.items():
                written[kind] += [f"{name}:{number}: {text}" for number, text in written_messages(code, pattern)]
    forms = {form: [] for form in (*FORMS, "another form")}
    for place in written["about rules"]:
        text = place.split(": ", 1)[1]
        forms[next((form for form, pattern in FORMS.items() if re.search(pattern, text)), "another form")].append(place)
    figures = [Figure(f"written {kind}", len(places), () if kind == "about rules" else tuple(places))
               for kind, places in written.items()]
    figures[1:1] = [Figure(f"written about rules: {form}", len(places), tuple(places)) for form, places in forms.items()]
    entries = []
    for rule, pattern in RULES.items():
        places = tree.places(pattern, lambda name: name.startswith("src/config/") and not RULES_EXEMPT.search(name))
        entries.append(Figure(f"made from data: {rule}", len(places), tuple(places)))
    return figures + [Figure("made from data", sum(figure.value for figure in entries)), *entries]


def arrows(tree):
    back, unknown = [], set()
    for name, code in tree.code.items():
        here = re.match(r"src/config/(\w+)/", name)
        if not here:
            continue
        for number, line in enumerate(code.splitlines(), 1):
            there = re.match(r'\s*#include "config/(\w+)/', line)
            folders = [here.group(1), there.group(1)] if there else [here.group(1)]
            unknown.update(folder for folder in folders if folder not in CONFIG_ORDER)
            if there and unknown.isdisjoint(folders) and CONFIG_ORDER.index(folders[1]) > CONFIG_ORDER.index(folders[0]):
                back.append(f"{name}:{number}: {line.strip()}")
    pairs = {(place.split("/")[2], place.split('"config/')[1].split("/")[0]) for place in back}
    return [Figure("includes that point back", len(back), tuple(back)),
            Figure("pairs of sub-folders with such", len(pairs), tuple(f"{a} -> {b}" for a, b in sorted(pairs))),
            Figure("sub-folders without a place in the order", len(unknown), tuple(sorted(unknown)))]


def twins(tree):
    both, how = 0, []
    for pair in TWINS:
        there = [tree.places(rf"^\s*enum class {name}\b") for name in pair]
        both += all(there)
        found = [":".join(place[0].split(":")[:2]) for place in there if place]
        how.append(f"{' and '.join(pair)}: {', '.join(found) or 'neither exists'}")
    return [Figure("pairs of which both exist", both, tuple(how))]


def sections(root, commit, since, count):
    """{title: figures}"""
    tree = Tree(files_of_commit(root, commit) if commit else files_of_folder(root))
    older = files_of_commit(root, since) if since else None
    found = {"1 lines of src and launch": lines(tree, older, since)}
    if commit or (root / ".git").exists():
        found["2 features"] = features(root, commit or "HEAD", count)
    found["3 costs of a model outside the walk"] = costs(tree)
    found["4 configurations of commands in headers below resolve"] = configs(tree)
    found["5 places that make a part of a plan"] = makers(tree)
    found["6 messages in src/config"] = messages(tree)
    found["7 arrows inside src/config"] = arrows(tree)
    found["8 enums that say the same"] = twins(tree)
    return found


def show(found, with_places):
    for title, figures in found.items():
        print(title)
        for figure in figures:
            print(f"  {figure.name:<44} {figure.value}")
            for line in figure.how if with_places else ():
                print(f"      {line}")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--commit", metavar="REV")
    parser.add_argument("--since", metavar="REV")
    parser.add_argument("--features", type=int, default=140, metavar="N", help="newest commits with a subject feat; 140")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        found = sections(given.root, given.commit, given.since, given.features)
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode("utf-8").strip(), file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps({title: {figure.name: {"value": figure.value, **({"how": figure.how} if given.list else {})}
                                  for figure in figures} for title, figures in found.items()}, indent=2))
    else:
        show(found, given.list)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
