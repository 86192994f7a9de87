"""Retry policies: when a failed task is tried again, for how long, and which failures count. Pure.

Read from JSON at the edges (`Policy.from_spec`), asked by core.decide, plotted through `preview`. The SQL
function retry_delay agrees with `retry_delay` for the policies it knows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from redrive.core.outcome import RETRIED_BY_DEFAULT, Category
from redrive.core.spec import Problem, SpecReader, shown

DAY_S = 86_400.0
MAX_DELAY_S = 30 * DAY_S
MAX_AGE_S = 365 * DAY_S
MAX_RETENTION_S = 3_650 * DAY_S
MAX_TIMEOUT_S = 300.0
MIN_TIMEOUT_S = 0.001
MIN_AGE_S = 0.001
MAX_RETRIES_LIMIT = 1_000
MAX_DELAYS = 100
MAX_FACTOR = 100.0
RESOLUTION_S = 1e-6  # a timedelta knows nothing shorter
MAX_RULES = 600
MAX_PREVIEW_ROWS = 20
MAX_RETRIES_BY_AGE = 1_000_000  # an unbounded policy may not fit more retries than this into its max age
MIN_STATUS, MAX_STATUS = 100, 599

DEFAULT_MAX_RETRIES = 3
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_MAX_RETRY_AFTER_S = 3600.0
DEFAULT_CAP_S = 3600.0
DEFAULT_FACTOR = 2.0
IMMEDIATE_DELAY_S = 5.0


class PolicyKind(StrEnum):
    LIST = "list"
    EXPONENTIAL = "exponential"
    IMMEDIATE = "immediate"
    MANUAL = "manual"


class StatusFamily(StrEnum):
    """All status codes of a hundred, as a rule. A single code beats its family, a family beats a class."""

    REDIRECTS = "3xx"
    CLIENT_ERRORS = "4xx"
    SERVER_ERRORS = "5xx"

    @classmethod
    def of(cls, status: int) -> "StatusFamily | None":
        return _FAMILIES.get(status // 100)


_FAMILIES = {
    3: StatusFamily.REDIRECTS,
    4: StatusFamily.CLIENT_ERRORS,
    5: StatusFamily.SERVER_ERRORS,
}

Rule = Category | StatusFamily | int
ALL = "all"  # in a list of rules: every class that the other list does not name


class PolicyError(ValueError):
    """A policy that cannot be used: every problem, each with its place in the spec."""

    def __init__(self, errors: list[Problem]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, place)) or 'policy'}: {text}" for place, text in errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished tasks are kept, in seconds; None keeps them.

    `failed_s` counts for those that died `permanent`, from the last attempt; `dead_s` for the other dead,
    from the day they were received; `delivered_s` from the delivery; `received_s`, for events of the inbox that nobody
    acknowledged, from the day they were received.
    """

    delivered_s: float | None = 30 * DAY_S
    failed_s: float | None = None
    dead_s: float | None = None
    received_s: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. Only the schedule fields of its own kind matter; the others keep their defaults.

    `retry` and `fail` always classify every category: what neither names is added by default, so that a
    snapshot kept with a task means the same in every version.
    `notify` false: its deaths are quiet; `quiet_permanent`: only those of reason `permanent` are.
    """

    kind: PolicyKind
    delays_s: tuple[float, ...] = ()
    base_s: float = 1.0
    factor: float = DEFAULT_FACTOR
    cap_s: float = DEFAULT_CAP_S
    jitter: float = 0.0
    max_retries: int | None = DEFAULT_MAX_RETRIES
    max_age_s: float | None = None
    max_retry_after_s: float = DEFAULT_MAX_RETRY_AFTER_S
    timeout_s: float = DEFAULT_TIMEOUT_S
    retry: frozenset[Rule] = frozenset()
    fail: frozenset[Rule] = frozenset()
    notify: bool = True
    quiet_permanent: bool = False
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        unnamed = [category for category in Category if category not in self.retry | self.fail]
        retried = frozenset(category for category in unnamed if category in RETRIED_BY_DEFAULT)
        object.__setattr__(self, "retry", self.retry | retried)
        object.__setattr__(self, "fail", self.fail | (frozenset(unnamed) - retried))

    @property
    def public_kind(self) -> str:
        """The word for `retry_policy` in lists: a list of delays is called exponential too."""
        return "exponential" if self.kind is PolicyKind.LIST else self.kind.value

    @classmethod
    def from_spec(cls, spec: Mapping[str, object]) -> "Policy":
        """Read the JSON shape of a policy, or raise PolicyError with everything that is wrong with it."""
        if not isinstance(spec, Mapping):
            raise PolicyError([((), "must be an object")])
        return _read(SpecReader(spec))

    def to_spec(self) -> dict[str, object]:
        """The JSON shape; `from_spec` of it is this policy again."""
        schedule: dict[str, object] = {}
        if self.kind in (PolicyKind.LIST, PolicyKind.IMMEDIATE):
            schedule["delays_s"] = [_plain(delay_s) for delay_s in self.delays_s or (IMMEDIATE_DELAY_S,)]
        elif self.kind is PolicyKind.EXPONENTIAL:
            schedule = {name: _plain(getattr(self, name)) for name in ("base_s", "factor", "cap_s")}
        return {
            "kind": self.kind.value,
            **schedule,
            "jitter": self.jitter,
            "max_retries": self.max_retries,
            "max_age_s": _plain(self.max_age_s),
            "max_retry_after_s": _plain(self.max_retry_after_s),
            "timeout_s": _plain(self.timeout_s),
            "classify": {"retry": _in_order(self.retry), "fail": _in_order(self.fail)},
            "notify": self.notify,
            "quiet_permanent": self.quiet_permanent,
            "retention": {
                "delivered_s": _plain(self.retention.delivered_s),
                "failed_s": _plain(self.retention.failed_s),
                "dead_s": _plain(self.retention.dead_s),
                "received_s": _plain(self.retention.received_s),
            },
        }


# A replay's override that makes an exponential schedule of another, from the specification of workflows.
OVERRIDE_SCHEDULE = {"base_s": 2.0, "factor": 2.0, "cap_s": 120.0}
OVERRIDE_JITTER = 0.25
_SCHEDULE_FIELDS = frozenset({"delays_s", *OVERRIDE_SCHEDULE})
_NULLABLE = frozenset({"max_retries", "max_age_s"})


def overlaid(base: Policy, given: Mapping[str, object]) -> Policy:
    """A policy with some of its fields replaced, or PolicyError: what is not given keeps its value.

    Rules of `classify` are added to those of the base. `kind` follows from the fields of the schedule unless it is
    given; a schedule of another kind than the base's begins with OVERRIDE_SCHEDULE, not with the base's fields.
    """
    given = {name: value for name, value in given.items() if value is not None or name in _NULLABLE}
    spec = base.to_spec()
    kind = given.get("kind", _kind_for(base, given))
    if kind != base.kind:
        spec = {name: value for name, value in spec.items() if name not in _SCHEDULE_FIELDS}
        if kind == PolicyKind.EXPONENTIAL:
            spec |= OVERRIDE_SCHEDULE
        if base.kind is PolicyKind.MANUAL:  # it has no delays that jitter could move
            most = DEFAULT_MAX_RETRIES if base.max_retries is None else base.max_retries
            spec |= {"jitter": OVERRIDE_JITTER, "max_retries": most}
    laid = {**spec, **given, "kind": kind}
    rules = given.get("classify")
    if isinstance(rules, Mapping):
        laid["classify"] = _laid_rules(base, rules)
    keep = given.get("retention")
    if isinstance(keep, Mapping):
        laid["retention"] = {**spec["retention"], **keep}  # type: ignore[dict-item]
    return Policy.from_spec(laid)


def _kind_for(base: Policy, given: Mapping[str, object]) -> PolicyKind:
    if "delays_s" in given and base.kind is not PolicyKind.IMMEDIATE:
        return PolicyKind.LIST
    return PolicyKind.EXPONENTIAL if given.keys() & OVERRIDE_SCHEDULE.keys() else base.kind


def _laid_rules(base: Policy, rules: Mapping[str, object]) -> dict[str, object]:
    """The given rules first, so that problems keep their places, then those of the base about other things."""
    named = [item for rule in ("retry", "fail") if isinstance(given := rules.get(rule), list) for item in given]
    if ALL in named:
        named += Category
    laid = dict(rules)
    for rule, before in (("retry", base.retry), ("fail", base.fail)):
        own = rules.get(rule)
        if own is None or isinstance(own, list):
            laid[rule] = [*(own or ()), *(item for item in _in_order(before) if item not in named)]
    return laid


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """Retry n (from 0): its delay, the range jitter may move it in, and when it falls due without jitter."""

    retry: int
    delay_s: float
    min_s: float
    max_s: float
    at_s: float


def retry_delay(policy: Policy, retry: int, roll: float) -> timedelta | None:
    """The delay before retry n (from 0) after the failure before it; None: never by itself.

    `roll` is uniform in [0, 1]: the only chance in it.
    """
    full_s = _full_delay_s(policy, retry)
    if full_s is None:
        return None
    return timedelta(seconds=full_s * (1 + policy.jitter * (2 * roll - 1)))


def delay_bounds(policy: Policy, retry: int) -> tuple[timedelta, timedelta] | None:
    """The shortest and longest delay before retry n; None: never by itself."""
    full_s = _full_delay_s(policy, retry)
    if full_s is None:
        return None
    return timedelta(seconds=full_s * (1 - policy.jitter)), timedelta(seconds=full_s * (1 + policy.jitter))


def preview(policy: Policy, limit: int = MAX_PREVIEW_ROWS) -> list[PreviewRow]:
    """The schedule as rows: no more than `limit`, none past the policy's retries or its max age."""
    rows: list[PreviewRow] = []
    at_s = 0.0
    most = limit if policy.max_retries is None else min(limit, policy.max_retries)
    for retry in range(most):
        full_s = _full_delay_s(policy, retry)
        if full_s is None:
            break
        at_s += full_s
        if policy.max_age_s is not None and at_s >= policy.max_age_s:
            break
        low_s, high_s = full_s * (1 - policy.jitter), full_s * (1 + policy.jitter)
        rows.append(PreviewRow(retry, full_s, low_s, high_s, at_s))
    return rows


