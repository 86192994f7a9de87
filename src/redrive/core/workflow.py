"""Workflows: named definitions of ordered steps. Pure.

Read from JSON at the edges (`Workflow.from_spec`) and from the store, where literal header values are kept sealed and
apart. What a step does is rendered by core.steps; how its task is retried is its policy's.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum

from redrive.core import step_fields
from redrive.core.address import AddressRules, parse_target, unreachable
from redrive.core.policy import MAX_RETENTION_S, MAX_RETRIES_LIMIT, MAX_TIMEOUT_S, MIN_TIMEOUT_S, Policy
from redrive.core.redact import REDACTED
from redrive.core.spec import Place, Problem, SpecReader, shown
from redrive.core.step_fields import MAX_EXPRESSIONS, Checked, Status
from redrive.core.template import MAX_TEMPLATE_DEPTH, holds_expression, shape_of
from redrive.core.workflow_view import redacted_spec

MAX_STEPS = 100
MAX_DEFINITION_BYTES = 262_144
MAX_DESCRIPTION_CHARS = 2_000
MAX_NAME_CHARS = 100
DEFAULT_POLICY = "workflow"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class StepKind(StrEnum):
    HTTP = "http"
    HANDLER = "handler"
    EMIT = "emit"
    WAIT = "wait"


class Missing(Enum):
    """What was left out, where null means null."""

    MISSING = "missing"


MISSING = Missing.MISSING


class WorkflowError(ValueError):
    """A definition that cannot be used: every problem, each with its place in the spec."""

    def __init__(self, errors: list[Problem]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, place)) or 'workflow'}: {text}" for place, text in errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step. Only the fields of its own kind matter; the others keep their defaults.

    Texts in url, headers, body, input, payload, ordering_key, wait_s and until may hold expressions. What may hold a
    secret stays out of the repr.
    """

    name: str
    kind: StepKind
    policy: str | Policy = DEFAULT_POLICY
    max_retries: int | None = None
    timeout_s: float | None = None
    external_system: str | None = None
    url: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: object = field(default=MISSING, repr=False)
    expected_status: tuple[Status, ...] = ("2xx",)
    handler: str | None = None
    input: object = field(default=MISSING, repr=False)
    event_type: str | None = None
    payload: object = field(default=MISSING, repr=False)
    ordering_key: str | None = None
    wait_s: float | str | None = None
    until: str | None = None

    @property
    def header_templates(self) -> dict[str, str]:
        """The headers that are filled in for each run."""
        return {name: value for name, value in self.headers.items() if holds_expression(value)}

    @property
    def literal_headers(self) -> dict[str, str]:
        """The headers that are sent as they are: they may be credentials."""
        return {name: value for name, value in self.headers.items() if not holds_expression(value)}

    def expects(self, status_code: int) -> bool:
        """Whether an answer with this status is a success."""
        return status_code in self.expected_status or f"{status_code // 100}xx" in self.expected_status

    def terms(self, policy: Policy) -> Policy:
        """The policy that this step's tasks are under, given the one that it names."""
        max_retries = policy.max_retries if self.max_retries is None else self.max_retries
        timeout_s = policy.timeout_s if self.timeout_s is None else self.timeout_s
        return replace(policy, max_retries=max_retries, timeout_s=timeout_s)

    def to_spec(self, *, with_literal_headers: bool = True) -> dict[str, object]:
        """The JSON shape; what was left out is left out again."""
        own: dict[str, object] = {}
        match self.kind:
            case StepKind.HTTP:
                headers = dict(self.headers) if with_literal_headers else self.header_templates
                own = {
                    "url": self.url,
                    "endpoint": self.endpoint,
                    "method": self.method,
                    "headers": headers or None,
                    "expected_status": list(self.expected_status),
                }
            case StepKind.HANDLER:
                own = {"handler": self.handler}
            case StepKind.EMIT:
                own = {"event_type": self.event_type, "ordering_key": self.ordering_key, "endpoint": self.endpoint}
            case StepKind.WAIT:
                own = {"wait_s": _whole(self.wait_s), "until": self.until}
        spec = {
            "name": self.name,
            "kind": self.kind.value,
            **own,
            "policy": self.policy.to_spec() if isinstance(self.policy, Policy) else self.policy,
            "max_retries": self.max_retries,
            "timeout_s": _whole(self.timeout_s),
            "external_system": self.external_system,
        }
        spec = {name: value for name, value in spec.items() if value is not None}
        templates = {"body": self.body, "input": self.input, "payload": self.payload}
        return spec | {name: value for name, value in templates.items() if value is not MISSING}


