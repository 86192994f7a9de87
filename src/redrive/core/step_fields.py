"""Read the fields of a workflow's steps and note everything that is wrong with them. Pure.

Called by core.workflow with a reader for each step; problems keep their places.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from redrive.core.headers import (
    MAX_HEADERS,
    STEP_HEADERS,
    TOO_LARGE,
    are_too_large,
    name_problem,
    value_problem,
)
from redrive.core.policy import MAX_STATUS, Policy, PolicyError
from redrive.core.spec import SpecReader, number_problem, shown
from redrive.core.template import (
    Expression,
    TemplateError,
    expressions_of,
    holds_expression,
    shape_of,
)
from redrive.core.url_template import url_problem

MAX_EXPRESSIONS = 1_000  # of one definition
MAX_STEP_NAME_CHARS = 100
MAX_TEXT_CHARS = 200
MAX_POLICY_NAME_CHARS = 100
MAX_EVENT_TYPE_CHARS = 200
MAX_STATUSES = 100
MAX_WAIT_S = 366 * 86_400.0
MIN_FINAL_STATUS = 200
TOO_FAR = f"must not be more than {MAX_WAIT_S / 86_400:g} days away"

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
RUN_FIELDS = ("id", "workflow", "version", "correlation_id")
STEP_FIELDS = ("name", "index", "idempotency_key")
ROOTS = ("input", "steps", "run", "step")

Status = int | str

_STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(slots=True)
class Checked:
    """What is known while a definition is read: the names of the steps before this one, and how much was said."""

    earlier: list[str] = field(default_factory=list)
    expressions: int = 0


def text_problem(text: str, most: int) -> str | None:
    """What is wrong with a short text that is kept beside tasks and events, or None."""
    if not 1 <= len(text) <= most:
        return f"must have 1 to {most} characters, not {len(text)}"
    return "must not hold control characters or half characters" if _CONTROL.search(text) else None


def read_step_name(reader: SpecReader, workflow: str, earlier: Sequence[str]) -> str:
    name = reader.raw("name")
    if not isinstance(name, str) or not _STEP_NAME.fullmatch(name):
        is_needed = f"1 to {MAX_STEP_NAME_CHARS} letters, digits, _ and -, of which the first is a letter or _"
        reader.problem(f"must be {is_needed}" if reader.has("name") else f"is needed: {is_needed}", "name")
        return ""
    if name in earlier:
        reader.problem(
            f"step {earlier.index(name)} is named {shown(name)} too; every step has a name of its own", "name"
        )
    most = MAX_EVENT_TYPE_CHARS - len(workflow) - 1
    if len(name) > most:
        reader.problem(f"has at most {most} characters in a workflow with a name as long as this one's", "name")
    return name


def read_choice(reader: SpecReader, name: str, choices: Sequence[str], default: str | None) -> str:
    value = reader.raw(name)
    if not reader.has(name) and default is not None:
        return default
    if not isinstance(value, str) or value not in choices:
        wrong = f"must be one of {{}}, not {shown(value)}" if reader.has(name) else "is needed: one of {}"
        reader.problem(wrong.format(", ".join(choices)), name)
        return default or ""
    return value


def read_text(reader: SpecReader, name: str, most: int = MAX_TEXT_CHARS, *, needed: bool = False) -> str | None:
    """A text that is taken as it is; null says the same as leaving it out."""
    value = reader.raw(name)
    if value is None:
        if needed:
            reader.problem(f"is needed: a text of 1 to {most} characters", name)
        return None
    if not isinstance(value, str):
        reader.problem(f"must be a text, not {shown(value)}", name)
        return None
    wrong = text_problem(value, most)
    if wrong is None and holds_expression(value):
        wrong = "is taken as it is: it cannot hold {{"
    if wrong is not None:
        reader.problem(wrong, name)
        return None
    return value


def read_policy(reader: SpecReader, default: str) -> str | Policy:
    value = reader.raw("policy")
    if value is None:
        return default
    if not isinstance(value, Mapping):
        return read_text(reader, "policy", MAX_POLICY_NAME_CHARS) or default
    try:
        return Policy.from_spec(value)
    except PolicyError as bad:
        for place, message in bad.errors:
            reader.problem(message, "policy", *place)
        return default


def read_destination(reader: SpecReader, checked: Checked) -> tuple[str | None, str | None]:
    """The URL or the endpoint of an HTTP step."""
    url, endpoint = reader.raw("url"), read_text(reader, "endpoint")
    if (url is None) == (reader.raw("endpoint") is None):
        reader.problem("exactly one of url and endpoint is needed", "url")
        return None, None
    if url is None:
        return None, endpoint
    if not isinstance(url, str):
        reader.problem(f"must be a text, not {shown(url)}", "url")
        return None, None
    if check_template(reader, checked, url, "url") and (wrong := url_problem(url)) is not None:
        reader.problem(wrong, "url")
    return url, None


def read_headers(reader: SpecReader, checked: Checked, literal: Mapping[str, str]) -> dict[str, str]:
    """The headers that are given, and those whose literal values were kept apart."""
    given = reader.raw("headers")
    if given is not None and not isinstance(given, Mapping):
        reader.problem(f"must be an object, not {shown(given)}", "headers")
        return {}
    headers: dict[str, str] = {}
    names: set[str] = set()
    for name, value in {**(given or {}), **literal}.items():
        wrong = name_problem(name, STEP_HEADERS) or (f"{name} is given twice" if name.lower() in names else None)
        if wrong is None and not isinstance(value, str):
            wrong = f"the value of {name} must be a text"
        if wrong is not None:
            reader.problem(wrong, "headers", name)
            continue
        names.add(name.lower())
        if check_template(reader, checked, value, "headers", name):
            wrong = value_problem(name, shape_of(value))
            if wrong is not None:
                reader.problem(wrong, "headers", name)
        headers[name] = value
    if len(headers) > MAX_HEADERS:
        reader.problem(f"must be at most {MAX_HEADERS}, not {len(headers)}", "headers")
    if are_too_large(headers.items()):
        reader.problem(TOO_LARGE, "headers")
    return headers


def read_expected_status(reader: SpecReader) -> tuple[Status, ...]:
    """Classes, then codes: the same expectation, the same text."""
    value = reader.raw("expected_status")
    if value is None:
        return ("2xx",)
    wanted = f"a list of status codes from {MIN_FINAL_STATUS} to {MAX_STATUS} and of {', '.join(STATUS_CLASSES)}"
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_STATUSES:
        reader.problem(f"must be {wanted}, 1 to {MAX_STATUSES} of them", "expected_status")
        return ("2xx",)
    for at, item in enumerate(value):
        is_code = isinstance(item, int) and not isinstance(item, bool) and MIN_FINAL_STATUS <= item <= MAX_STATUS
        if not is_code and item not in STATUS_CLASSES:
            reader.problem(f"must be {wanted}; {shown(item)} is neither", "expected_status", at)
    codes = sorted({item for item in value if isinstance(item, int)})
    return (*(name for name in STATUS_CLASSES if name in value), *codes)


def read_wait(reader: SpecReader, checked: Checked) -> tuple[float | str | None, str | None]:
    """For how long a wait lasts, or until when."""
    wait_s, until = reader.raw("wait_s"), reader.raw("until")
    if (wait_s is None) == (until is None):
        reader.problem("exactly one of wait_s and until is needed", "wait_s")
        return None, None
    if until is not None:
        return None, _read_until(reader, checked, until)
    if isinstance(wait_s, str):
        if not holds_expression(wait_s):
            reader.problem("must be a number of seconds, or a text with {{ … }} that gives one", "wait_s")
        check_template(reader, checked, wait_s, "wait_s")
        return wait_s, None
    wrong = number_problem(wait_s, 0, MAX_WAIT_S)
    if wrong is not None or not isinstance(wait_s, int | float):
        reader.problem(wrong or "must be a number", "wait_s")
        return None, None
    return float(wait_s) + 0.0, None


def _read_until(reader: SpecReader, checked: Checked, until: object) -> str | None:
    if not isinstance(until, str):
        reader.problem(f"must be a text with an ISO 8601 time, or with {{{{ … }}}}, not {shown(until)}", "until")
        return None
    if check_template(reader, checked, until, "until") and not holds_expression(until):
        try:
            moment_of(until)
        except TemplateError as wrong:
            reader.problem(str(wrong), "until")
    return until


def moment_of(text: str) -> datetime:
    """A time in ISO 8601 that says its offset; TemplateError where it is none."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise TemplateError("must be an ISO 8601 time such as 2030-01-31T09:30:00Z") from None
    if found.tzinfo is None:
        raise TemplateError("must say its time zone: end it with Z or an offset such as +01:00")
    return found


