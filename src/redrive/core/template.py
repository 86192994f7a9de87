"""Templates: JSON whose texts hold `{{ path }}`, filled in from what a run knows. Pure, total and bounded.

Checked when a workflow is saved (core.step_fields), rendered when a step begins (core.steps). There are no functions
and no conditions: what a template cannot say, a handler can.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from redrive.core.json_depth import MAX_JSON_DEPTH
from redrive.core.spec import Place

MAX_EXPRESSION_CHARS = 500
MAX_TEMPLATE_DEPTH = MAX_JSON_DEPTH
MAX_RENDERED_CHARS = 4_194_304
MAX_CACHED_TEXTS = 4_096
MAX_CACHED_CHARS = 1_000  # of one text; longer ones are taken apart anew
MAX_NAMED_KEYS = 10
MAX_NAMED_CHARS = 40

OPEN, CLOSE = "{{", "}}"
Key = str | int  # a text names a field, or an item where it is a number; a number names an item

_BLANKS = re.compile(r"[ \t\r\n]*+")
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*+")
_NAME = re.compile(r"\.([A-Za-z0-9_-]++)")
_INDEX = re.compile(r"\[([0-9]{1,9})\]")
_NUMBER = re.compile(r"[0-9]{1,9}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


class TemplateError(ValueError):
    """A template that cannot be read or filled in. The message is for a person, and goes on from the text's `place`."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.place: Place = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """What stands between the braces: a path, or a literal where the path is empty."""

    source: str
    path: tuple[Key, ...] = ()
    literal: object = None
    has_default: bool = False
    default: object = None

    def __str__(self) -> str:
        return f"{OPEN} {self.source} {CLOSE}"


Parts = tuple[str | Expression, ...]


def parse(text: str) -> Parts:
    """A text's literal parts and expressions, in order; TemplateError where it cannot be read."""
    if OPEN not in text:
        return (text,)
    return _parse_cached(text) if len(text) <= MAX_CACHED_CHARS else _parse(text)


def holds_expression(text: str) -> bool:
    return OPEN in text


def shape_of(text: str, stand_in: str = "x") -> str:
    """A text with the same stand-in for every expression: what can be told of it before it is filled in."""
    return "".join(stand_in if isinstance(part, Expression) else part for part in parse(text))


def expressions_of(template: object) -> Iterator[tuple[Place, Expression | TemplateError]]:
    """Every expression of a JSON template with its place, and every text that cannot be read."""
    yield from _walk(template, ())


def render(template: object, scope: Mapping[str, object], max_chars: int = MAX_RENDERED_CHARS) -> object:
    """A JSON template, filled in. A text that is one expression keeps its value's type; values are shared, not copied.

    More than `max_chars` of JSON is refused before it is made: a few expressions may ask for much.
    """
    return _Rendering(scope, max_chars).value(template, 0)


def render_text(
    text: str,
    scope: Mapping[str, object],
    encode: Callable[[str], str] = str,
    max_chars: int = MAX_RENDERED_CHARS,
) -> str:
    """A text, filled in; each value goes through `encode`."""
    return _Rendering(scope, max_chars).text(parse(text), encode)