def _full_delay_s(policy: Policy, retry: int) -> float | None:
    """The delay before jitter, in seconds."""
    if retry < 0:
        raise ValueError(f"retry must be 0 or more, not {retry}")
    match policy.kind:
        case PolicyKind.MANUAL:
            return None
        case PolicyKind.IMMEDIATE:
            return policy.delays_s[0] if policy.delays_s else IMMEDIATE_DELAY_S
        case PolicyKind.LIST:
            return policy.delays_s[min(retry, len(policy.delays_s) - 1)]
        case PolicyKind.EXPONENTIAL:
            return _power_s(policy, min(retry, MAX_RETRIES_BY_AGE))


def _power_s(policy: Policy, retry: int) -> float:
    """min(cap, base · factor^n), comparing logarithms first: the power alone would overflow."""
    if policy.base_s == 0 or policy.base_s >= policy.cap_s:
        return min(policy.base_s, policy.cap_s)
    base_s = max(policy.base_s, RESOLUTION_S)
    if retry * math.log(policy.factor) > math.log(policy.cap_s) - math.log(base_s) + 1:
        return policy.cap_s
    return min(policy.cap_s, base_s * policy.factor**retry)


def _read(reader: SpecReader) -> Policy:
    kind = _read_kind(reader)
    delays_s = _read_delays(reader, kind)
    base_s, factor, cap_s = _read_formula(reader, kind)
    retry, fail = _read_rules(reader.nested("classify"))
    keep = reader.nested("retention")
    usual = Retention()
    retention = Retention(
        keep.optional_number("delivered_s", usual.delivered_s, 0, MAX_RETENTION_S),
        keep.optional_number("failed_s", usual.failed_s, 0, MAX_RETENTION_S),
        keep.optional_number("dead_s", usual.dead_s, 0, MAX_RETENTION_S),
        keep.optional_number("received_s", usual.received_s, 0, MAX_RETENTION_S),
    )
    keep.finish()
    policy = Policy(
        kind=kind,
        delays_s=delays_s,
        base_s=base_s,
        factor=factor,
        cap_s=cap_s,
        jitter=reader.number("jitter", 0.0, 0, 1),
        max_retries=reader.optional_integer("max_retries", DEFAULT_MAX_RETRIES, 0, MAX_RETRIES_LIMIT),
        max_age_s=reader.optional_number("max_age_s", None, MIN_AGE_S, MAX_AGE_S),
        max_retry_after_s=reader.number("max_retry_after_s", DEFAULT_MAX_RETRY_AFTER_S, 0, MAX_DELAY_S),
        timeout_s=reader.number("timeout_s", DEFAULT_TIMEOUT_S, MIN_TIMEOUT_S, MAX_TIMEOUT_S),
        retry=retry,
        fail=fail,
        notify=reader.flag("notify", True),
        quiet_permanent=reader.flag("quiet_permanent", False),
        retention=retention,
    )
    reader.finish()
    if not reader.problems:
        _refuse_endless(reader, policy)
    if reader.problems:
        raise PolicyError(reader.problems)
    return policy


