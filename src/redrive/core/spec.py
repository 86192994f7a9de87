"""Read an untrusted mapping field by field and collect every problem with its place. Pure.

Called by core.policy for policies that arrive as JSON. A reader never stops at the first problem: a
person who edits a policy wants to see all of them at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Place = tuple[str | int, ...]
Problem = tuple[Place, str]

MAX_PROBLEMS = 50
MAX_SHOWN_CHARS = 40


def shown(value: object) -> str:
    """A value as it may appear in a message: short, whatever was sent."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a huge integer"  # repr() refuses integers beyond 4 300 digits
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str | int | float):
        return f"a value of type {type(value).__name__}"
    text = repr(value[: MAX_SHOWN_CHARS + 1] if isinstance(value, str) else value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"


def number_problem(value: object, low: float, high: float) -> str | None:
    """Say what is wrong with a number, or None. Booleans are not numbers here; NaN is never in range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, not {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if not low <= value <= high:
        return f"must be between {low:g} and {high:.10g}, not {shown(value)}"
    return None


@dataclass(slots=True)
class SpecReader:
    """One mapping under `place`; nested ones share the list of problems."""

    source: Mapping[str, object]
    place: Place = ()
    problems: list[Problem] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def problem(self, message: str, *steps: str | int) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(((*self.place, *steps), message))

    def raw(self, name: str) -> object:
        self.seen.add(name)
        return self.source.get(name)

    def has(self, name: str) -> bool:
        return name in self.source

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number that may be left out but not null."""
        if not self.has(name):
            self.seen.add(name)
            return default
        found = self._number(name, low, high)
        return default if found is None else found

    def optional_number(self, name: str, default: float | None, low: float, high: float) -> float | None:
        """A number that may be left out (then the default) or null (then None)."""
        if not self.has(name):
            self.seen.add(name)
            return default
        return None if self.raw(name) is None else self._number(name, low, high)

    def optional_integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        if not self.has(name):
            self.seen.add(name)
            return default
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(f"must be a whole number or null, not {shown(value)}", name)
            return default
        if not low <= value <= high:
            self.problem(f"must be between {low} and {high}, not {shown(value)}", name)
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name)
        if not self.has(name):
            return default
        if not isinstance(value, bool):
            self.problem(f"must be true or false, not {shown(value)}", name)
            return default
        return value

    def numbers(self, name: str, most: int, low: float, high: float) -> tuple[float, ...]:
        """A list of 1 to `most` numbers; () when there is a problem with it, which is then noted."""
        value = self.raw(name)
        if not self.has(name):
            self.problem(f"is needed: a list of 1 to {most} numbers", name)
            return ()
        if not isinstance(value, list | tuple):
            self.problem(f"must be a list of numbers, not {shown(value)}", name)
            return ()
        if not 1 <= len(value) <= most:
            self.problem(f"must hold 1 to {most} numbers, not {len(value)}", name)
            return ()
        found: list[float] = []
        for index, item in enumerate(value):
            wrong = number_problem(item, low, high)
            if wrong:
                self.problem(wrong, name, index)
            else:
                found.append(float(item) + 0.0)  # -0.0 becomes 0.0
        return tuple(found) if len(found) == len(value) else ()

    def nested(self, name: str) -> "SpecReader":
        """The mapping under `name`; an absent or unusable one reads as empty."""
        value = self.raw(name)
        if self.has(name) and not isinstance(value, Mapping):
            self.problem(f"must be an object, not {shown(value)}", name)
        source = value if isinstance(value, Mapping) else {}
        return SpecReader(source, (*self.place, name), self.problems)

    def finish(self) -> None:
        """Note the fields that nobody asked for."""
        for name in self.source:
            if name not in self.seen:
                known = ", ".join(sorted(self.seen))
                self.problem(f"unknown field; known here: {known}", str(name)[:MAX_SHOWN_CHARS])

    def _number(self, name: str, low: float, high: float) -> float | None:
        value = self.raw(name)
        wrong = number_problem(value, low, high)
        if wrong is not None or not isinstance(value, int | float):
            self.problem(wrong or "must be a number", name)
            return None
        return float(value) + 0.0
