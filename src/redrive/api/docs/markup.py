"""HTML from text: everything is escaped here, and nowhere else. Pure. Used by page and tables."""

import re
from html import escape
from typing import NewType

Html = NewType("Html", str)  # only what this module made, or is written out in the source

_CODE = re.compile(r"`([^`]+)`")
_BLANK_LINE = re.compile(r"\n\s*\n")

NOTHING = Html("")


def text(value: object) -> Html:
    return Html(escape(str(value), quote=True))


def tag(name: str, *inside: Html, **attributes: str | None) -> Html:
    """An element. `cls` is its class, `for_` and the like lose their underscore; None leaves an attribute out."""
    written = "".join(
        f' {"class" if key == "cls" else key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{''.join(inside)}</{name}>")


def joined(parts: "list[Html] | tuple[Html, ...]", between: str = "") -> Html:
    return Html(escape(between).join(parts))


def prose(given: str) -> Html:
    """Text as docstrings have it: words in `backticks` are code."""
    pieces = _CODE.split(given)
    return joined([tag("code", text(piece)) if odd % 2 else text(piece) for odd, piece in enumerate(pieces)])


def paragraphs(given: str) -> Html:
    return joined([tag("p", prose(part)) for part in _BLANK_LINE.split(given.strip()) if part])


def anchor(kind: str, name: str) -> str:
    return f"{kind}-{re.sub(r'[^A-Za-z0-9_]+', '-', name)}"