def _read_kind(reader: SpecReader) -> PolicyKind:
    value = reader.raw("kind")
    if isinstance(value, str) and value in PolicyKind.__members__.values():
        return PolicyKind(value)
    allowed = ", ".join(kind.value for kind in PolicyKind)
    wrong = f"must be one of {allowed}, not {shown(value)}" if reader.has("kind") else f"is needed: one of {allowed}"
    reader.problem(wrong, "kind")
    return PolicyKind.MANUAL


def _read_delays(reader: SpecReader, kind: PolicyKind) -> tuple[float, ...]:
    value = reader.raw("delays_s")
    if kind is PolicyKind.LIST:
        return reader.numbers("delays_s", MAX_DELAYS, 0, MAX_DELAY_S)
    if kind is PolicyKind.IMMEDIATE:
        return (IMMEDIATE_DELAY_S,) if value is None else reader.numbers("delays_s", 1, 0, MAX_DELAY_S)
    _refuse_foreign(reader, kind, "delays_s")
    return ()


def _read_formula(reader: SpecReader, kind: PolicyKind) -> tuple[float, float, float]:
    if kind is PolicyKind.EXPONENTIAL:
        if not reader.has("base_s"):
            reader.problem("is needed by a policy of kind exponential", "base_s")
        base_s = reader.number("base_s", 1.0, 0, MAX_DELAY_S)
        factor = reader.number("factor", DEFAULT_FACTOR, 1, MAX_FACTOR)
        return base_s, factor, reader.number("cap_s", max(base_s, DEFAULT_CAP_S), 0, MAX_DELAY_S)
    for name in ("base_s", "factor", "cap_s"):
        _refuse_foreign(reader, kind, name)
    return 1.0, DEFAULT_FACTOR, DEFAULT_CAP_S


