"""Runs the pages of docs/recipes as a reader would: each page's commands in order, in one shell and a new folder, with
`trifold` on the PATH. Every command must end with status 0 and print the lines that the page shows below it.

  recipes_test.py Mechanism -v          how a page is read and compared, on small pages
  recipes_test.py Recipes.test_NAME -v  the page docs/recipes/NAME.md

A page has

- commands: indented lines that begin with `$ `, each continued by lines after a final backslash;
- expected output: the other lines of such a block. They occur in this order among the lines that the command prints, on
  either stream. Blanks count as one, and `...` stands for any text, for digits that are left out, and for lines;
- files: blocks in fences whose first line is a comment with the name of the file alone, `# make_text.py`;
- tools: a section with the line "Needs `mpiexec`" (a program or a Python package; several, with commas) is left out where
  one is missing. With a line above the first section the whole page is;
- a tolerance: after "may differ by 2 %" anywhere on the page all shown numbers with a decimal point may.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "recipes").glob("*.md"))}
LONGEST = 90  # lines of a page
NUMBER = r"-?\d+\.\d+(?:[eE][-+]?\d+)?"
TOLERANCE = re.compile(r"may\s+differ\s+by\s+(\d+(?:\.\d+)?)\s+%")
TIME_LIMIT = 240  # seconds; a page takes less than 40 on two idle cores


class BadPage(Exception):
    """A page that cannot be run, or whose commands do not do what it says."""


@dataclasses.dataclass
class Step:
    """A command with the output that the page shows below it, or a file that the reader saves."""
    line: int
    command: str
    expected: list = dataclasses.field(default_factory=list)  # (number of the line, its text)
    needs: tuple = ()


def file_step(line, body, needs):
    """The step that saves a block in fences; None if its first line does not name a file."""
    named = re.fullmatch(r"(?:#|//) ([\w.-]+\.\w+)", body[0]) if body else None
    if named is None:
        return None
    text = "\n".join(body)
    return Step(line, f"cat > {named[1]} <<'END_OF_THE_FILE'\n{text}\nEND_OF_THE_FILE", [], needs)


def read_page(text):
    """The steps of a page, in order."""
    steps, page_needs, section_needs, in_section = [], (), (), False
    fence, command, continued = None, None, False
    for number, line in enumerate(text.splitlines(), 1):
        needs = page_needs + section_needs
        if line.startswith("```"):
            if fence is None:
                fence = (number, [])
            else:
                step = file_step(*fence, needs)
                if step is None:
                    raise BadPage(f"line {fence[0]}: the first line of this block does not name its file")
                steps.append(step)
                fence = None
        elif fence is not None:
            fence[1].append(line)
        elif not line.startswith("    "):
            if continued:
                raise BadPage(f"line {number}: the command of line {command.line} is not complete")
            if line.strip():
                command = None
            if line.startswith("## "):
                in_section, section_needs = True, ()
            elif line.startswith("Needs "):
                found = tuple(re.findall(r"`([\w.-]+)`", line.partition(":")[0].partition("(")[0]))
                if in_section:
                    section_needs = found
                else:
                    page_needs = found
        elif continued:
            command.command += "\n" + line[4:]
            continued = line.endswith("\\")
        elif line.startswith("    $ "):
            command = Step(number, line[6:], [], needs)
            steps.append(command)
            continued = line.endswith("\\")
        elif command is None:
            raise BadPage(f"line {number}: output without a command above it: {line.strip()}")
        else:
            command.expected.append((number, line.strip()))
    if fence is not None or continued:
        raise BadPage("the page ends within a block")
    return steps


def tolerance_of(text):
    found = TOLERANCE.search(text)
    return float(found[1]) / 100 if found else 0.0


def matches(expected, line, tolerance):
    """Whether a printed line is the one that the page shows."""
    numbers = []

    def pattern_of(part):
        if tolerance and re.fullmatch(NUMBER, part):
            numbers.append(float(part))
            return f"({NUMBER})"
        return r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))

    texts = re.split(f"({NUMBER}(?!\\d|\\.\\.\\.))", expected)  # not the first digits of a longer number, `0.25...`
    pattern = "".join(".*?".join(map(pattern_of, text.split("..."))) for text in texts)
    found = re.fullmatch(r"\s*" + pattern + r"\s*", line)
    return found is not None and all(abs(float(printed) - shown) <= tolerance * abs(shown)
                                     for shown, printed in zip(numbers, found.groups(), strict=True))


def missing_lines(expected, output, tolerance):
    """The shown lines, as (number, text), that the output does not have after the shown line above."""
    rest = iter(re.split(r"[\r\n]+", output))
    for number, text in expected:
        if text != "..." and not any(matches(text, line, tolerance) for line in rest):
            yield number, text
            return  # the lines below it were not looked for


def is_present(tool):
    """Whether this machine has a program or, of that name, a Python package."""
    if shutil.which(tool):
        return True
    probe = ["python3", "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({tool!r}) is None)"]
    return subprocess.run(probe, check=False).returncode == 0


def in_shell(steps, folder):
    """Runs the steps in one shell until one fails; returns [(status, output)] of those that ended."""
    script = "".join(f"{step.command}\nstep_status=$?; printf '\\n\\036%d\\036' $step_status; [ $step_status -eq 0 ] || exit 1\n"
                     for step in steps)
    (folder / ".steps.sh").write_text(script)
    with open(folder / ".output", "wb") as output:
        # A session of its own, so that programs in the background can be ended with the shell.
        shell = subprocess.Popen(["bash", ".steps.sh"], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            shell.wait(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            shell.wait()
    text = (folder / ".output").read_text(errors="replace")
    parts = re.split(r"\n\036(\d+)\036", text)
    done = [(int(status), printed) for printed, status in zip(parts[::2], parts[1::2])]
    return done, parts[-1]


def run_page(text, folder):
    """Runs a page; returns the tools that it lacks. BadPage names the first line of the page that does not hold."""
    steps = read_page(text)
    if not any(step.expected for step in steps):
        raise BadPage("the page shows no output")
    missing = {tool for step in steps for tool in step.needs if not is_present(tool)}
    steps = [step for step in steps if not missing.intersection(step.needs)]
    done, rest = in_shell(steps, folder)
    for step, (status, output) in zip(steps, done):
        shown = f"line {step.line}: {step.command.splitlines()[0]}"
        if status != 0:
            raise BadPage(f"{shown}\nended with status {status}:\n{output}")
        for number, line in missing_lines(step.expected, output, tolerance_of(text)):
            raise BadPage(f"{shown}\ndid not print line {number} of the page:\n{line}\nIt printed:\n{output}")
    if len(done) < len(steps):
        raise BadPage(f"line {steps[len(done)].line}: {steps[len(done)].command}\ndid not end:\n{rest}")
    return sorted(missing), len(steps)


class PageTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trifold_recipe_"))
        self.addCleanup(shutil.rmtree, self.folder)


class Mechanism(PageTest):
    PAGE = textwrap.dedent("""\
        # A page

        Losses may differ by 2 %.

        ```python
        # three.py
        print("loss 2.500 at step 3 of 0.12345")
        ```

            $ python3 three.py
            loss 2.52 ...  step 3 of 0.12...
            $ printf 'a  b\\n1\\n2\\n3\\n'; echo \\
                done >&2
            a b
            ...
            3
            done

        ## With a tool

        Needs `no_such_tool` (`pip install it`):

            $ no_such_tool
            42
        """)

    def expect_bad(self, old, new, words):
        self.assertIn(old, self.PAGE)
        with self.assertRaisesRegex(BadPage, words):
            run_page(self.PAGE.replace(old, new), self.folder)

    def test_a_page_that_holds(self):
        self.assertEqual(run_page(self.PAGE, self.folder), (["no_such_tool"], 3))

    def test_a_damaged_command(self):
        self.expect_bad("$ python3 three.py", "$ python3 tree.py", r"line 10: python3 tree\.py\nended with status 2")

    def test_a_line_that_is_not_printed(self):
        self.expect_bad("    done\n\n", "    gone\n\n", "line 12: printf(.|\n)*did not print line 17 of the page:\ngone")

    def test_lines_in_another_order(self):
        self.expect_bad("    a b\n", "    2\n    1\n", "did not print line 15 of the page:\n1")

    def test_a_number_outside_the_tolerance(self):
        self.expect_bad("loss 2.52", "loss 2.56", "did not print line 11")

    def test_without_a_tolerance_numbers_are_exact(self):
        self.expect_bad("Losses may differ by 2 %.", "", "did not print line 11")

    def test_integers_are_exact(self):
        self.expect_bad("...  step 3", "...  step 4", "did not print line 11")

    def test_first_digits_are_exact(self):
        self.expect_bad("0.12...", "0.13...", "did not print line 11")

    def test_a_section_whose_tool_is_present_runs(self):
        self.expect_bad("Needs `no_such_tool`", "Needs `bash`", "ended with status 127")

    def test_pages_that_cannot_be_read(self):
        for text, words in (("    output\n", "line 1: output without a command"), ("    $ a \\\n\n", "line 2: .* not complete"),
                            ("```python\nprint(1)\n```\n", "line 1: the first line"), ("```python\n# a.py\n", "within a block")):
            with self.assertRaisesRegex(BadPage, words):
                read_page(text)


class Recipes(PageTest):
    def run_recipe(self, page):
        text = page.read_text(encoding="utf-8")
        self.assertLessEqual(len(text.splitlines()), LONGEST)
        # By default Open MPI refuses to run as root, and more ranks than cores; MPICH ignores these variables.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        program = pathlib.Path(os.environ["TRIFOLD"])
        self.assertEqual(program.name, "trifold")
        os.environ["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        try:
            missing, steps = run_page(text, self.folder)
        except BadPage as problem:
            self.fail(f"{page.relative_to(ROOT)}, {problem}")
        if missing:
            self.skipTest(f"{steps} steps ran; others need {', '.join(missing)}")


for name, recipe in PAGES.items():
    setattr(Recipes, f"test_{name}", lambda self, page=recipe: self.run_recipe(page))

if __name__ == "__main__":
    unittest.main()
