"""Which JSON is taken in: valid UTF-8, whole surrogate pairs, finite numbers, bounded depth. Pure.

Called by front_door on payloads and by guard on every other body. A good value costs one decoding at C speed; only a
bad one is walked through in Python, to say where the fault lies.
"""

import re
import sys
from dataclasses import dataclass, field

import msgspec

from redrive.api.problems import Place
from redrive.core.json_depth import MAX_JSON_DEPTH, is_too_deep

MAX_INTEGER_DIGITS = sys.int_info.default_max_str_digits  # what Python itself converts
MAX_EXPLAINED_CHARS = 262_144  # a walk through more would hold up the other requests
MAX_SHOWN_KEY_CHARS = 100

_TOKEN = re.compile(
    r'[ \t\r\n]*+(?:(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<number>-?+[0-9][0-9.eE+-]*+)'
    r"|(?P<word>-?+[A-Za-z]++)|(?P<mark>[\[\]{},:]))",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)|[^\\]++", re.DOTALL)
_WORDS = frozenset({"true", "false", "null"})


class BadJson(ValueError):
    """JSON that is not taken in: the place of the fault, as far as it is known, and what it is."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


def decode_strictly(body: bytes | msgspec.Raw) -> object:
    """The value of a JSON text, or BadJson."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise explain(bytes(body), error) from None
    if is_too_deep(bytes(body)):
        raise explain(bytes(body), None)
    return value


def explain(body: bytes, error: Exception | None) -> BadJson:
    """What is wrong with a text that was refused, and where."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as broken:
        return BadJson((), f"is not valid UTF-8 at byte {broken.start}")
    found = _Walk().first_fault(text[:MAX_EXPLAINED_CHARS])
    if found is not None:
        return found
    if error is None or isinstance(error, RecursionError):
        return BadJson((), f"is nested deeper than {MAX_JSON_DEPTH} levels")
    said = str(error)
    if said == "Input data was truncated":
        said = f"JSON is malformed: it ends too early (byte {len(body)})"
    return BadJson((), said)


@dataclass(slots=True)
class _Level:
    """An open array or object and where in it the walk stands."""

    is_object: bool
    at: str | int
    expects_key: bool


@dataclass(slots=True)
class _Walk:
    """Goes through a text token by token, keeping the path, until something is not allowed."""

    levels: list[_Level] = field(default_factory=list)

    def first_fault(self, text: str) -> BadJson | None:
        position = 0
        while token := _TOKEN.match(text, position):
            position = token.end()
            message = self._judge(token)
            if message is not None:
                return BadJson(tuple(level.at for level in self.levels), message)
        return None

    def _judge(self, token: re.Match[str]) -> str | None:
        said = token.group(token.lastgroup or 0)
        match token.lastgroup:
            case "string":
                level = self.levels[-1] if self.levels else None
                if level is not None and level.expects_key:
                    level.at = _shown_key(said)
                    level.expects_key = False
                return _string_fault(said)
            case "number":
                return _number_fault(said)
            case "word":
                return None if said in _WORDS else f"{said[:20]} is not a JSON value"
        return self._step(said)

    def _step(self, mark: str) -> str | None:
        if mark in "[{":
            if len(self.levels) >= MAX_JSON_DEPTH:
                return f"is nested deeper than {MAX_JSON_DEPTH} levels"
            self.levels.append(_Level(mark == "{", 0, mark == "{"))
        elif mark in "]}" and self.levels:
            self.levels.pop()
        elif mark == "," and self.levels:
            level = self.levels[-1]
            if level.is_object:
                level.expects_key = True
            elif isinstance(level.at, int):
                level.at += 1
        return None


def _shown_key(quoted: str) -> str:
    try:
        key = msgspec.json.decode(quoted, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        key = quoted[1:-1]
    return key[:MAX_SHOWN_KEY_CHARS]


def _string_fault(quoted: str) -> str | None:
    """Lone surrogates: half a character, which no encoding can carry."""
    if "\\u" not in quoted:
        return None
    awaits_low = False
    for part in _ESCAPE.finditer(quoted):
        code = int(part.group(1), 16) if part.group(1) else 0
        is_low = 0xDC00 <= code <= 0xDFFF
        if awaits_low != is_low:
            return "has a lone surrogate"
        awaits_low = 0xD800 <= code <= 0xDBFF
    return "has a lone surrogate" if awaits_low else None


def _number_fault(digits: str) -> str | None:
    if digits.lstrip("-").isdigit():
        if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
            return f"is an integer of more than {MAX_INTEGER_DIGITS} digits"
        return None
    try:
        value = float(digits)
    except ValueError:
        return None  # malformed, which the decoder says better
    return "is a number out of range" if value in (float("inf"), float("-inf")) else None
