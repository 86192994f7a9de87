"""JSON texts laid out for people, without a change to what they say. Pure.

Nothing is decoded and written again: numbers keep all their digits, names that stand there twice stay twice. Used by
bodies, for what pages show and what the editor begins with.
"""

import re
from collections.abc import Iterator

import msgspec

INDENT = "  "
MAX_PRETTY_CHARS = 262_144  # of a text: to lay out more would hold up the other requests
MAX_GROWTH = 8  # times the text: deep brackets would make indents of megabytes

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]|[^\s\[\]{},:"]++', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return False
    return True


def pretty(text: str) -> str:
    """A JSON text with one value per line. What is no JSON, or too much of it, comes back as it is."""
    if len(text) > MAX_PRETTY_CHARS or not is_json(text):
        return text
    room = MAX_GROWTH * (len(text) + len(INDENT))
    parts: list[str] = []
    for part in _laid_out(_TOKEN.findall(text)):
        room -= len(part)
        if room < 0:
            return text
        parts.append(part)
    return "".join(parts)


def _laid_out(tokens: list[str]) -> Iterator[str]:
    depth = 0
    for place, token in enumerate(tokens):
        match token:
            case "[" | "{":
                yield token
                depth += 1
                if tokens[place + 1] != _CLOSING[token]:
                    yield "\n" + INDENT * depth
            case "]" | "}":
                depth -= 1
                if _CLOSING.get(tokens[place - 1]) != token:
                    yield "\n" + INDENT * depth
                yield token
            case ",":
                yield ",\n" + INDENT * depth
            case ":":
                yield ": "
            case _:
                yield token
