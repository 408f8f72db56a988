"""Words that readers stumble over stay out of comments, messages and pages, no string literal ends in an orphan: a last
line of a word or two, and a message about a file is a sentence with the file as its subject.

Habits that are too frequent to be forbidden at once are a ratchet: language_counts.json has their counts for each file,
which may only fall, and a file that is not listed must have none.

  language_test.py --update    lowers the counts to those of today, never raises one; a file that was moved or divided
                               passes its counts on to files that are new
  language_test.py --list KIND [FOLDER]   where a kind occurs, with the cure: openings, notes, 'how parameters', 'homely words'
"""

import collections
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AVOIDED = {
    r"\btold\b": "say who says it: `the report says`, `the option gives`",
    r"\bshare[sd]? out\b|\bsharing out\b": "shard",
    r"\bworked out\b": "computed",
    r"\bof before\b": "earlier",
    r"\b[Ww]hoever\b": "name the reader, the caller or the thread",
    r"\b(?:struct|class|using|enum class) (?:How|Held|Surroundings)\b": "a name that says the role: Options, Environment",
    r"\bspeaks\b": "is_reporter",
}
SOURCES = ("*.cpp", "*.h", "*.cu", "*.cuh", "*.py", "*.sh", "*.cmake", "*.md", "*CMakeLists.txt")
COUNTS = Path(__file__).with_name("language_counts.json")
COUNTED = ("src/*.cpp", "src/*.h", "src/*.cu", "src/*.cuh", "launch/*.cpp", "launch/*.h", "tests/support/*.h")
HOMELY = {  # in comments
    r"(?:`[^`]+`|\b(?:its|their|these|such|all|each|as many|the|of|inner)|'s) numbers\b(?! of\b)|, numbers\]":
        "elements, values, scalars, counts or indices",
    r"\btravel(?:s|led|ling)?\b": "is sent, is exchanged",
    r"\bunder way\b|\bon (?:its|their) way\b": "in flight, in progress",
    r"\bby (?:itself|themselves)\b": "alone, without overlap, or on its own thread",
    r"\bmeets?\b(?!\()": "interacts with, encounters, is computed on",
    r"\bthere and back\b|\b(?:comes?|came|goes|go) back\b": "returns; dispatch and combine",
    r"\b[Bb]eside\b": "overlapped with, next to, in addition to",
    r"\b(?:is|are) (?:not )?there\b": "exists, is present, is absent",
    r"\b(?:has|have|had) got\b": "has",
    r"\bfor people\b": "a message, for the user",
    r"\bof (?:no|any) use\b": "unsupported, unused",
    r"\b(?:makes?|made) of (?:it|them|this|these)\b": "the result, the output",
    r"\b(?:is|are) gone\b": "is released, is deleted, is lost",
    r"\b(?:to|can|may|will|would|must) go on\b|\bgoes on\b": "resume, continue",
    r"\bas ever\b|\bof another time\b|\blets? go\b": "unchanged; earlier; release",
    r"\b[Tt]hose (?:of|with|that)\b": "repeat the noun",
}
ANY_HOMELY = re.compile("|".join(HOMELY))
OPENING = re.compile(r"//+ (?:The same|Those|That of)\b")
COMMENT = re.compile(r"(?<!:)//+(.*)")  # not in the address of a page
OF_NOTE = re.compile(r"//+ of\b")
HOW = re.compile(r"[\w>\]][&*]* how(?: = [^,;]*)?[,)]")  # a type, the name, and the next parameter or the end
CURES = {"openings": "a header comment says first what it describes", "notes": "a note begins with its noun",
         "how parameters": "a name that says the role: router, attention, options"}