def _refuse_foreign(reader: SpecReader, kind: PolicyKind, name: str) -> None:
    """A schedule field of another kind would silently do nothing; null says the same as leaving it out."""
    unreadable_kind = any(place == ("kind",) for place, _ in reader.problems)
    if reader.raw(name) is not None and not unreadable_kind:
        reader.problem(f"has no meaning for a policy of kind {kind.value}", name)


def _read_rules(reader: SpecReader) -> tuple[frozenset[Rule], frozenset[Rule]]:
    retry, fail = _read_rule_list(reader, "retry"), _read_rule_list(reader, "fail")
    for rule, index in fail.items():
        if rule in retry:
            reader.problem(f"{shown(_rule_text(rule))} is in both retry and fail", "fail", index)
    reader.finish()
    return _expanded(retry, fail), _expanded(fail, retry)


def _expanded(rules: Mapping[Rule | str, int], others: Mapping[Rule | str, int]) -> frozenset[Rule]:
    """The rules of one list; `all` stands for every class that the other list does not name."""
    named = frozenset(rule for rule in rules if isinstance(rule, Category | StatusFamily | int))
    return named | (frozenset(Category) - others.keys()) if ALL in rules else named


def _read_rule_list(reader: SpecReader, name: str) -> dict[Rule | str, int]:
    """The rules in a list, each with its place."""
    value = reader.raw(name)
    if value is None:
        return {}
    if not isinstance(value, list | tuple):
        reader.problem(f"must be a list of classes and status codes, not {shown(value)}", name)
        return {}
    if len(value) > MAX_RULES:
        reader.problem(f"must hold at most {MAX_RULES} entries, not {len(value)}", name)
        return {}
    rules: dict[Rule | str, int] = {}
    for index, item in enumerate(value):
        rule = _read_rule(item)
        if isinstance(rule, _Refused):
            reader.problem(rule.message, name, index)
        else:
            rules.setdefault(rule, index)
    return rules


