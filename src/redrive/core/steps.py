"""Render a step of a workflow for a run: what is sent, where to, and when. Pure: time is handed in.

Called when a run comes to the step. Whatever a definition or the data of a run can do wrong is a `problem` of the step,
which then dies of class `validation` with that message; nothing here raises for it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from redrive.core.headers import TOO_LARGE, are_too_large, value_problem
from redrive.core.json_depth import MAX_JSON_DEPTH, is_too_deep
from redrive.core.limits import MAX_PAYLOAD_BYTES
from redrive.core.redact import redact_text
from redrive.core.spec import number_problem
from redrive.core.step_fields import MAX_TEXT_CHARS, MAX_WAIT_S, TOO_FAR, moment_of, text_problem
from redrive.core.template import TemplateError, compact, render, render_text
from redrive.core.url_template import render_url
from redrive.core.workflow import MISSING, StepKind, StepSpec

MAX_PROBLEM_CHARS = 2_000
MAX_OUTPUT_BYTES = 65_536
NO_BODY = b""
UNRENDERED = b"null"

_OF_INPUT = re.compile(r"(?:body|input|payload)[. ]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class RunScope:
    """What the templates of a run can name.

    `outputs`: by the names of their steps, of those that have succeeded. `absent`: why an output cannot be used, as in
    "was larger than 262144 bytes and was not kept". No default stands in for those: it is meant for what an answer
    leaves out, and would hide that the answer is lost.
    """

    run_id: str
    workflow: str
    version: int
    correlation_id: str | None
    input: object = field(repr=False)
    outputs: Mapping[str, object] = field(default_factory=dict, repr=False)
    absent: Mapping[str, str] = field(default_factory=dict)

    def names(self, step: str, index: int, idempotency_key: str) -> dict[str, object]:
        """Everything that a template of this step can name, by its root."""
        return {
            "input": self.input,
            "steps": _Steps(self.outputs, self.absent),
            "run": {
                "id": self.run_id,
                "workflow": self.workflow,
                "version": self.version,
                "correlation_id": self.correlation_id,
            },
            "step": {"name": step, "index": index, "idempotency_key": idempotency_key},
        }


class _Steps(dict[str, object]):
    """The steps that have succeeded. It says itself why the output of another is absent."""

    def __init__(self, outputs: Mapping[str, object], absent: Mapping[str, str]) -> None:
        super().__init__({name: {"output": output} for name, output in outputs.items() if name not in absent})
        self._absent = absent

    def __missing__(self, name: str) -> object:
        why = self._absent.get(name)
        if why is None:
            raise KeyError(name)
        raise TemplateError(f"needs the output of step {name}, which {why}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A step, ready to become a task; or the `problem` why it cannot be tried.

    `headers`: those of an HTTP step that hold expressions; the literal ones are the definition's.
    """

    body: bytes = field(default=UNRENDERED, repr=False)
    url: str | None = field(default=None, repr=False)
    headers: dict[str, str] | None = field(default=None, repr=False)
    due_in_s: float = 0.0
    ordering_key: str | None = None
    problem: str | None = None


def render_step(
    spec: StepSpec,
    index: int,
    scope: RunScope,
    idempotency_key: str,
    now: datetime,
    max_bytes: int = MAX_PAYLOAD_BYTES,
) -> Rendered:
    """The step as it is to be carried out; with a problem where it cannot be."""
    names = scope.names(spec.name, index, idempotency_key)
    try:
        return _Render(spec, names, now, max_bytes).step()
    except TemplateError as error:
        return Rendered(problem=_told(error))


