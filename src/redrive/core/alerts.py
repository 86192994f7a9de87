"""Alerts: the rules, what each can be set to, and the judgement whether something fires, goes on or is over. Pure.

A rule looks at subjects: the org itself, its endpoints, or parts of the installation. core.alert_sights says what is
seen of each, core.alert_words tells it to people; store.alert_rounds reads the numbers and keeps the incidents.

What is seen lies above a rule's threshold, below where it clears, or in the band between. Only above it fires, only
below it is over: inside the band nothing changes, so a number that wavers there tells nobody anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

CLEARS_AT = 0.8  # of the threshold
MAX_TOLD_ALONE = 5  # messages of a rule lately: those that follow are told together
LATELY_S = 600.0
TOGETHER_EVERY_S = 60.0  # at least between a message and one that tells of several
MINUTE_S = 60.0
HOUR_S = 3_600.0
DAY_S = 86_400.0
MAX_COUNT = 1_000_000

T = TypeVar("T")


class AlertRuleError(ValueError):
    """A rule cannot be set so. `field` names what is wrong, the message says what is allowed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Scope(StrEnum):
    ORG = "org"
    ENDPOINT = "endpoint"  # of an org: each is a subject of its own
    INSTALLATION = "installation"  # belongs to the org "default"


class Unit(StrEnum):
    SHARE = "share"  # 0 to 1
    COUNT = "count"
    SECONDS = "s"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a rule; `what` says of it what it is."""

    name: str
    default: float
    least: float
    most: float
    unit: Unit
    what: str

    def read(self, given: object) -> float:
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise AlertRuleError(self.name, "must be a number")
        if isinstance(given, float) and not isfinite(given):  # it refuses integers that no float holds
            raise AlertRuleError(self.name, "must be a number")
        if not self.least <= given <= self.most:
            raise AlertRuleError(self.name, f"must be from {self.least:g} to {self.most:g}")
        if self.unit is Unit.COUNT and given != int(given):
            raise AlertRuleError(self.name, "must be a whole number")
        return float(given)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    title: str
    severity: str  # of its incidents, as notices have it
    scope: Scope
    what: str  # when it fires
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """A rule as an org has set it."""

    enabled: bool
    values: Mapping[str, float]

    def __getitem__(self, parameter: str) -> float:
        return self.values[parameter]

    def to_spec(self) -> dict[str, object]:
        return {"enabled": self.enabled, **self.values}


def _window(default: float = 15 * MINUTE_S) -> Parameter:
    return Parameter("window_s", default, MINUTE_S, HOUR_S, Unit.SECONDS, "How far back it looks.")


_VOLUME = Parameter("min_volume", 20, 1, MAX_COUNT, Unit.COUNT, "With fewer in that time it does not begin.")

_ALL = (
    Rule(
        "failure_rate",
        "Too much fails",
        "error",
        Scope.ORG,
        "Of the tasks that ended within the window, more than this share died. What a person skipped does not count.",
        (
            Parameter("threshold", 0.05, 0, 1, Unit.SHARE, "The share that may fail."),
            _window(),
            _VOLUME,
        ),
    ),
    Rule(
        "dead_letters_open",
        "Many dead letters are open",
        "warning",
        Scope.ORG,
        "More than so many dead letters wait for a person.",
        (Parameter("threshold", 50, 0, MAX_COUNT, Unit.COUNT, "How many may be open."),),
    ),
    Rule(
        "dead_letter_arrived",
        "Dead letters arrive",
        "warning",
        Scope.ORG,
        "Something became a dead letter. It is over when none has come for a while, or none is open.",
        (Parameter("quiet_s", 15 * MINUTE_S, MINUTE_S, DAY_S, Unit.SECONDS, "After so long without one it is over."),),
    ),
    Rule(
        "oldest_due",
        "Deliveries are late",
        "error",
        Scope.ORG,
        "The task that is due for longest has waited longer than this. What is held does not count.",
        (Parameter("threshold_s", HOUR_S, MINUTE_S, 30 * DAY_S, Unit.SECONDS, "How late a task may be."),),
    ),
    Rule(
        "slow_delivery",
        "Deliveries take too long",
        "warning",
        Scope.ORG,
        "The p95 of the time to delivery is above the target. Deliveries that needed a retry do not count.",
        (
            Parameter("target_s", MINUTE_S, 0.1, 7 * DAY_S, Unit.SECONDS, "The p95 should be at most this."),
            _window(),
            _VOLUME,
        ),
    ),
    Rule(
        "endpoint_open",
        "An endpoint's breaker is open",
        "warning",
        Scope.ENDPOINT,
        "The breaker of an endpoint opened. It is over when it has closed again.",
    ),
    Rule(
        "endpoint_disabled",
        "Redrive disabled an endpoint",
        "error",
        Scope.ENDPOINT,
        "An endpoint was disabled by Redrive, not by a person. It is over when somebody enables or deletes it.",
    ),
    Rule(
        "no_worker",
        "No worker is there",
        "error",
        Scope.INSTALLATION,
        "Nothing was heard of any worker for so long, although there was one or there is work for one.",
        (
            Parameter(
                "threshold_s", MINUTE_S, 3, DAY_S, Unit.SECONDS, "How long all may be silent; at least 45 is wise."
            ),
        ),
    ),
    Rule(
        "job_stale",
        "A background job does not run",
        "error",
        Scope.INSTALLATION,
        "A background job has not succeeded for so many times its interval.",
        (
            Parameter("intervals", 3, 1, 1_000, Unit.COUNT, "How many of its intervals may pass."),
            Parameter("min_s", MINUTE_S, 3, DAY_S, Unit.SECONDS, "However short its interval, so long is waited."),
        ),
    ),
    Rule(
        "long_transaction",
        "A transaction stays open",
        "warning",
        Scope.INSTALLATION,
        "A transaction on the database has been open for longer than this: nothing that was deleted since can be "
        "cleaned up, and everything becomes slower.",
        (Parameter("threshold_s", 30 * MINUTE_S, MINUTE_S, DAY_S, Unit.SECONDS, "How long one may be open."),),
    ),
)
RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _ALL})


def rules_of(*, is_default_org: bool) -> tuple[Rule, ...]:
    """Those that an org has. What is the installation's is seen and set in the org "default"."""
    return tuple(rule for rule in _ALL if is_default_org or rule.scope is not Scope.INSTALLATION)


