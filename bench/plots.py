"""Bar charts and lines over time as SVG text, readable on light and dark pages. Pure. Called by bench.report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 720, 190, 90
BAR, GAP, TOP, BOTTOM = 20, 10, 44, 12
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.line { fill: none; stroke: #1a7f64; stroke-width: 2 } .axis { stroke: #8c959f; stroke-width: 1 }
.bar { fill: #8c959f } .ours { fill: #1a7f64 } .range { stroke: #24292f; stroke-width: 1.5; opacity: .6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #6e7681 } .ours { fill: #3fb68b } .range { stroke: #e6edf3 }
  .line { stroke: #3fb68b } .axis { stroke: #6e7681 }
}"""
PANEL, PANEL_GAP, LEFT = 130, 44, 64
MAX_TICKS = 10


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure, second by second from zero on."""

    label: str
    values: Sequence[float]


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value >= 100:
        return f"{round(value, 2 - len(str(int(value))) + 1):,.0f}".replace(",", "\u202f")
    return f"{value:.3g}"


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars from zero, the longest across the whole width; a line shows lowest to highest."""
    height = TOP + len(rows) * (BAR + GAP) + BOTTOM
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    most = max((row.high for row in rows), default=1.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)} ({escape(unit)})</text>',
    ]
    for index, row in enumerate(rows):
        y = TOP + index * (BAR + GAP)
        middle, text_y = y + BAR / 2, y + BAR / 2 + 5
        length = max(1.0, room * row.value / most)
        low, high = (LABEL_WIDTH + room * edge / most for edge in (row.low, row.high))
        kind = "ours" if row.ours else "bar"
        parts += [
            f'<text x="{LABEL_WIDTH - 8}" y="{text_y:g}" text-anchor="end">{escape(row.label)}</text>',
            f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:g}" y2="{middle:g}"/>',
            f'<text x="{max(LABEL_WIDTH + length, high) + 8:.1f}" y="{text_y:g}">{number(row.value)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def panels(title: str, rows: Sequence[Panel]) -> str:
    """Lines over the same seconds, one below the other, each from zero to its highest value."""
    height = TOP + len(rows) * (PANEL + PANEL_GAP) + BOTTOM
    seconds = max((len(row.values) for row in rows), default=1)
    room = WIDTH - LEFT - 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)}</text>',
    ]
    step = max(1, -(-seconds // MAX_TICKS))
    for index, row in enumerate(rows):
        top = TOP + index * (PANEL + PANEL_GAP) + 18
        base, most = top + PANEL - 18, max(row.values, default=0.0) or 1.0
        places = [
            (LEFT + room * (at + 0.5) / seconds, base - (base - top) * v / most) for at, v in enumerate(row.values)
        ]
        parts += [
            f'<text x="{LEFT}" y="{top - 6}">{escape(row.label)}</text>',
            f'<text x="{LEFT - 8}" y="{top + 5}" text-anchor="end">{number(most)}</text>',
            f'<text x="{LEFT - 8}" y="{base + 5}" text-anchor="end">0</text>',
            f'<line class="axis" x1="{LEFT}" x2="{LEFT + room}" y1="{base}" y2="{base}"/>',
            f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{top}" y2="{base}"/>',
            f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>',
        ]
        parts += [
            f'<text x="{LEFT + room * at / seconds:.1f}" y="{base + 18}" text-anchor="middle">{at} s</text>'
            for at in range(0, seconds + 1, step)
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
