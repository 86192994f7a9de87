"""Workflows, runs and their steps as people read them: what a status means, what a step does, and its picture. Pure.

Used by the pages of workflows and runs, and by the page of a step's dead letter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlencode, urlsplit

import msgspec
from markupsafe import Markup

from redrive.core.policy import Policy
from redrive.core.run_states import RunStatus, StepStatus
from redrive.core.workflow import DEFAULT_POLICY, StepKind
from redrive.web import policy_words, words
from redrive.web.charts.svg import element
from redrive.web.json_text import pretty

# The colour of a badge, and what it says on hover.
RUN_STATUSES = {
    RunStatus.PENDING: ("waiting", "Not started"),
    RunStatus.RUNNING: ("waiting", "In progress"),
    RunStatus.SUCCESS: ("delivered", "All steps succeeded"),
    RunStatus.FAILED: ("failed", "Cancelled, or its dead letters were closed"),
    RunStatus.PARTIAL: ("failed", "Ended; some steps did not succeed"),
    RunStatus.DLQ_PENDING: ("failed", "A step is a dead letter and needs a decision"),
}
STEP_STATUSES = {
    StepStatus.PENDING: ("waiting", "Not tried yet"),
    StepStatus.RUNNING: ("waiting", "A try is in progress"),
    StepStatus.RETRYING: ("waiting", "A try failed; a retry is scheduled"),
    StepStatus.SUCCESS: ("delivered", "Succeeded"),
    StepStatus.DLQ: ("failed", "Dead letter; needs a decision"),
    StepStatus.FAILED: ("failed", "Failed; dead letter closed"),
}
# How a step stands, where a sentence says what a replay leaves alone.
_STANDS = {
    StepStatus.PENDING: "not begun",
    StepStatus.RUNNING: "under way",
    StepStatus.RETRYING: "retrying",
    StepStatus.SUCCESS: "succeeded",
    StepStatus.DLQ: "dead",
    StepStatus.FAILED: "dead, closed",
}
_ICONS = {
    StepKind.HTTP: "M1.5 8h11M9 4.5 12.5 8 9 11.5M14.5 3v10",
    StepKind.HANDLER: "M5 3.5 1.5 8 5 12.5M11 3.5 14.5 8 11 12.5",
    StepKind.EMIT: "M8 8v0M4.9 11.1a4.4 4.4 0 0 1 0-6.2M11.1 4.9a4.4 4.4 0 0 1 0 6.2"
    "M2.6 13.4a7.6 7.6 0 0 1 0-10.8M13.4 2.6a7.6 7.6 0 0 1 0 10.8",
    StepKind.WAIT: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8M8 4.6V8l2.4 1.6",
}
_TEMPLATES = {"headers": "Headers", "body": "Body", "input": "Input", "payload": "Payload"}


def icon(kind: str) -> Markup:
    """The kind of a step as a small picture; its name stands beside it."""
    path = element("path", d=_ICONS[StepKind(kind)])
    return element("svg", path, css="step-icon", viewBox="0 0 16 16", aria_hidden="true")


def arrow() -> Markup:
    path = element("path", d="M1 6h12M9 2l4 4-4 4")
    return element("svg", path, css="chain-arrow", viewBox="0 0 14 12", aria_hidden="true")


@dataclass(frozen=True, slots=True)
class Template:
    """What a step says of what it sends, laid out."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class DefinedStep:
    """A step of a definition, out of what people may see of it."""

    index: int
    name: str
    kind: str
    target: str  # what it calls, emits or waits for, in short
    whole_target: str
    endpoint_href: str | None
    policy: str
    policy_href: str | None  # None where the policy is the step's own
    terms: tuple[str, ...]  # what it says over its policy, and besides
    templates: tuple[Template, ...]

    @property
    def icon(self) -> Markup:
        return icon(self.kind)


def defined_step(index: int, spec: Mapping[str, object]) -> DefinedStep:
    policy = spec.get("policy") or DEFAULT_POLICY
    is_named = isinstance(policy, str)
    endpoint = spec.get("endpoint")
    short, whole = _target(spec)
    return DefinedStep(
        index=index,
        name=str(spec["name"]),
        kind=str(spec["kind"]),
        target=short,
        whole_target=whole,
        endpoint_href=f"/endpoints?{urlencode({'q': str(endpoint)})}" if endpoint else None,
        policy=str(policy) if is_named else "its own",
        policy_href=policy_words.href_of(str(policy)) if is_named else None,
        terms=tuple(_terms(spec)),
        templates=tuple(
            Template(label, pretty(msgspec.json.encode(spec[name]).decode()))
            for name, label in _TEMPLATES.items()
            if name in spec
        ),
    )


def _target(spec: Mapping[str, object]) -> tuple[str, str]:
    """In short, and whole."""
    endpoint = spec.get("endpoint")
    match StepKind(str(spec["kind"])):
        case StepKind.HTTP:
            method = spec.get("method", "POST")
            url = str(spec.get("url", ""))
            place = str(endpoint) if endpoint else urlsplit(url).netloc
            return f"{method} {place}", f"{method} {endpoint or url}"
        case StepKind.HANDLER:
            return str(spec["handler"]), str(spec["handler"])
        case StepKind.EMIT:
            told = str(spec["event_type"])
            return told, f"{told} to {endpoint}" if endpoint else told
        case StepKind.WAIT:
            wait_s = spec.get("wait_s")
            told = (
                words.duration(wait_s) if isinstance(wait_s, int | float) else str(wait_s or f"until {spec['until']}")
            )
            return told, told


def _terms(spec: Mapping[str, object]) -> list[str]:
    told = []
    policy, retries, timeout_s = spec.get("policy"), spec.get("max_retries"), spec.get("timeout_s")
    if isinstance(policy, Mapping):
        own = Policy.from_spec(policy)
        told.append(f"retries {policy_words.schedule(own)}; ends {policy_words.ends(own)}")
    if isinstance(retries, int):
        told.append(f"at most {words.plural(retries, 'retry', 'retries')}")
    if isinstance(timeout_s, int | float):
        told.append(f"a try may take {words.duration(timeout_s)}")
    expected = spec.get("expected_status")
    if isinstance(expected, Sequence) and list(expected) != ["2xx"]:
        told.append(f"expects {', '.join(map(str, expected))}")
    for name, label in (("ordering_key", "ordering key"), ("external_system", "external system")):
        if spec.get(name):
            told.append(f"{label} {spec[name]}")
    return told


@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """A step as the dialog of a replay knows it. static/replay.js reads the same names."""

    index: int
    name: str
    stands: str
    is_done: bool
    is_new: bool  # the run has never come to it
    keeps_input: bool  # it goes on with the input that it has; others get theirs from the template again


def replay_choices(steps: Sequence[Mapping[str, object]]) -> list[ReplayChoice]:
    """`steps`: as a run's shape has them."""
    choices = []
    for step in steps:
        status = StepStatus(str(step["status"]))
        choices.append(
            ReplayChoice(
                index=int(str(step["index"])),
                name=str(step["name"]),
                stands=_STANDS[status],
                is_done=status is StepStatus.SUCCESS,
                is_new=step["log_id"] is None and step["execution"] == 0,
                keeps_input=step["dead_letter_id"] is not None and status in (StepStatus.DLQ, StepStatus.FAILED),
            )
        )
    return choices


def choices_of(steps: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The same as JSON."""
    return [asdict(choice) for choice in replay_choices(steps)]
