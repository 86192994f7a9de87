"""Bar charts as SVG text, readable on light and dark pages. Pure. Called by bench.report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 720, 190, 90
BAR, GAP, TOP, BOTTOM = 20, 10, 44, 12
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.bar { fill: #8c959f } .ours { fill: #1a7f64 } .range { stroke: #24292f; stroke-width: 1.5; opacity: .6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #6e7681 } .ours { fill: #3fb68b } .range { stroke: #e6edf3 }
}"""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    ours: bool = False


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