def default_terms(rule: Rule) -> Terms:
    return Terms(True, {parameter.name: parameter.default for parameter in rule.parameters})


def read_terms(rule: Rule, given: Mapping[str, object]) -> Terms:
    """What is not given is the default's. AlertRuleError names what is wrong."""
    known = {parameter.name: parameter for parameter in rule.parameters}
    for name in given:
        if name != "enabled" and name not in known:
            has = ", ".join(["enabled", *known])
            raise AlertRuleError(name, f"is unknown: {rule.name} has {has}")
    enabled = given.get("enabled", True)
    if not isinstance(enabled, bool):
        raise AlertRuleError("enabled", "must be true or false")
    values = {name: known[name].read(given[name]) if name in given else known[name].default for name in known}
    return Terms(enabled, values)


def stored_terms(rule: Rule, spec: Mapping[str, object]) -> Terms:
    """What an org once set. What this version does not take any more is the default's: an alert must not fail of it."""
    values: dict[str, object] = {"enabled": spec.get("enabled") is not False}
    for parameter in rule.parameters:
        try:
            values[parameter.name] = parameter.read(spec.get(parameter.name, parameter.default))
        except AlertRuleError:
            values[parameter.name] = parameter.default
    return read_terms(rule, values)


class Subject(NamedTuple):
    """What an incident is about."""

    kind: str  # "org", "endpoint", "installation", "job"
    id: UUID | None = None
    name: str | None = None

    @property
    def key(self) -> str:
        """What tells the subjects of a rule apart; the unique index of open incidents has the same."""
        return str(self.id) if self.id is not None else self.name or ""


class Standing(StrEnum):
    ABOVE = "above"
    BAND = "band"
    CLEAR = "clear"


class Sight(NamedTuple):
    """What is seen of a subject. `saw`: the numbers, and the threshold that they were compared with."""

    subject: Subject
    standing: Standing
    saw: Mapping[str, object]


def place(value: float | None, threshold: float) -> Standing:
    """Where a number lies; None: there is nothing, which is clear."""
    if value is None:
        return Standing.CLEAR
    if value > threshold:
        return Standing.ABOVE
    return Standing.CLEAR if value <= threshold * CLEARS_AT else Standing.BAND


class Firing(NamedTuple):
    """An incident that is open."""

    id: UUID
    rule: str
    subject: Subject
    opened_at: datetime | None = None


class AlertWatch(Protocol):
    """Who looks at all rules of all orgs."""

    async def look(self) -> int | None:
        """What changed is written and will be told. How many changed; None where another process has the round."""
        ...


class Open(NamedTuple):
    rule: Rule
    sight: Sight


class Why(StrEnum):
    CLEAR = "clear"
    GONE = "gone"  # its subject is there no more
    SWITCHED_OFF = "switched off"


class End(NamedTuple):
    firing: Firing
    rule: Rule
    sight: Sight | None  # None: its subject is not seen any more
    why: Why


def judge(rule: Rule, terms: Terms, firing: Sequence[Firing], sights: Sequence[Sight]) -> list[Open | End]:
    """What follows from what is seen now, given the rule's open incidents. A subject that is not seen is gone."""
    open_now = {incident.subject.key: incident for incident in firing}
    if not terms.enabled:
        return [End(incident, rule, None, Why.SWITCHED_OFF) for incident in open_now.values()]
    seen = {sight.subject.key: sight for sight in sights}
    changes: list[Open | End] = [
        Open(rule, sight) for key, sight in seen.items() if sight.standing is Standing.ABOVE and key not in open_now
    ]
    for key, incident in open_now.items():
        sight = seen.get(key)
        if sight is None:
            changes.append(End(incident, rule, None, Why.GONE))
        elif sight.standing is Standing.CLEAR:
            changes.append(End(incident, rule, sight, Why.CLEAR))
    return changes


class Told(NamedTuple):
    """How many messages told of a rule lately, and how many seconds ago the last one did."""

    messages: int = 0
    ago_s: float | None = None


def messages(changes: Sequence[T], told: Told) -> list[Sequence[T]]:
    """What each message tells of the incidents that begin, or end, now. None where all of them wait for a later look,
    which sees them again if they last: a thousand endpoints that fail one after another are no thousand messages.
    """
    if not changes or told.messages + len(changes) <= MAX_TOLD_ALONE:
        return [[change] for change in changes]
    if told.ago_s is not None and told.ago_s < TOGETHER_EVERY_S:
        return []
    return [changes]
