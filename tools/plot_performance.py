#!/usr/bin/env python3
"""Draws how fast Trifold is relative to PyTorch 2, from the comparisons in docs/measurements, as bars.

    tools/plot_performance.py [--check]     writes docs/pictures/performance.svg, or compares it with what would be written

A bar is Trifold's figure over PyTorch's; where they are several runs, their medians. Needs nothing but Python.
"""

import sys
from pathlib import Path

import measurements

PICTURE = Path(__file__).resolve().parents[1] / "docs/pictures/performance.svg"
WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW = 800, 370, 70, 52, 48, 44
FASTER, SLOWER, EQUAL = "#3d8fd1", "#d55e00", "#333"


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def bars():
    """[(case, machine and release, ratio)], without cases that were counted instead of timed."""
    found = measurements.comparisons(measurements.load_all())
    return [(comparison["case"], f"{record['hardware']['name']}; {comparison['than']}", measurements.ratio_of(ours, theirs))
            for _, record, comparison, ours, theirs in found if record["status"] == "measured"]


def draw(rows):
    height = TOP + ROW * len(rows) + BOTTOM
    longest = max(ratio for _, _, ratio in rows)
    ticks = [0.5 * i for i in range(int(longest / 0.5) + 2)]

    def x(ratio):
        return LEFT + ratio / ticks[-1] * (WIDTH - LEFT - RIGHT)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica,Arial,sans-serif" font-size="12" '
           'fill="#333"><rect width="100%" height="100%" fill="white"/>',
           '<text x="16" y="26" font-size="15" font-weight="bold">Speed of Trifold over PyTorch 2</text>']
    for tick in ticks:
        out.append(f'<path d="M{x(tick):.1f} {TOP - 8}V{height - BOTTOM + 4}" stroke="#ddd"/>'
                   f'<text x="{x(tick):.1f}" y="{height - BOTTOM + 20}" text-anchor="middle">{tick:g}</text>')
    for i, (case, machine, ratio) in enumerate(rows):
        y = TOP + ROW * i
        color = FASTER if ratio >= 1 else SLOWER
        out.append(f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escaped(case)}</text>'
                   f'<text x="{LEFT - 10}" y="{y + 29}" text-anchor="end" font-size="11" fill="#777">{escaped(machine)}</text>'
                   f'<rect x="{LEFT}" y="{y + 4}" width="{x(ratio) - LEFT:.1f}" height="24" fill="{color}"/>'
                   f'<text x="{x(ratio) + 6:.1f}" y="{y + 21}" font-weight="bold">{ratio:.2f}</text>')
    out.append(f'<path d="M{x(1):.1f} {TOP - 8}V{height - BOTTOM + 4}" stroke="{EQUAL}" stroke-width="1.5" stroke-dasharray="5 3"/>'
               f'<text x="{x(0.5 * ticks[-1]):.1f}" y="{height - 10}" text-anchor="middle">times as fast as PyTorch 2</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    picture = draw(bars())
    if sys.argv[1:] == ["--check"]:
        if picture != PICTURE.read_text(encoding="utf-8"):
            print(f"{PICTURE} is not up to date; run tools/plot_performance.py")
            return 1
        return 0
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    PICTURE.write_text(picture, encoding="utf-8")
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
