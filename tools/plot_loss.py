#!/usr/bin/env python3
"""Draws the loss curve of a run from the log that `trifold ... --log-json LOG.jsonl` writes.

    tools/plot_loss.py LOG.jsonl OUT.svg [OUT.png ...] [--title TEXT]

The raw training loss is a light line, its running mean a strong one; validation losses are points. The kind of each
picture follows from its ending, .svg or .png. Python's standard library reads the log, gnuplot draws.
"""

import argparse
import itertools
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TERMINALS = {
    ".svg": "svg size 960,540 dynamic enhanced font 'DejaVu Sans,15' background '#ffffff'",
    ".png": "pngcairo size 1440,810 enhanced font 'DejaVu Sans,15' fontscale 1.1 linewidth 1.4 background '#ffffff'",
}

# The most points of a line: a picture has fewer columns of pixels, and a running mean bends little.
RAW_POINTS, MEAN_POINTS = 1000, 250

# The colours, the light grid behind them, and the drawing order: raw, smoothed, validation.
SCRIPT = """
set terminal {terminal}
set output {picture}
set title {title} noenhanced font ',19' textcolor rgb '#1f2933' offset 0,0.3
set xlabel 'step' textcolor rgb '#52606d'
set ylabel 'loss (nats per token)' textcolor rgb '#52606d'
set border 3 linecolor rgb '#9aa5b1' linewidth 1
set tics nomirror scale 0.5 textcolor rgb '#52606d'
set grid ytics linetype 1 linecolor rgb '#e4e7eb' linewidth 1
set key top right Left reverse samplen 2.4 spacing 1.35 textcolor rgb '#1f2933'
set format x "%.0f"
set xrange [{first}:{last}]
set yrange [{low}:{high}]
set lmargin 9
set rmargin 4
set bmargin 4
plot {curves}
"""


def fail(message):
    print(f"plot_loss.py: {message}", file=sys.stderr)
    sys.exit(2)


def read_log(path):
    """([(step, loss)], [(step, validation loss)]) of a log, in order of step.

    A run that was stopped and resumed may have written a step twice; the later line counts.
    """
    training, validation = {}, {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        fail(f"cannot read the log: {error}")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            step = int(entry["step"])
        except (ValueError, TypeError, KeyError):
            if number == len(lines):  # a run that is still writing, or was killed
                continue
            fail(f"{path}:{number}: not a JSON object with a step: {line[:60]!r}")
        for curve, name in ((training, "loss"), (validation, "valid_loss")):
            value = entry.get(name)
            if isinstance(value, (int, float)) and math.isfinite(value):
                curve[step] = value
    return sorted(training.items()), sorted(validation.items())


def smooth(points, span):
    """The mean over about `span` points around each. At the start, where the loss falls steeply, the window shrinks on
    both sides so that the line does not lag; at the end it is cut on one side only, so that the line stays calm."""
    sums = [0.0, *itertools.accumulate(loss for _, loss in points)]
    result = []
    for i, (step, _) in enumerate(points):
        half = min(span // 2, i)
        begin, end = i - half, min(i + half + 1, len(points))
        result.append((step, (sums[end] - sums[begin]) / (end - begin)))
    return result


def thinned(points, most):
    """Every n-th point, n as small as leaves at most `most`, and the last one; and n."""
    every = max(1, math.ceil(len(points) / most))
    return points[::every] + (points[-1:] if (len(points) - 1) % every else []), every


def quoted(text):
    """`text` as a gnuplot string in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def block(name, points):
    rows = "\n".join(f"{step} {loss!r}" for step, loss in points)
    return f"${name} << EOD\n{rows}\nEOD\n"


def gnuplot_script(training, validation, picture, title):
    """The program that draws one picture; it carries its data with it."""
    losses = [loss for _, loss in training + validation]
    low, high = min(losses), max(losses)
    margin = 0.06 * (high - low) or 0.1
    steps = [step for step, _ in training + validation]
    data, curves = "", []
    if training:
        raw, every = thinned(training, RAW_POINTS)
        mean, _ = thinned(smooth(training, len(training) // 30), MEAN_POINTS)
        data += block("raw", raw) + block("mean", mean)
        steps_shown = "each step" if every == 1 else f"1 step in {every}"
        curves.append(f"$raw using 1:2 with lines linewidth 1 linecolor rgb '#b7c9ea' title 'training, {steps_shown}'")
        curves.append("$mean using 1:2 with lines linewidth 2.5 linecolor rgb '#2456b8' title 'training, running mean'")
    if validation:
        data += block("valid", validation)
        last = validation[-1][1]
        curves.append("$valid using 1:2 with linespoints linewidth 1.6 pointtype 7 pointsize 0.9 linecolor rgb '#d9480f' "
                      f"title 'validation, last {last:.3f}'")
    return data + SCRIPT.format(terminal=TERMINALS[picture.suffix], picture=quoted(str(picture)), title=quoted(title),
                                first=min(steps), last=max(max(steps), min(steps) + 1), low=low - margin,
                                high=high + margin, curves=", \\\n  ".join(curves))


def draw(script, picture):
    picture.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".gp", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(["gnuplot", file.name], capture_output=True, text=True, check=False, timeout=60,
                              stdin=subprocess.DEVNULL)
    if done.returncode != 0 or not picture.is_file():
        fail(f"gnuplot could not draw {picture}:\n{done.stderr.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, help="the file given to --log-json")
    parser.add_argument("pictures", type=Path, nargs="+", metavar="picture", help="what to write: .svg or .png")
    parser.add_argument("--title", help="the title of the picture; default: the name of the log")
    arguments = parser.parse_args()
    for picture in arguments.pictures:
        if picture.suffix not in TERMINALS:
            fail(f"'{picture}': a picture ends in {' or '.join(TERMINALS)}")
    training, validation = read_log(arguments.log)
    if not training and not validation:
        fail(f"{arguments.log} holds no loss yet")
    if not shutil.which("gnuplot"):
        fail("gnuplot is not installed; on Debian and Ubuntu: apt-get install gnuplot-nox")
    for picture in arguments.pictures:
        title = arguments.title or f"Loss of {arguments.log.stem}"
        draw(gnuplot_script(training, validation, picture, title), picture)
        print(picture)


if __name__ == "__main__":
    main()