def is_too_far(until: str, now: datetime) -> bool:
    """Of a wait until a time that its definition says. A run that begins later waits less."""
    return not holds_expression(until) and (moment_of(until) - now).total_seconds() > MAX_WAIT_S


def read_text_template(reader: SpecReader, checked: Checked, name: str) -> str | None:
    """A text that is filled in for each run; null says the same as leaving it out."""
    value = reader.raw(name)
    if value is None:
        return None
    if not isinstance(value, str):
        reader.problem(f"must be a text, not {shown(value)}", name)
        return None
    wrong = None if holds_expression(value) else text_problem(value, MAX_TEXT_CHARS)
    if wrong is not None:
        reader.problem(wrong, name)
    check_template(reader, checked, value, name)
    return value


def check_template(reader: SpecReader, checked: Checked, template: object, *place: str) -> bool:
    """Note what is wrong with a JSON template; False where a text of it cannot be read at all."""
    readable = True
    for inner, found in expressions_of(template):
        if isinstance(found, TemplateError):
            readable = False
            reader.problem(str(found), *place, *inner)
            continue
        checked.expressions += 1
        wrong = _path_problem(found, checked.earlier)
        if wrong is not None:
            reader.problem(f"{found} {wrong}", *place, *inner)
    return readable


def _path_problem(expression: Expression, earlier: Sequence[str]) -> str | None:
    """Why there can never be anything under this path; None where there may."""
    root, name, *deeper = (*expression.path, None, None)[: max(len(expression.path), 2)]
    if not expression.path or root == "input" or (name is None and root in ROOTS):
        return None
    if root == "steps":
        if name not in earlier:
            known = f"those are {', '.join(earlier)}" if earlier else "there is none before this one"
            return f"must name a step that comes earlier: {known}"
        return "must go on with .output: a step has nothing else" if deeper and deeper[0] != "output" else None
    if root == "run" or root == "step":
        fields = RUN_FIELDS if root == "run" else STEP_FIELDS
        if name not in fields:
            return f"is never there: {root} has {', '.join(fields)}"
        return f"is never there: {root}.{name} has no parts" if deeper else None
    return f"is never there: a template knows {', '.join(ROOTS)}"