@dataclass(frozen=True, slots=True)
class Workflow:
    """One version of a definition. `retention_s`: how long finished runs are kept; None keeps them."""

    name: str
    steps: tuple[StepSpec, ...]
    description: str | None = None
    retention_s: float | None = None

    @classmethod
    def from_spec(
        cls, name: str, spec: object, literal_headers: Mapping[int, Mapping[str, str]] | None = None
    ) -> "Workflow":
        """Read the JSON shape of a definition, or raise WorkflowError with everything that is wrong with it.

        `literal_headers`, by the index of their step, are put back into a spec that was written without them.
        """
        reader = SpecReader(_plain(spec))
        if not is_workflow_name(name):
            allowed = "letters, digits, _, . and -, of which the first is not . or -"
            reader.problem(f"must be 1 to {MAX_NAME_CHARS} {allowed}", "name")
        description = _read_description(reader)
        retention_s = reader.optional_number("retention_s", None, 0, MAX_RETENTION_S)
        steps = _read_steps(reader, name, literal_headers or {})
        reader.finish()
        if reader.problems:
            raise WorkflowError(reader.problems)
        return cls(name, steps, description, retention_s)

    @property
    def literal_headers(self) -> dict[int, dict[str, str]]:
        """By the index of their step: what is to be kept sealed, apart from the spec."""
        return {index: step.literal_headers for index, step in enumerate(self.steps) if step.literal_headers}

    def to_spec(self, *, with_literal_headers: bool = True) -> dict[str, object]:
        """The JSON shape; `from_spec` of it is this workflow again."""
        steps = [step.to_spec(with_literal_headers=with_literal_headers) for step in self.steps]
        about = {"description": self.description, "retention_s": _whole(self.retention_s)}
        return {**{name: value for name, value in about.items() if value is not None}, "steps": steps}

    def check_reach(self, rules: AddressRules) -> None:
        """Refuse URLs of steps to which nothing may be sent, as far as that can be told without a look-up."""
        errors: list[Problem] = []
        for index, step in enumerate(self.steps):
            why = None if step.url is None else unreachable(parse_target(shape_of(step.url)), rules)
            if why is not None:
                errors.append((("steps", index, "url"), why))
        if errors:
            raise WorkflowError(errors)

    def redacted(self) -> dict[str, object]:
        """The JSON shape as people may see it. workflow_view.restored takes it back."""
        return redacted_spec(self.to_spec())


def is_workflow_name(text: str) -> bool:
    """Whether a workflow may be called so; nothing else names one."""
    return _NAME.fullmatch(text) is not None


