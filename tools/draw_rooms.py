#!/usr/bin/env python3
"""Draws the rooms of the source by level: docs/pictures/rooms.svg.

Levels come from tools/check_layers.py, the idea of a room from the first line of its CMakeLists.txt ("# core: errors, ...").

    tools/draw_rooms.py           writes the picture
    tools/draw_rooms.py --check   exit status 1 if the picture in docs is out of date
"""

import re
import sys
import textwrap
from html import escape
from pathlib import Path

import check_layers

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/pictures/rooms.svg"
WIDTH, LEFT, GAP, ROW, BOX = 1000, 84, 12, 70, 58
FONT = "font-family=\"Helvetica,Arial,'DejaVu Sans',sans-serif\""
HUES = ("#e8eef7", "#e3f1ea", "#fbf0dc", "#f6e6ec")


def idea(room):
    """The line with which the room's CMakeLists.txt begins."""
    path = ROOT / ("launch" if room == "launch" else f"src/{room}") / "CMakeLists.txt"
    match = re.match(rf"# {room}: (.+)\n", path.read_text(encoding="utf-8"))
    if match is None:
        sys.exit(f"{path.relative_to(ROOT)}: does not begin with '# {room}: ' and the idea of the room")
    return match.group(1)


def box(room, x, y, width, fill):
    """A rectangle with the room's name and its idea on at most two lines."""
    lines = textwrap.wrap(idea(room), max(18, int((width - 16) / 6.6)))
    text = [f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="5" fill="{fill}" stroke="#b8c2cc"/>',
            f'<text x="{x + 10:.0f}" y="{y + 20}" font-size="14" font-weight="bold" fill="#1f2933">{room}</text>']
    for number, line in enumerate(lines[:2]):
        text.append(f'<text x="{x + 10:.0f}" y="{y + 37 + 15 * number}" font-size="11.5" fill="#52606d">{escape(line)}</text>')
    return text


def picture():
    """The SVG, highest level first."""
    highest = max(check_layers.LEVELS.values())
    height = ROW * (highest + 1) + 24
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" {FONT}>',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    for level in range(highest, -1, -1):
        y = 12 + ROW * (highest - level)
        rooms = [room for room, at in check_layers.LEVELS.items() if at == level]
        width = (WIDTH - LEFT - 12 - GAP * (len(rooms) - 1)) / len(rooms)
        svg.append(f'<text x="34" y="{y + 33}" font-size="12" fill="#7b8794">level {level}</text>')
        for number, room in enumerate(rooms):
            svg += box(room, LEFT + number * (width + GAP), y, width, HUES[level % len(HUES)])
    svg.append(f'<path d="M20 20 V{height - 26} m-6 -12 l6 12 l6 -12" fill="none" stroke="#7b8794" stroke-width="2"/>')
    return "\n".join(svg) + "\n</svg>\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print("\n".join(__doc__.splitlines()[4:]), file=sys.stderr)
        return 2
    if not sys.argv[1:]:
        PICTURE.write_text(picture(), encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != picture():
        print("docs/pictures/rooms.svg is not that of today's rooms: run tools/draw_rooms.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
