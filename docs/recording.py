"""Turns what a terminal shows into a picture: an SVG that plays, without a script."""

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

LINE_PX, CHAR_PX, EDGE_PX = 18, 8.4, 14
LEAST_S, LAST_S = 0.25, 6.0
"""How long a frame is shown at least, and the last one before it begins again."""
COLOURS = {
    "default": "#d8dee9", "black": "#7b8394", "red": "#ff7b72", "green": "#7ee787",
    "brown": "#e3b341", "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#76e3ea",
    "white": "#f0f6fc",
}  # fmt: skip
STYLE = "font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre"

Row = tuple[tuple[str, str, bool], ...]
"""Of one line: text, colour and whether it is bold."""


@dataclass(frozen=True)
class Frame:
    """What stood on the screen from a time on."""

    at_s: float
    rows: tuple[Row, ...]


def watch(screen: Any, running: Callable[[], bool]) -> list[Frame]:
    """Return the frames of a `pyte` screen while a program runs on it. Blocks.

    Args:
        screen: Is changed by whoever reads the program's output.
        running: Says whether it still runs.
    """
    began, frames = time.monotonic(), list[Frame]()
    while True:
        last = not running()
        at_s = time.monotonic() - began
        rows = tuple(_row(screen.buffer[y], screen.columns) for y in range(screen.lines))
        if not frames or rows != frames[-1].rows:
            if frames and at_s - frames[-1].at_s < LEAST_S:
                frames[-1] = Frame(frames[-1].at_s, rows)
            else:
                frames.append(Frame(at_s, rows))
        if last:
            return frames
        time.sleep(LEAST_S / 5)


def _row(line: Mapping[int, Any], columns: int) -> Row:
    cells = [(line[x].data, line[x].fg, line[x].bold) for x in range(columns)]
    runs = (
        ("".join(data for data, _, _ in run), colour, bold)
        for (colour, bold), run in groupby(cells, lambda cell: cell[1:])
    )
    row = list(runs)
    while row and not row[-1][0].strip():
        row.pop()
    return tuple(row)


def svg(frames: Sequence[Frame], columns: int, lines: int, title: str, made: bytes) -> str:
    """Draw frames and, below them, a picture that the program made.

    The picture appears with the last frame. Viewers that reduce motion show the last frame only.

    Args:
        frames: From `watch`.
        columns: Of the terminal.
        lines: Of the terminal.
        title: For screen readers.
        made: The picture, a PNG with sides of 22 : 9.
    """
    width, height = columns * CHAR_PX + 2 * EDGE_PX, lines * LINE_PX + 2 * EDGE_PX
    picture_px = width * 9 / 22
    ids: dict[Row, str] = {}
    for frame in frames:
        for row in filter(None, frame.rows):
            ids.setdefault(row, f"r{len(ids)}")
    shown = "".join(_frame(frame, ids, n * height) for n, frame in enumerate(frames))
    whole_s = frames[-1].at_s + LAST_S
    steps = "".join(
        f"{100 * frame.at_s / whole_s:.3f}%{{transform:translateY({-n * height}px)}}"
        for n, frame in enumerate(frames)
    )
    rows = "".join(f'<g id="{name}">{"".join(_texts(row))}</g>' for row, name in ids.items())
    box = f"0 0 {width} {height + picture_px}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">
<title>{escape(title)}</title>
<style>
text{{{STYLE}}}
.film{{transform:translateY({-(len(frames) - 1) * height}px)}}
@media (prefers-reduced-motion:no-preference){{
.film{{animation:play {whole_s:.2f}s step-end infinite}}
.made{{animation:show {whole_s:.2f}s step-end infinite}}
}}
@keyframes play{{{steps}}}
@keyframes show{{0%{{opacity:0}}{100 * frames[-1].at_s / whole_s:.3f}%{{opacity:1}}}}
</style>
<defs>{rows}</defs>
<clipPath id="screen"><rect width="{width}" height="{height}"/></clipPath>
<rect width="{width}" height="{height + picture_px}" rx="8" fill="#0d1117"/>
<g clip-path="url(#screen)"><g class="film">{shown}</g></g>
<image class="made" y="{height}" width="{width}" height="{picture_px}"
 href="data:image/png;base64,{base64.b64encode(made).decode()}"/>
</svg>
"""


def _frame(frame: Frame, ids: Mapping[Row, str], top: float) -> str:
    return "".join(
        f'<use href="#{ids[row]}" x="{EDGE_PX}" y="{top + EDGE_PX + (n + 0.75) * LINE_PX:g}"/>'
        for n, row in enumerate(frame.rows)
        if row
    )


def _texts(row: Row) -> Iterator[str]:
    x = 0.0
    for text, colour, bold in row:
        if text.strip():
            weight = ' font-weight="700"' if bold else ""
            fill = COLOURS.get(colour, f"#{colour}" if len(colour) == 6 else COLOURS["default"])
            length = len(text) * CHAR_PX
            yield (
                f'<text x="{x:g}" fill="{fill}"{weight} textLength="{length:g}" '
                f'xml:space="preserve">{escape(text)}</text>'
            )
        x += len(text) * CHAR_PX
