"""Charts as SVG text: values in, markup out. Pure, and knows nothing of where the values come from.

    lines        what changes with time, one line with its area for each series
    stacked      the same, one on top of the other
    sparkline    a line without axes, for a cell of a table
    bars         a distribution
    gauge        a rate on a half circle, with its target
    donut        parts of a whole, with their numbers beside them
    schedule     the waits of a retry policy, and where on it a task stands

Charts over an axis take the width of their place and keep the size of their words; the others scale as a whole. Each
tells its numbers three times: drawn, on hover (a `<title>` for each point), and in words for those who do not see it
(`<title>` and `<desc>` of the image). Colours come from classes alone (static/charts.css), so that a page can be dark,
and no style attribute is there for a content security policy to refuse. What cannot be drawn is drawn at the edge: less
than nothing as nothing, more than LIMIT as LIMIT.
"""

from redrive.web.charts.columns import Planned, bars, schedule
from redrive.web.charts.curves import Series, lines, sparkline, stacked
from redrive.web.charts.numbers import LIMIT, Unit, duration_text, number_text, percent_text
from redrive.web.charts.rounds import Part, donut, gauge

__all__ = [
    "LIMIT",
    "Part",
    "Planned",
    "Series",
    "Unit",
    "bars",
    "donut",
    "duration_text",
    "gauge",
    "lines",
    "number_text",
    "percent_text",
    "schedule",
    "sparkline",
    "stacked",
]