@dataclass(frozen=True, slots=True)
class _Render:
    spec: StepSpec
    names: Mapping[str, object]
    now: datetime
    max_bytes: int

    def step(self) -> Rendered:
        spec = self.spec
        match spec.kind:
            case StepKind.HTTP:
                rest = Rendered(NO_BODY, self._url(), self._headers())
                return rest if spec.body is MISSING else self._filled(rest, "body", spec.body)
            case StepKind.HANDLER:
                return self._filled(Rendered(), "input", spec.input)
            case StepKind.EMIT:
                return self._filled(Rendered(ordering_key=self._ordering_key()), "payload", spec.payload)
            case StepKind.WAIT:
                return Rendered(b"{}", due_in_s=self._wait_s() if spec.until is None else self._until_s())

    def _filled(self, rest: Rendered, name: str, template: object) -> Rendered:
        """The rest of a step with its body. Where only that cannot be made, a person may give it another one."""
        try:
            return replace(rest, body=self._json(name, template))
        except TemplateError as error:
            return replace(rest, body=UNRENDERED, problem=_told(error))

    def _json(self, name: str, template: object) -> bytes:
        """The template as compact JSON; the run's input where it was left out."""
        with _placed(name):
            value = self.names["input"] if template is MISSING else render(template, self.names, self.max_bytes)
            try:
                body = compact(value).encode()
            except UnicodeEncodeError:
                raise TemplateError("holds half of a surrogate pair, which is no character") from None
            if len(body) > self.max_bytes:
                raise TemplateError(f"is larger than {self.max_bytes} bytes")
            if is_too_deep(body):
                raise TemplateError(f"is nested deeper than {MAX_JSON_DEPTH} levels once it is filled in")
            return body

    def _url(self) -> str | None:
        with _placed("url"):
            return None if self.spec.url is None else render_url(self.spec.url, self.names)

    def _headers(self) -> dict[str, str]:
        made: dict[str, str] = {}
        with _placed("headers"):
            for name, template in self.spec.header_templates.items():
                made[name] = render_text(template, self.names, max_chars=self.max_bytes)
                wrong = value_problem(name, made[name])
                if wrong is not None:
                    raise TemplateError(f"cannot be sent, since {wrong}")
            if are_too_large((self.spec.literal_headers | made).items()):
                raise TemplateError(f"cannot be sent, since {TOO_LARGE}")
        return made

    def _ordering_key(self) -> str | None:
        """Null, where an expression gives it, is no key at all."""
        if self.spec.ordering_key is None:
            return None
        with _placed("ordering_key"):
            value = render(self.spec.ordering_key, self.names, self.max_bytes)
            if value is None:
                return None
            text = value if isinstance(value, str) else compact(value)
            wrong = text_problem(text, MAX_TEXT_CHARS)
            if wrong is not None:
                raise TemplateError(wrong)
            return text

    def _wait_s(self) -> float:
        with _placed("wait_s"):
            value = render(self.spec.wait_s, self.names, self.max_bytes)
            if isinstance(value, str):
                value = _number(value)
            wrong = number_problem(value, 0, MAX_WAIT_S)
            if wrong is not None or not isinstance(value, int | float):
                raise TemplateError(wrong or "must be a number")
            return float(value) + 0.0

    def _until_s(self) -> float:
        with _placed("until"):
            value = render(self.spec.until, self.names, self.max_bytes)
            if not isinstance(value, str):
                raise TemplateError("must be a text with an ISO 8601 time")
            left_s = (moment_of(value) - self.now).total_seconds()
            if left_s > MAX_WAIT_S:
                raise TemplateError(TOO_FAR)
            return max(left_s, 0.0)


def is_of_input(problem: str) -> bool:
    """Whether a step can be tried with another input. step_terms.sql asks the same."""
    return _OF_INPUT.match(problem) is not None


def _told(error: TemplateError) -> str:
    """A problem begins with the field it is about."""
    place = ".".join(map(str, error.place))
    return redact_text(f"{place} {error.message}" if place else error.message, MAX_PROBLEM_CHARS)


@contextmanager
def _placed(name: str) -> Iterator[None]:
    """Errors from within are told with the field they come from."""
    try:
        yield
    except TemplateError as error:
        error.place = (name, *error.place)
        raise


def _number(text: str) -> float:
    """1_000 and the digits of other scripts, which Python would read, are none."""
    if _NUMBER.fullmatch(text.strip()) is None:
        raise TemplateError("must be a number of seconds")
    return float(text)
