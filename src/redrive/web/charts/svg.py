"""SVG elements as text, everything escaped. Pure; the charts are made of these."""

import re

from markupsafe import Markup, escape

Value = str | float | None
WORD_ROOM = 46.0  # left of a wide chart, see charts.css
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def number(value: float) -> str:
    """A coordinate: two digits are finer than any screen."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def element(name: str, *children: Markup | str | None, css: str | None = None, **attributes: Value) -> Markup:
    """An element. Attributes that are None are left out; `text_anchor` is written `text-anchor`."""
    given: dict[str, Value] = {"class": css, **attributes}
    written = "".join(
        f' {key.replace("_", "-")}="{number(value) if isinstance(value, int | float) else _text(value)}"'
        for key, value in given.items()
        if value is not None
    )
    inside = "".join(_text(child) for child in children if child is not None)
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>")  # noqa: S704 - escaped above


def _text(text: str) -> Markup:
    return escape(text) if isinstance(text, Markup) else escape(_NOT_XML.sub("\ufffd", text))


def percent(share: float) -> str:
    """A length or a place across a chart of any width."""
    return f"{number(share * 100)}%"


def image(kind: str, width: float, height: float, title: str, description: str, *children: Markup | None) -> Markup:
    """A chart that scales as a whole. `title` names it, `description` says its numbers in words."""
    box = f"0 0 {number(width)} {number(height)}"
    return _drawing(kind, title, description, *children, viewBox=box)


def wide_image(kind: str, height: float, title: str, description: str, *children: Markup | None) -> Markup:
    """A chart as wide as its place: what lies across is said in percent, what lies upright in pixels.

    The stylesheet leaves WORD_ROOM at its left for the words of the axis.
    """
    return _drawing(kind, title, description, *children, width="100%", height=height, css="chart-wide")


def _drawing(
    kind: str, title: str, description: str, *children: Markup | None, css: str = "", **attributes: Value
) -> Markup:
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        css=f"chart chart-{kind} {css}".rstrip(),
        role="img",
        xmlns="http://www.w3.org/2000/svg",
        **attributes,
    )


def words(text: str, x: float | str, y: float, *, css: str = "chart-words", anchor: str | None = None) -> Markup:
    return element("text", text, css=css, x=x, y=y, text_anchor=anchor)


def line(x1: float | str, y1: float, x2: float | str, y2: float, css: str) -> Markup:
    return element("line", css=css, x1=x1, y1=y1, x2=x2, y2=y2)