KINDS = (*CURES, "homely words")
ANY_AVOIDED = re.compile("|".join(AVOIDED))
HEADLESS = re.compile(r'"\{0?\}: (is|has|was|cannot|contains|holds|needs) ')  # not "a.csv: has no labels", but "a.csv has no labels"
ORPHAN = re.compile(r' "\n\s*"([\w .,;:\'`)-]{1,12})"(?=.)')  # a literal, continued by a short one, and the code goes on


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def avoided(text):
    """(number of the line, better words) of each avoided word."""
    for match in ANY_AVOIDED.finditer(text):
        yield line_of(text, match.start()), next(better for word, better in AVOIDED.items() if re.fullmatch(word, match.group()))


def orphans(text):
    """(number of the line, the orphan) of literals that are continued by a word or two."""
    for match in ORPHAN.finditer(text):
        yield line_of(text, match.start(1)), match.group(1)


def headless(text):
    """(number of the line, the verb) of messages whose subject is cut off by a colon."""
    for match in HEADLESS.finditer(text):
        yield line_of(text, match.start()), match.group(1)


def habits(name, text):
    """(kind, number of the line, the cure) of each habit that is counted, in the text of a file."""
    commented = False  # whether the line above is one of comment alone
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.search(line)
        code = line[:comment.start()] if comment else line
        alone = comment is not None and not code.strip()
        if alone and not commented and name.endswith((".h", ".cuh")) and OPENING.match(comment.group()):
            yield "openings", number, CURES["openings"]
        if comment and not alone and OF_NOTE.match(comment.group()):
            yield "notes", number, CURES["notes"]
        for match in HOW.finditer(code):
            if not match.string[:match.end()].endswith(("return how,", "return how)")):
                yield "how parameters", number, CURES["how parameters"]
        for match in ANY_HOMELY.finditer(line, comment.start()) if comment else ():
            cure = next(better for word, better in HOMELY.items() if re.compile(word).match(line, match.start()))
            yield "homely words", number, f"{match.group()}: {cure}"
        commented = alone


def count(texts):
    """{kind: {name: occurrences}} of (name, text)s, without zeros."""
    counts = {kind: collections.Counter() for kind in KINDS}
    for name, text in texts:
        for kind, _, _ in habits(name, text):
            counts[kind][name] += 1
    return {kind: dict(sorted(found.items())) for kind, found in counts.items()}


def ratchet(committed, today, names):
    """What a kind's committed counts say of those of today, where the files `names` exist: (complaints, the counts to
    commit). Files that no longer exist leave their counts to files that are new."""
    risen = {name: n for name, n in today.items() if n > committed.get(name, 0) and name in committed}
    new = {name: n for name, n in today.items() if name not in committed}
    left = sum(n for name, n in committed.items() if name not in names)
    complaints = [f"{name}: {n} instead of at most {committed[name]}" for name, n in risen.items()]
    if sum(new.values()) > left:
        complaints += [f"{name}: {n} in a file that should have none" for name, n in new.items()]
    lowered = {name: min(n, committed[name]) for name, n in today.items() if name in committed}
    if sum(new.values()) <= left:
        lowered.update(new)
    return complaints, dict(sorted(lowered.items()))


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/golden/") and (ROOT / name) != Path(__file__).resolve() and (ROOT / name).exists():
            yield name, (ROOT / name).read_text(encoding="utf-8", errors="replace")


