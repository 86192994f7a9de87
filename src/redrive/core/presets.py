"""The seven policies every installation starts with. Pure.

Seeded by store at migration; `presets` applies the environment's MAX_RETRIES, RETRY_DELAYS and
MAX_RETRY_ATTEMPTS, which cli reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from redrive.core.outcome import Category
from redrive.core.policy import (
    DAY_S,
    IMMEDIATE_DELAY_S,
    MAX_DELAY_S,
    MAX_DELAYS,
    Policy,
    PolicyKind,
    Retention,
    StatusFamily,
)
from redrive.core.spec import number_problem, shown

DEFAULT_POLICY = "integration"
MAX_RETRY_DELAYS_CHARS = 2_000

_KEPT = Retention(delivered_s=None, failed_s=None, dead_s=None)

PRESETS: Mapping[str, Policy] = MappingProxyType(
    {
        "integration": Policy(PolicyKind.LIST, delays_s=(5.0, 30.0, 300.0)),
        "immediate": Policy(PolicyKind.IMMEDIATE, delays_s=(IMMEDIATE_DELAY_S,)),
        "manual": Policy(PolicyKind.MANUAL),
        "relay": Policy(
            PolicyKind.EXPONENTIAL,
            base_s=1.0,
            factor=2.0,
            cap_s=3600.0,
            max_retries=None,
            max_age_s=7 * DAY_S,
            fail=frozenset({StatusFamily.CLIENT_ERRORS}),
            quiet_permanent=True,
            retention=Retention(delivered_s=7 * DAY_S, failed_s=7 * DAY_S, dead_s=14 * DAY_S),
        ),
        "triggers": Policy(
            PolicyKind.LIST,
            delays_s=(60.0, 300.0, 900.0),
            jitter=0.1,
            retry=frozenset(Category),
            fail=frozenset({401, 403, 410}),
        ),
        "workflow": Policy(
            PolicyKind.EXPONENTIAL,
            base_s=2.0,
            factor=2.0,
            cap_s=120.0,
            jitter=0.25,
            fail=frozenset({Category.UNKNOWN}),
            retention=_KEPT,
        ),
        "transformer": Policy(
            PolicyKind.EXPONENTIAL,
            base_s=2.0,
            factor=2.0,
            jitter=0.2,
            fail=frozenset({Category.UNKNOWN}),
            retention=_KEPT,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class PresetOverrides:
    """What the environment may change: MAX_RETRIES, RETRY_DELAYS, MAX_RETRY_ATTEMPTS."""

    max_retries: int | None = None
    retry_delays_s: tuple[float, ...] | None = None
    max_retry_attempts: int | None = None


def presets(overrides: PresetOverrides) -> dict[str, Policy]:
    """The presets under the environment's overrides; PolicyError when one of them cannot be used."""
    return overridden(PRESETS, overrides)


def overridden(policies: Mapping[str, Policy], overrides: PresetOverrides) -> dict[str, Policy]:
    """Policies by name, those of presets under the environment's overrides; PolicyError as `presets`."""
    transformer: dict[str, object] = {}
    triggers: dict[str, object] = {}
    if overrides.max_retries is not None:
        transformer["max_retries"] = overrides.max_retries
    if overrides.retry_delays_s is not None:
        triggers["delays_s"] = overrides.retry_delays_s
    if overrides.max_retry_attempts is not None:
        triggers["max_retries"] = overrides.max_retry_attempts
    changed = dict(policies)
    for name, changes in (("transformer", transformer), ("triggers", triggers)):
        if changes and name in policies:
            changed[name] = Policy.from_spec(policies[name].to_spec() | changes)
    return changed


def parse_retry_delays(text: str) -> tuple[float, ...]:
    """Read seconds such as "60,300,900"; ValueError says which part is wrong."""
    parts = text[:MAX_RETRY_DELAYS_CHARS].split(",")
    if len(text) > MAX_RETRY_DELAYS_CHARS or len(parts) > MAX_DELAYS:
        raise ValueError(f"retry delays: at most {MAX_DELAYS} numbers of seconds")
    return tuple(_seconds(part.strip(), position) for position, part in enumerate(parts, 1))


def _seconds(part: str, position: int) -> float:
    try:
        value = float(part)
    except ValueError:
        raise ValueError(f"retry delays: number {position} is {shown(part)}, not seconds") from None
    wrong = number_problem(value, 0, MAX_DELAY_S)
    if wrong:
        raise ValueError(f"retry delays: number {position} {wrong}")
    return value + 0.0
