"""Bars as HTML and lines as inline SVG; their colours are the page's variables."""

from collections.abc import Iterator, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 560, 150, 44, 16, 12


def bar(value: float | None, most: float, colour: str) -> str:
    """Draw a bar as long as a value's share of the greatest one."""
    share = (value or 0) / most if most else 0
    return f'<div class="bars">{_part(share, colour)}</div>'


def stacked_bar(parts: Sequence[tuple[str, str, int]]) -> str:
    """Draw a bar of parts, which has always the same length.

    Args:
        parts: Name, colour and count of each.
    """
    total = sum(count for _, _, count in parts)
    drawn = (
        _part(count / total, colour, f"{name}: {count} of {total}")
        for name, colour, count in parts
        if count
    )
    return f'<div class="bars">{"".join(drawn)}</div>'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """List names with their colours."""
    items = (
        f'<li><span style="background: var(--{colour})"></span>{escape(name)}</li>'
        for name, colour in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def lines(series: Sequence[tuple[str, Sequence[float | None]]], label: str) -> str:
    """Draw lines over 1, 2, 3 ... of shares between 0 and 1.

    Args:
        series: Colour and values of each; None has no point.
        label: Says what is drawn, for whoever cannot see it.
    """
    count = max(len(values) for _, values in series)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, count - 1)
    places = [_LEFT + step * at for at in range(count)]
    parts = [_grid(share) for share in (0.0, 0.5, 1.0)]
    parts += [
        f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{at}</text>'
        for at, x in enumerate(places, 1)
    ]
    for colour, values in series:
        pairs = zip(places, values, strict=True)
        points = [(x, _y(value)) for x, value in pairs if value is not None]
        parts.extend(_line(points, colour))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_TOP + _HEIGHT + 26}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _part(share: float, colour: str, title: str = "") -> str:
    tip = f' title="{escape(title)}"' if title else ""
    return f'<span style="width: {100 * share:.4g}%; background: var(--{colour})"{tip}></span>'


def _line(points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f"fill: none; stroke: var(--{colour}); stroke-width: 2"
    yield f'<polyline points="{path}" style="{style}"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill: var(--{colour})"/>'


def _grid(share: float) -> str:
    y = _y(share)
    label = f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    return f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>{label}'


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)