def _whole(value: float | str | None) -> float | str | None:
    """Whole seconds read better without a fraction; JSON does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(spec: object) -> dict[str, object]:
    """A copy that is JSON and nothing else, and not too large."""
    try:
        text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
        plain: object = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise WorkflowError([((), "must be JSON: whole characters, finite numbers, no endless nesting")]) from None
    if size > MAX_DEFINITION_BYTES:
        raise WorkflowError([((), f"must not be larger than {MAX_DEFINITION_BYTES} bytes, not {size}")])
    if _NUL.search(text):
        raise WorkflowError([((), "must not hold the character NUL")])
    if not isinstance(plain, dict):
        raise WorkflowError([((), f"must be an object, not {shown(plain)}")])
    return plain


def _read_description(reader: SpecReader) -> str | None:
    value = reader.raw("description")
    if value is None or (isinstance(value, str) and len(value) <= MAX_DESCRIPTION_CHARS):
        return value
    reader.problem(f"must be a text of at most {MAX_DESCRIPTION_CHARS} characters", "description")
    return None


def _read_steps(
    reader: SpecReader, workflow: str, literal_headers: Mapping[int, Mapping[str, str]]
) -> tuple[StepSpec, ...]:
    given = reader.raw("steps")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_STEPS:
        wrong = f"must be a list of 1 to {MAX_STEPS} steps"
        reader.problem(f"{wrong}, not {len(given)}" if isinstance(given, list) else wrong, "steps")
        return ()
    checked = Checked()
    steps: list[StepSpec] = []
    for index, item in enumerate(given):
        if not isinstance(item, dict):
            reader.problem(f"must be an object, not {shown(item)}", "steps", index)
            continue
        one = SpecReader(item, ("steps", index), reader.problems)
        steps.append(_read_step(one, workflow, checked, literal_headers.get(index, {})))
        checked.earlier.append(steps[-1].name)
        for place in _redacted_places(item, ()):
            one.problem(f"has no stored value that {REDACTED} could stand for; give its value", *place)
    if checked.expressions > MAX_EXPRESSIONS:
        reader.problem(f"must hold at most {MAX_EXPRESSIONS} expressions, not {checked.expressions}", "steps")
    return tuple(steps)


def _read_step(reader: SpecReader, workflow: str, checked: Checked, literal_headers: Mapping[str, str]) -> StepSpec:
    name = step_fields.read_step_name(reader, workflow, checked.earlier)
    kind = step_fields.read_choice(reader, "kind", tuple(StepKind), None)
    spec = StepSpec(
        name=name,
        kind=StepKind(kind) if kind else StepKind.WAIT,
        policy=step_fields.read_policy(reader, DEFAULT_POLICY),
        max_retries=reader.optional_integer("max_retries", None, 0, MAX_RETRIES_LIMIT),
        timeout_s=reader.optional_number("timeout_s", None, MIN_TIMEOUT_S, MAX_TIMEOUT_S),
        external_system=step_fields.read_text(reader, "external_system"),
    )
    if not kind:
        return spec  # what else it may hold depends on its kind
    spec = _read_own(reader, spec, checked, literal_headers)
    reader.finish()
    return spec


def _read_own(reader: SpecReader, spec: StepSpec, checked: Checked, literal_headers: Mapping[str, str]) -> StepSpec:
    """The fields that only a step of this kind has."""
    match spec.kind:
        case StepKind.HTTP:
            url, endpoint = step_fields.read_destination(reader, checked)
            return replace(
                spec,
                url=url,
                endpoint=endpoint,
                method=step_fields.read_choice(reader, "method", step_fields.METHODS, spec.method),
                headers=step_fields.read_headers(reader, checked, literal_headers),
                body=_template(reader, checked, "body"),
                expected_status=step_fields.read_expected_status(reader),
            )
        case StepKind.HANDLER:
            handler = step_fields.read_text(reader, "handler", needed=True)
            return replace(spec, handler=handler, input=_template(reader, checked, "input"))
        case StepKind.EMIT:
            return replace(
                spec,
                event_type=step_fields.read_text(reader, "event_type", needed=True),
                payload=_template(reader, checked, "payload"),
                ordering_key=step_fields.read_text_template(reader, checked, "ordering_key"),
                endpoint=step_fields.read_text(reader, "endpoint"),
            )
        case StepKind.WAIT:
            wait_s, until = step_fields.read_wait(reader, checked)
            return replace(spec, wait_s=wait_s, until=until)


def _template(reader: SpecReader, checked: Checked, name: str) -> object:
    value = reader.raw(name)
    if not reader.has(name):
        return MISSING
    step_fields.check_template(reader, checked, value, name)
    return value


def _redacted_places(value: object, place: Place) -> Iterator[Place]:
    """Where a definition still holds what answers show in place of a secret."""
    if len(place) > MAX_TEMPLATE_DEPTH:
        return
    if isinstance(value, str) and REDACTED in value:
        yield place
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _redacted_places(item, (*place, name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _redacted_places(item, (*place, at))
