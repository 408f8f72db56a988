"""Checks the pages as far as a program can: links have targets, named files and names of code exist, shown commands have
the options they are shown with, and the README is short."""

import re
import unittest
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".txt"}
FOLDERS = ("src", "tests", "tools", "launch", "docs", "data")
# Pages about the code, whose names in `code` are files, types, functions and constants.
ABOUT_CODE = ("CONTRIBUTING.md", "architecture.md", "glossary.md", "how_to_add.md")
STYLES = {"CamelCase", "snake_case", "Stream&"}
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]+\.(?:h|cpp|cu|cuh|inc|py|sh|md|cfg|csv|json|txt))`")


def headings(text):
    """Anchors of the headings of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def dead_links(page, text):
    """Links of a page that lead to no file, or to no heading of it."""
    for target in LINK.findall(text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists():
            yield target
        elif anchor and anchor not in headings(file.read_text(encoding="utf-8")):
            yield target


def missing_files(text):
    """Files named in `code` that are not in the project: by their path, or below src by room and name."""
    for name in FILE.findall(text):
        room = name.split("/")[0]
        if room not in FOLDERS and not (ROOT / "src" / room).is_dir():
            continue  # of the user, or of another program
        base = ROOT if room in FOLDERS and not (room == "data" and name.endswith((".h", ".cpp"))) else ROOT / "src"
        if not any(base.glob(name)):
            yield name


@cache
def sources():
    """The project's sources by their path."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES and path.name != Path(__file__).name]
    return {path: path.read_text(encoding="utf-8", errors="replace") for path in found}


@cache
def words_of_code():
    return {word for text in sources().values() for word in re.findall(r"\w+", text)}


def missing_names(text):
    """Names in `code` that occur nowhere: of files without their folders, a * or <...> standing for any part; of types,
    functions and constants."""
    for name in sorted(set(re.findall(r"`([^`\n]+)`", text)) - STYLES):
        if re.fullmatch(r"[\w.*<>/-]+\.(?:h|cpp|cu|cuh|py|sh)", name):
            pattern = re.sub(r"<\w+>", "*", name)
            if not any(path.match(pattern) for path in sources()):
                yield name
        elif re.fullmatch(r"[A-Za-z_]\w*(?:::\w+)*(?:\(.*\))?", name):
            if not words_of_code().issuperset(re.findall(r"\w+", name.partition("(")[0])):
                yield name


def options_by_command():
    """Command: the spellings of its options, from the list that the program's own test keeps."""
    options = {}
    for line in (ROOT / "tests/golden/options.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("  --"):
            options[command] |= set(line.split()[0].split(","))
        elif not line.startswith("#"):
            command = line
            options[command] = {"--help", "--config", "--overwrite", "--print-config"}
    return options


def commands(text):
    """Lines of indented code that call `trifold`, each with those that continue it."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        match = re.match(r"\s{4,}(?:\$ )?(?:mpi(?:run|exec) -n \d+ )?trifold ([a-z-]+)\b(.*)", line)
        if match:
            # Text after four blanks or a '#' explains the line.
            yield match.group(1), re.split(r"\s{4,}|\s#", match.group(2))[0]


def unknown_options(text, options):
    """(command, option) of each option that its command does not have."""
    for command, rest in commands(text):
        known = set(options.get(command, ()))
        if command == "plan":  # which reads a recommender's options and a list of plans as well
            known |= options["plan-recommender"] | options["plan-lines"]
        if command == "rehearse":
            known |= options["rehearse-task"] | options["rehearse-recommender"]
        if command == "evaluate":
            known |= options["evaluate-recommender"] | options["evaluate-task"]
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", rest):
            if option not in known:
                yield command, option


@cache
def texts_of_code():
    """The sources of the program, with string literals that continue one another joined."""
    program = (text for path, text in sources().items() if path.suffix in {".h", ".cpp"} and path.parts[len(ROOT.parts)] in {"src", "launch"})
    return re.sub(r'"\s*(?:<< )?"', "", "\n".join(program).replace('\\"', "'"))


def unknown_messages(text):
    """Messages in the first column of tables, as `code`, of which some part between ... is not in the program."""
    for cell in re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE):
        for message in re.findall(r"`([^`]+)`", cell):
            parts = [part.strip() for part in message.split("...")]
            if any(len(part) > 3 and part not in texts_of_code() for part in parts):
                yield message


class Search(unittest.TestCase):
    def test_it_finds_each_mistake(self):
        page = ROOT / "docs" / "train.md"
        self.assertEqual(list(dead_links(page, "[a](plan.md) [b](none.md) [c](plan.md#no-such) [d](https://x.y/z)")),
                         ["none.md", "plan.md#no-such"])
        self.assertEqual(list(missing_files("`core/error.h` `core/none.h` `src/core/*.h` `launch/none.sh` `mine/log.txt`")),
                         ["core/none.h", "launch/none.sh"])
        self.assertEqual(list(missing_names("`error.h` `none.h` `tests/unit/<room>_*_test.cpp` `tests/none/<room>_test.cpp` `Tensor` `NoSuchClass` "
                                            "`Run::yield()` `Run::no_such_call(1)` `a b`")),
                         ["NoSuchClass", "Run::no_such_call(1)", "none.h", "tests/none/<room>_test.cpp"])
        self.assertEqual(list(unknown_messages("| `unknown option ...` | `none` |\n| `a ... that no program prints`, `early stop` | a |\n")),
                         ["a ... that no program prints"])
        text = "    trifold pretrain --seed 1 \\\n      --no-such 2    explains --this\n    trifold plan --lines x --lr 3  # --or\n"
        self.assertEqual(list(unknown_options(text, options_by_command())), [("pretrain", "--no-such")])


class Pages(unittest.TestCase):
    def each_page(self, problems):
        found = [f"{page.relative_to(ROOT)}: {problem}" for page in PAGES
                 for problem in problems(page, page.read_text(encoding="utf-8"))]
        self.assertEqual(found, [])

    def test_links_lead_somewhere(self):
        self.each_page(dead_links)

    def test_named_files_exist(self):
        self.each_page(lambda page, text: missing_files(text))

    def test_names_of_code_exist(self):
        self.each_page(lambda page, text: missing_names(text) if page.name in ABOUT_CODE else ())

    def test_shown_commands_have_their_options(self):
        options = options_by_command()
        self.each_page(lambda page, text: unknown_options(text, options))

    def test_messages_are_those_of_the_program(self):
        page = ROOT / "docs/troubleshooting.md"
        self.assertEqual(list(unknown_messages(page.read_text(encoding="utf-8"))), [])

    def test_the_list_of_pages_is_short_and_complete(self):
        door = ROOT / "docs/README.md"
        text = door.read_text(encoding="utf-8")
        self.assertLessEqual(len(text.splitlines()), 100)
        linked = {target.partition("#")[0] for target in LINK.findall(text)}
        pages = {str(page.relative_to(door.parent)) for folder in ("docs", "docs/recipes") for page in (ROOT / folder).glob("*.md")}
        self.assertEqual(pages - {door.name} - linked, set())

    def test_pages_are_short(self):
        sizes = {str(page.relative_to(ROOT)): page.stat().st_size for page in PAGES}
        del sizes["docs/options.md"]  # a generated page
        self.assertEqual({page: size for page, size in sizes.items() if size > 30 * 1024}, {})

    def test_the_readme_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()), 60)


if __name__ == "__main__":
    unittest.main()
