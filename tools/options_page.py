#!/usr/bin/env python3
"""Writes docs/options.md, the list of all options of all commands, from the program's manual page.

usage: options_page.py PROGRAM [--check PAGE]

Prints the page; with --check compares it with PAGE instead, and fails where they differ."""

import argparse
import difflib
import re
import subprocess
import sys

INTRODUCTION = """\
# Options

All options of all commands, as `trifold COMMAND --help` explains them. An option that several commands have in the same words \
is listed once; where its range or default differs, the commands are named with it. Options without a default are off or \
unset unless given. `trifold COMMAND --print-config` prints the values of a run and where each comes from.

Options with Megatron-LM's names have the same meaning, with a few [exceptions](train.md#differences-from-megatron-lm). \
A table with options that Megatron-LM spells differently has a column with its spelling.

`tools/options_page.py` writes this page from `trifold man-page`.
"""

# Megatron-LM's spelling of options of language models that have another name there.
MEGATRON = {
    "--max-new-tokens": "`--num-tokens-to-generate`",
    "--moe-buffer-factor": "`--moe-expert-rank-capacity-factor`, beyond which tokens are dropped",
    "--no-deterministic-mode": "the default; the opposite is `--deterministic-mode`",
    "--offload": "`--optimizer-cpu-offload`",
    "--rope-no-truncate": "`--no-yarn-correction-range-round-to-int`",
    "--tiled-mlp": "`--mlp-chunks-for-training`",
    "--zero-group-size": "`--num-distributed-optimizer-instances`, the number of groups",
    "--zero-min-unit-params": "`--ddp-bucket-size`",
    "--zero-stage": "1: `--use-distributed-optimizer`; 2 and 3: `--use-megatron-fsdp` with "
                    "`--data-parallel-sharding-strategy`",
}

ESCAPES = {"\\e": "\\", "\\-": "-", "\\(aq": "'", "\\(ga": "`", "\\(ha": "^", "\\(ti": "~", "\\:": "", "\\&": ""}
ESCAPE = re.compile("|".join(re.escape(escape) for escape in ESCAPES))
OPTION = re.compile(r"\\fB\\-\\-(.*?)\\fR(?: \\fI(.*)\\fR)?")
# The help's text, then the range and the default, then the aliases: config/command_line/help.cpp, option_description().
DESCRIPTION = re.compile(r"(?P<help>.*?)(?: \((?P<facts>(?:[^()]|\([^()]*\))*)\))?(?P<aliases>(?: Also --[\w-]+\.)*)")


def plain(text):
    """Text of roff as it is printed."""
    return ESCAPE.sub(lambda match: ESCAPES[match.group()], text)


def split_facts(facts):
    """The range and the default among the facts that follow a help's text; `required` counts as a default."""
    found = re.fullmatch(r"(?P<range>.*?)(?:(?:^|; )(?P<default>(?:default:? |required).*))?", facts)
    return found["range"], re.sub(r"^default:? ", "", found["default"] or "")


def options_of(manual):
    """Of each option of each command: (command, group, spelling, help, aliases, range, default). The options of every
    command have the command `all`."""
    command = group = None
    lines = manual.splitlines()
    for index, line in enumerate(lines):
        if line.startswith(".SH "):
            title = plain(line[4:]).strip('"')
            command = "all" if title == "OPTIONS OF EVERY COMMAND" else title.lower().removeprefix("trifold ")
        elif line.startswith(".SS "):
            group = plain(line[4:]).strip('"')
        elif line == ".TP" and (head := OPTION.fullmatch(lines[index + 1])):
            spelling = "--" + plain(head[1]) + (" " + plain(head[2]) if head[2] else "")
            words = DESCRIPTION.fullmatch(plain(lines[index + 2]))
            aliases = tuple(re.findall(r"--[\w-]+", words["aliases"]))
            yield command, group, spelling, words["help"], aliases, *split_facts(words["facts"] or "")


def cell(text):
    """Text in a cell of a table."""
    return re.sub(r"([\\*<|`])", r"\\\1", text)


def by_command(values):
    """One text for the values of commands: the value of most of them, then each other one with its commands."""
    groups = {}
    for command, value in values.items():
        groups.setdefault(value, []).append(command)
    first, *others = sorted(groups, key=lambda value: -len(groups[value]))
    return "; ".join([cell(first or "none" if others else first)] +
                     [f"*{', '.join(groups[value])}*: {cell(value or 'none')}" for value in others])


def megatron_spelling(key, commands):
    return "" if "recommend" in commands else MEGATRON.get(key[0].split()[0], "")


def row(key, commands, has_megatron):
    """A row of a table; with `has_megatron`, the table has the column of Megatron-LM's spelling."""
    spelling, text, aliases = key
    names = ", ".join(f"`{name}`" for name in (spelling, *aliases)).replace("|", "\\|")
    ranges = by_command({command: facts[0] for command, facts in commands.items()})
    defaults = by_command({command: facts[1] for command, facts in commands.items()})
    cells = [names, cell(text), ranges, defaults, ", ".join(commands)]
    if has_megatron:
        cells.insert(-1, megatron_spelling(key, commands))
    return f"| {' | '.join(cells)} |"


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page_of(manual):
    groups = {}  # group: (spelling, help, aliases): command: (range, default)
    home = {}    # the group under which an option is listed, the first that has it
    for command, group, spelling, text, aliases, *facts in options_of(manual):
        key = (spelling, text, aliases)
        rows = groups.setdefault(home.setdefault(key, group), {})
        rows.setdefault(key, {})[command] = tuple(facts)
    groups = {group: rows for group, rows in groups.items() if rows}
    parts = [INTRODUCTION, "".join(f"- [{group}](#{anchor(group)})\n" for group in groups)]
    for group, rows in groups.items():
        has_megatron = any(megatron_spelling(key, commands) for key, commands in rows.items())
        head = ["option", "meaning", "range", "default", *(["Megatron-LM"] if has_megatron else []), "commands"]
        table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        table += [row(key, commands, has_megatron) for key, commands in rows.items()]
        parts.append(f"## {group}\n\n" + "\n".join(table) + "\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the built program")
    parser.add_argument("--check", metavar="PAGE", help="compare with this page")
    arguments = parser.parse_args()
    manual = subprocess.run([arguments.program, "man-page"], capture_output=True, text=True, encoding="utf-8", check=True)
    page = page_of(manual.stdout)
    if arguments.check is None:
        sys.stdout.write(page)
        return 0
    with open(arguments.check, encoding="utf-8") as file:
        written = file.read()
    if written == page:
        return 0
    sys.stdout.writelines(difflib.unified_diff(written.splitlines(True), page.splitlines(True), arguments.check,
                                               "the program's options", n=0))
    print(f"{arguments.check} is not up to date; write it with: tools/options_page.py {arguments.program} > docs/options.md",
          file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