def compact(value: object) -> str:
    """A value as compact JSON, or TemplateError where there is no such JSON."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise TemplateError("is nested too deep to be written as JSON") from None
    except (ValueError, TypeError):
        raise TemplateError("holds what JSON cannot write, such as NaN or a huge integer") from None


def path_text(path: tuple[Key, ...]) -> str:
    """A path as it is written in a template."""
    parts = [str(path[0])] if path else []
    for key in path[1:]:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PLAIN_NAME.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{json.dumps(key, ensure_ascii=False)}]")
    return "".join(parts)


@dataclass(slots=True)
class _Rendering:
    """One rendering, and how many characters it may still make. It counts too few, never too many."""

    scope: Mapping[str, object]
    left: int

    def value(self, template: object, depth: int) -> object:
        if depth > MAX_TEMPLATE_DEPTH:
            raise TemplateError(_too_deep())
        if isinstance(template, str):
            parts = parse(template)
            if len(parts) == 1 and isinstance(parts[0], Expression):
                found = _resolve(parts[0], self.scope)
                self._spend(_size(found))
                return found
            return self.text(parts, str)
        if isinstance(template, Mapping):
            return {key: self._item(key, item, depth) for key, item in template.items()}
        if isinstance(template, list | tuple):
            return [self._item(at, item, depth) for at, item in enumerate(template)]
        return template

    def text(self, parts: Parts, encode: Callable[[str], str]) -> str:
        made: list[str] = []
        for part in parts:
            if isinstance(part, Expression):
                found = _resolve(part, self.scope)
                part = _encoded(found if isinstance(found, str) else compact(found), encode)
            self._spend(len(part))
            made.append(part)
        return "".join(made)

    def _item(self, key: str | int, item: object, depth: int) -> object:
        try:
            return self.value(item, depth + 1)
        except TemplateError as error:
            error.place = (key, *error.place)
            raise

    def _spend(self, chars: int) -> None:
        self.left -= chars
        if self.left < 0:
            raise TemplateError("becomes too large when it is filled in")


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    return len(compact(value)) if isinstance(value, Mapping | list | tuple) else 1


def _encoded(text: str, encode: Callable[[str], str]) -> str:
    try:
        return encode(text)
    except UnicodeEncodeError:
        raise TemplateError("holds half of a surrogate pair, which is no character") from None


def _resolve(expression: Expression, scope: Mapping[str, object]) -> object:
    if not expression.path:
        return expression.literal
    value: object = scope
    for at, key in enumerate(expression.path):
        child = _child(value, key)
        if child is _ABSENT:
            if expression.has_default:
                return expression.default
            raise TemplateError(_missing(expression, at, value))
        value = child
    return expression.default if value is None and expression.has_default else value


_ABSENT = object()


def _child(value: object, key: Key) -> object:
    if isinstance(value, Mapping) and isinstance(key, str):
        try:
            return value[key]  # not get(): a scope may say itself why something is not there
        except KeyError:
            return _ABSENT
    if isinstance(value, list | tuple) and (isinstance(key, int) or _NUMBER.fullmatch(key)):
        at = int(key)
        return value[at] if at < len(value) else _ABSENT
    return _ABSENT


def _missing(expression: Expression, at: int, value: object) -> str:
    """What is not there, and what there is instead. Values are never shown, only the names of fields."""
    where = path_text(expression.path[:at]) or "a template"
    if isinstance(value, Mapping):
        instead = f"has {_some_names(value)}" if value else "is an empty object"
    elif isinstance(value, list | tuple):
        instead = f"is a list of {len(value)}"
    else:
        instead = f"is {_type_name(value)}"
    return f"needs {expression}, which is not there: {where} {instead}"


def _some_names(fields: Mapping[str, object]) -> str:
    names = [str(name)[:MAX_NAMED_CHARS] for name, _ in zip(fields, range(MAX_NAMED_KEYS), strict=False)]
    more = len(fields) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    return {str: "a text", bool: "true or false", int: "a number", float: "a number"}.get(type(value), "not JSON")


def _walk(template: object, place: Place) -> Iterator[tuple[Place, Expression | TemplateError]]:
    if len(place) > MAX_TEMPLATE_DEPTH:
        yield place, TemplateError(_too_deep())
    elif isinstance(template, str):
        try:
            found = [part for part in parse(template) if isinstance(part, Expression)]
        except TemplateError as error:
            yield place, error
        else:
            for expression in found:
                yield place, expression
    elif isinstance(template, Mapping):
        for key, item in template.items():
            if holds_expression(str(key)):
                yield (*place, key), TemplateError("the name of a field cannot be filled in: it is taken as it is")
            yield from _walk(item, (*place, key))
    elif isinstance(template, list | tuple):
        for at, item in enumerate(template):
            yield from _walk(item, (*place, at))


def _too_deep() -> str:
    return f"is nested deeper than {MAX_TEMPLATE_DEPTH} levels"


def _parse(text: str) -> Parts:
    parts: list[str | Expression] = []
    done = 0
    while (start := text.find(OPEN, done)) >= 0:
        if start > done:
            parts.append(text[done:start])
        inside = start + len(OPEN)
        chunk = text[inside : inside + MAX_EXPRESSION_CHARS + len(CLOSE)]
        expression, length = _Reader(chunk).expression()
        parts.append(expression)
        done = inside + length
    if done < len(text):
        parts.append(text[done:])
    return tuple(parts)


_parse_cached = lru_cache(maxsize=MAX_CACHED_TEXTS)(_parse)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("is beyond what a number can be")
    return value


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


class _Reader:
    """Reads one expression from the text behind its opening braces."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def expression(self) -> tuple[Expression, int]:
        """The expression, and how many characters it takes with the closing braces."""
        self._skip_blanks()
        if self._sees(CLOSE):
            raise TemplateError(f"{OPEN} {CLOSE} is empty: a path such as input.amount belongs in it")
        literal: object = None
        path: tuple[Key, ...] = ()
        if self._sees('"'):
            literal = self._literal()
        else:
            path = self._path()
        self._skip_blanks()
        has_default, default = False, None
        if self._sees("??"):
            self.at += 2
            self._skip_blanks()
            has_default, default = True, self._literal()
            self._skip_blanks()
        if not self._sees(CLOSE):
            self._fail(f"a path, ?? or {CLOSE}")
        source = self.text[: self.at].strip()
        return Expression(source, path, literal, has_default, default), self.at + len(CLOSE)

    def _path(self) -> tuple[Key, ...]:
        root = _ROOT.match(self.text, self.at)
        if root is None:
            self._fail("a path such as input.amount, or a text in double quotes")
        self.at = root.end()
        path: list[Key] = [root.group()]
        while self._sees(".") or self._sees("["):
            if name := _NAME.match(self.text, self.at):
                path.append(name[1])
                self.at = name.end()
            elif index := _INDEX.match(self.text, self.at):
                path.append(int(index[1]))
                self.at = index.end()
            elif self._sees('["'):
                self.at += 1
                path.append(str(self._literal()))
                if not self._sees("]"):
                    self._fail("]")
                self.at += 1
            else:
                self._fail('a name behind a dot, or [0] or ["name"]')
        return tuple(path)

    def _literal(self) -> object:
        try:
            value, self.at = _decoder.raw_decode(self.text, self.at)
            compact(value).encode()
        except (ValueError, RecursionError):
            self._fail("a JSON value such as 0, null or a text in double quotes")
        return value

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self.text, self.at)
        assert blanks is not None, "blanks may be none"
        self.at = blanks.end()

    def _sees(self, mark: str) -> bool:
        return self.text.startswith(mark, self.at)

    def _fail(self, wanted: str) -> NoReturn:
        if len(self.text) > MAX_EXPRESSION_CHARS and CLOSE not in self.text:
            raise TemplateError(f"an expression has at most {MAX_EXPRESSION_CHARS} characters up to its {CLOSE}")
        if self.at >= len(self.text):
            raise TemplateError(
                f'{OPEN} is never closed by {CLOSE}; a literal {OPEN} is written {OPEN} "{OPEN}" {CLOSE}'
            )
        here = self.text[self.at : self.at + MAX_NAMED_CHARS]
        raise TemplateError(
            f"{OPEN} … {CLOSE} cannot be read at {json.dumps(here, ensure_ascii=False)}: {wanted} is expected"
        )
