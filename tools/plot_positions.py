#!/usr/bin/env python3
"""Draws the loss by position of one or more evaluations: how much a model gains from what precedes a token.

    trifold evaluate ... --loss-by-position long.csv
    tools/plot_positions.py positions.svg "trained at 1024=short.csv" "then at 16384=long.csv" [--from 64] [--parts 3]

Positions are on a logarithmic axis, from --from on; a point is the mean over one of --parts parts of an octave. Needs
nothing but Python.
"""

import argparse
import csv
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 58, 16, 44, 46
COLORS = ("#3d8fd1", "#d55e00", "#009e73", "#cc79a7", "#6b6b6b")  # Okabe and Ito


def read_points(path, first, parts):
    """[(position, loss)]: the middle and the weighted mean of each of `parts` parts of an octave from `first` on."""
    sums = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            position, tokens = int(row["position"]) + 1, float(row["tokens"])
            if position <= first:
                continue
            part = math.floor(parts * math.log2(position))
            loss, weight = sums.get(part, (0.0, 0.0))
            sums[part] = (loss + tokens * float(row["loss"]), weight + tokens)
    if not sums:
        sys.exit(f"{path}: there are no positions from {first} on")
    return [(2 ** ((part + 0.5) / parts), loss / weight) for part, (loss, weight) in sorted(sums.items())]


def ticks(low, high):
    step = 10 ** math.floor(math.log10(max(high - low, 1e-6)))
    step = next(step * factor for factor in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (step * factor) <= 8)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def draw(curves, title):
    positions = [x for _, points in curves for x, _ in points]
    losses = [y for _, points in curves for _, y in points]
    low, high = min(losses), max(losses)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    left, right = math.log2(min(positions)), math.log2(max(positions))

    def x(position):
        return LEFT + (math.log2(position) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(loss):
        return TOP + (high - loss) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica,Arial,sans-serif" '
           f'font-size="12" fill="#333"><rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escaped(title)}</text>']
    for loss in ticks(low, high):
        out.append(f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.3g}</text>')
    for power in range(math.ceil(left), math.floor(right) + 1):
        out.append(f'<path d="M{x(2 ** power):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>'
                   f'<text x="{x(2 ** power):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{2 ** power}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">position in the window</text>'
               f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">loss</text>')
    for i, (name, points) in enumerate(curves):
        color = COLORS[i % len(COLORS)]
        path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>'
                   f'<path d="M{LEFT + 12} {TOP + 10 + 18 * i}h22" stroke="{color}" stroke-width="3"/>'
                   f'<text x="{LEFT + 40}" y="{TOP + 14 + 18 * i}">{escaped(name)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", help="the .svg file to write")
    parser.add_argument("curves", nargs="+", metavar="NAME=FILE", help="a name and the file given to --loss-by-position")
    parser.add_argument("--from", dest="first", type=int, default=64, help="the first position drawn (64)")
    parser.add_argument("--parts", type=int, default=3, help="points an octave (3)")
    parser.add_argument("--title", default="Loss by position")
    options = parser.parse_args()
    curves = []
    for curve in options.curves:
        name, equals, path = curve.rpartition("=")
        if not equals:
            sys.exit(f"'{curve}' is not NAME=FILE")
        curves.append((name, read_points(path, options.first, options.parts)))
    with open(options.picture, "w", encoding="utf-8") as file:
        file.write(draw(curves, options.title))


if __name__ == "__main__":
    main()
