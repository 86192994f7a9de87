"""What changed between two JSON values, as a short list that a person may read. Pure, total and bounded.

Called by store.edits when a payload is edited. Values come out redacted: what is hidden in a payload is hidden here.
Lists are compared place by place.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from redrive.core.redact import CUT, MAX_DEPTH, MAX_KEY_CHARS, REDACTED, looks_secret, redact_text, redact_value

MAX_CHANGES = 200
MAX_COMPARED_NODES = 100_000
MAX_DIFF_CHARS = 32_000  # of all paths and values together
MAX_VALUE_CHARS = 200
MAX_VALUE_NODES = 30

Kind = Literal["added", "removed", "changed"]


class Change(NamedTuple):
    """One place that differs. `path` is a JSON pointer (RFC 6901), with secret-looking parts of names hidden."""

    path: str
    change: Kind
    before: object
    after: object


class Diff(NamedTuple):
    changes: list[Change]
    is_cut: bool  # there may be more than is listed


def diff(before: object, after: object) -> Diff:
    """The places that differ, in the order of `before`, then what was added."""
    walk = _Walk()
    walk.compare("", before, after, 0, secret=False)
    return Diff(walk.changes, walk.is_cut)


@dataclass(slots=True)
class _Walk:
    changes: list[Change] = field(default_factory=list)
    is_cut: bool = False
    nodes: int = 0
    chars: int = 0

    def compare(self, path: str, before: object, after: object, depth: int, *, secret: bool) -> None:
        self.nodes += 1
        if self.nodes > MAX_COMPARED_NODES:
            self.is_cut = True
        if self.is_cut:
            return
        if depth > MAX_DEPTH:
            self.is_cut = True  # too deep to be shown, and so to be compared
        elif isinstance(before, dict) and isinstance(after, dict):
            self._compare_objects(path, before, after, depth, secret)
        elif isinstance(before, list) and isinstance(after, list):
            self._compare_lists(path, before, after, depth, secret)
        elif type(before) is not type(after) or before != after:  # true is not 1, nor is 1.0
            self._note(path, "changed", before, after, secret)

    def _compare_objects(
        self, path: str, before: dict[str, object], after: dict[str, object], depth: int, secret: bool
    ) -> None:
        for name, value in before.items():
            if self.is_cut:
                return
            place, hidden = _step(path, name), secret or looks_secret(name)
            if name in after:
                self.compare(place, value, after[name], depth + 1, secret=hidden)
            else:
                self._note(place, "removed", value, None, hidden)
        for name in after:
            if self.is_cut:
                return
            if name not in before:
                self._note(_step(path, name), "added", None, after[name], secret or looks_secret(name))

    def _compare_lists(self, path: str, before: list[object], after: list[object], depth: int, secret: bool) -> None:
        for place in range(max(len(before), len(after))):
            if self.is_cut:
                return
            step = f"{path}/{place}"
            if place >= len(after):
                self._note(step, "removed", before[place], None, secret)
            elif place >= len(before):
                self._note(step, "added", None, after[place], secret)
            else:
                self.compare(step, before[place], after[place], depth + 1, secret=secret)

    def _note(self, path: str, change: Kind, before: object, after: object, secret: bool) -> None:
        shown = Change(
            path,
            change,
            None if change == "added" else _shown(before, secret),
            None if change == "removed" else _shown(after, secret),
        )
        self.chars += len(path) + _size(shown.before) + _size(shown.after)
        if len(self.changes) >= MAX_CHANGES or (self.chars > MAX_DIFF_CHARS and self.changes):
            self.is_cut = True
        else:
            self.changes.append(shown)


def _step(path: str, name: str) -> str:
    label = redact_text(name, MAX_KEY_CHARS).replace("~", "~0").replace("/", "~1")
    return f"{path}/{label}"


def _shown(value: object, secret: bool) -> object:
    return REDACTED if secret else redact_value(_Outline().of(value, 0))


class _Outline:
    """The beginning of a value: no more nodes than a person reads in a list of changes."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes = 0

    def of(self, value: object, depth: int) -> object:
        self.nodes += 1
        if isinstance(value, str):
            return redact_text(value, MAX_VALUE_CHARS)
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * MAX_VALUE_CHARS:
            return CUT
        if not isinstance(value, dict | list):
            return value
        if depth > MAX_DEPTH or self.nodes > MAX_VALUE_NODES:
            return CUT
        if isinstance(value, list):
            return self._items(value, depth)
        return self._fields(value, depth)

    def _items(self, items: list[object], depth: int) -> list[object]:
        kept: list[object] = []
        for item in items:
            if self.nodes > MAX_VALUE_NODES:
                return [*kept, CUT]
            kept.append(self.of(item, depth + 1))
        return kept

    def _fields(self, fields: dict[str, object], depth: int) -> dict[str, object]:
        kept: dict[str, object] = {}
        for name, value in fields.items():
            if self.nodes > MAX_VALUE_NODES:
                return {**kept, CUT: CUT}
            # A secret's name must be seen whole by the redaction that follows, and its value need not be.
            kept[name[:MAX_KEY_CHARS]] = REDACTED if looks_secret(name) else self.of(value, depth + 1)
        return kept


def _size(value: object) -> int:
    """About how many characters a value takes when it is written."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + _size(item) for name, item in value.items())
    return sum(map(_size, value)) if isinstance(value, list) else 8
