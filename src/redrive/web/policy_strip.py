"""When a policy retries, as a strip of time: a mark for each retry, on the same axis for every policy. Pure.

The axis is logarithmic, since waits are: from a second to a month. Drawn beside each policy in their list, where it is
the comparison that tells something.
"""

from collections.abc import Sequence
from math import log10

from markupsafe import Markup

from redrive.core.policy import PreviewRow
from redrive.web.words import duration

WIDTH, HEIGHT = 260, 34
_LEFT, _RIGHT, _MIDDLE = 8, 252, 12
_FROM_S, _TO_S = 1.0, 2_592_000.0
_TICKS = ((1.0, "1 s"), (60.0, "1 min"), (3_600.0, "1 h"), (86_400.0, "1 d"), (2_592_000.0, "30 d"))


def strip(rows: Sequence[PreviewRow]) -> Markup:
    told = ", ".join(duration(row.at_s) for row in rows) or "never by itself"
    marks = Markup().join(_mark(row) for row in rows)
    return Markup(
        '<svg class="strip" viewBox="0 0 {} {}" role="img" aria-label="Retried after the first failure: {}">'
        '<line class="strip-axis" x1="{}" x2="{}" y1="{}" y2="{}"/>{}{}</svg>'
    ).format(WIDTH, HEIGHT, told, _LEFT, _RIGHT, _MIDDLE, _MIDDLE, _ticks(), marks)


def _ticks() -> Markup:
    anchors = {_TICKS[0][0]: "start", _TICKS[-1][0]: "end"}
    tick = Markup(
        '<line class="strip-axis" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>'
        '<text class="strip-label" x="{x}" y="{y}" text-anchor="{anchor}">{label}</text>'
    )
    return Markup().join(
        tick.format(
            x=f"{_x(at_s):.1f}",
            low=_MIDDLE,
            high=_MIDDLE + 4,
            y=HEIGHT - 4,
            anchor=anchors.get(at_s, "middle"),
            label=label,
        )
        for at_s, label in _TICKS
    )


def _mark(row: PreviewRow) -> Markup:
    return Markup('<circle class="strip-mark" cx="{}" cy="{}" r="4"><title>{}</title></circle>').format(
        f"{_x(row.at_s):.1f}", _MIDDLE, f"Retry {row.retry + 1} after {duration(row.at_s)}"
    )


def _x(at_s: float) -> float:
    """Where a moment after the first failure lies; what is beyond the axis lies at its end."""
    bound = min(max(at_s, _FROM_S), _TO_S)
    return _LEFT + (_RIGHT - _LEFT) * log10(bound / _FROM_S) / log10(_TO_S / _FROM_S)