@dataclass(frozen=True, slots=True)
class _Refused:
    message: str


def _read_rule(item: object) -> Rule | str | _Refused:
    if isinstance(item, int) and not isinstance(item, bool):
        if MIN_STATUS <= item <= MAX_STATUS:
            return int(item)
        return _Refused(f"status codes are {MIN_STATUS} to {MAX_STATUS}, not {shown(item)}")
    if isinstance(item, str):
        if item == ALL:
            return ALL
        for named in (Category, StatusFamily):
            if item in named.__members__.values():
                return named(item)
    allowed = ", ".join([ALL, *Category, *StatusFamily])
    return _Refused(f"must be a status code or one of {allowed}, not {shown(item)}")


def _refuse_endless(reader: SpecReader, policy: Policy) -> None:
    """Unbounded retries need an end and a delay that keeps them countable. A person ends unbounded manual ones."""
    if policy.max_retries is not None or policy.kind is PolicyKind.MANUAL:
        return
    if policy.max_age_s is None:
        reader.problem("is needed when max_retries is null: something must end the retries", "max_age_s")
        return
    last_s = _full_delay_s(policy, MAX_RETRIES_BY_AGE) or 0.0
    if last_s * MAX_RETRIES_BY_AGE < policy.max_age_s:
        reader.problem(
            f"allows more than {MAX_RETRIES_BY_AGE} retries within max_age_s: lengthen the delay or bound max_retries",
            "delays_s" if policy.delays_s else "cap_s",
        )


def _plain(value: float | None) -> float | int | None:
    """Whole seconds read better without a fraction; JSON does not tell them apart."""
    return int(value) if value is not None and value.is_integer() else value


def _rule_text(rule: Rule | str) -> str | int:
    return rule if isinstance(rule, int) else str(rule)


def _in_order(rules: frozenset[Rule]) -> list[str | int]:
    """Classes first, in their own order, then families, then codes: the same policy, the same text."""
    named: list[str | int] = [rule.value for rule in (*Category, *StatusFamily) if rule in rules]
    return named + sorted(rule for rule in rules if isinstance(rule, int))