class Language(unittest.TestCase):
    maxDiff = None

    def test_it_finds_each_mistake(self):
        self.assertEqual(list(avoided("// work is\n// shared out\n// by what it was told\n")),
                         [(2, "shard"), (3, AVOIDED[r"\btold\b"])])
        self.assertEqual(list(orphans('  fail("too many of these "\n       "ranks", 3);\n')), [(2, "ranks")])
        self.assertEqual(list(headless('  fail(\n  "{}: is empty", path);\n  fail("{}: the file is empty", path);\n')), [(2, "is")])
        self.assertEqual(list(orphans('  fail("too many of these, "\n       "fewer ranks would do", 3);\n')), [])

    def test_it_finds_each_habit(self):
        text = ("// The same for rows.\nint a;  // of rows\n// Calls it.\n// Those stay.\nvoid f(const Router& how, int b);  // its numbers travel\n"
                "void g(Attention how = {});\n// See https://a.b/ of it; 3 random numbers.\n")
        self.assertEqual([(kind, number) for kind, number, _ in habits("src/a.h", text)],
                         [("openings", 1), ("notes", 2), ("how parameters", 5), ("homely words", 5), ("homely words", 5),
                          ("how parameters", 6)])
        self.assertEqual([kind for kind, _, _ in habits("src/a.cpp", "// The same for rows.\nreturn how, f(how);\n")], [])
        self.assertEqual(count([("src/a.h", "int a;  // of b\n"), ("src/b.h", "int a;\n")])["notes"], {"src/a.h": 1})

    def test_counts_only_fall(self):
        both = {"a.h", "b.h"}
        self.assertEqual(ratchet({"a.h": 2}, {"a.h": 3}, both), (["a.h: 3 instead of at most 2"], {"a.h": 2}))
        self.assertEqual(ratchet({"a.h": 2}, {"a.h": 1}, both), ([], {"a.h": 1}))
        self.assertEqual(ratchet({"a.h": 2, "b.h": 1}, {"a.h": 2}, both), ([], {"a.h": 2}))
        self.assertEqual(ratchet({"a.h": 2}, {"a.h": 2, "b.h": 1}, both), (["b.h: 1 in a file that should have none"], {"a.h": 2}))
        self.assertEqual(ratchet({"a.h": 2}, {"b.h": 2}, {"b.h"}), ([], {"b.h": 2}))  # moved
        self.assertEqual(ratchet({"a.h": 2}, {"b.h": 3}, {"b.h"}), (["b.h: 3 in a file that should have none"], {}))

    def test_counts(self):
        texts = dict(files(*COUNTED))
        committed, today = json.loads(COUNTS.read_text(encoding="utf-8")), count(texts.items())
        complaints = []
        for kind in KINDS:
            found, lowered = ratchet(committed[kind], today[kind], texts.keys())
            complaints += [f"{kind}, {complaint}; see --list '{kind}' {complaint.split(':')[0]}" for complaint in found]
            if not found and lowered != committed[kind]:
                print(f"{kind}: {sum(committed[kind].values())} are allowed, {sum(lowered.values())} are left: lower the counts with "
                      f"tests/house/{Path(__file__).name} --update", file=sys.stderr)
        self.assertEqual(complaints, [])

    def test_words(self):
        self.assertEqual([f"{name}:{number}: {better}" for name, text in files(*SOURCES) for number, better in avoided(text)], [])

    def test_literals(self):
        self.assertEqual([f"{name}:{number}: {orphan}" for name, text in files("src/*", "launch/*.cpp", "launch/*.h")
                          for number, orphan in orphans(text)], [], "break the literal at a clause")

    def test_subjects(self):
        self.assertEqual([f"{name}:{number}: {verb}" for name, text in files("src/*", "launch/*.cpp", "launch/*.h")
                          for number, verb in headless(text)], [], "leave out the colon: the file is the subject")


def update():
    """Lowers the committed counts."""
    texts = dict(files(*COUNTED))
    today = count(texts.items())
    committed = json.loads(COUNTS.read_text(encoding="utf-8"))
    lowered = {kind: ratchet(committed[kind], today[kind], texts.keys())[1] for kind in KINDS}
    COUNTS.write_text(json.dumps(lowered, indent=1) + "\n", encoding="utf-8")
    for kind in KINDS:
        print(f"{kind}: {sum(committed[kind].values())} -> {sum(lowered[kind].values())}")


def list_habits(kind, folder=""):
    for name, text in files(*COUNTED):
        for found, number, cure in habits(name, text) if name.startswith(folder) else ():
            if found == kind:
                print(f"{name}:{number}: {cure}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    elif sys.argv[1:2] == ["--list"] and sys.argv[2:3] and sys.argv[2] in KINDS:
        list_habits(*sys.argv[2:])
    else:
        unittest.main()
