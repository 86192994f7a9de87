"""What a measurement is: a Run, and the small arithmetic over several of them. Pure: no clock, no I/O.

Used by every module of bench; bench.report turns runs into tables and plots.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

BODY_BYTES = 512
"""Size of the job's payload, the same for every system."""


class NotRun(Exception):
    """A system that cannot run here (not installed, not installable, not written yet); the text says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement. `per_s` is the headline; `extra` holds what else was counted, units in the names.

    `series`: figures second by second, for plots.
    """

    name: str
    n: int
    seconds: float
    per_s: float
    extra: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def timed(
        cls,
        name: str,
        n: int,
        seconds: float,
        extra: Mapping[str, float] | None = None,
        series: Mapping[str, Sequence[float]] | None = None,
    ) -> Run:
        return cls(name, n, seconds, n / seconds if seconds > 0 else 0.0, dict(extra or {}), dict(series or {}))

    def value(self, key: str) -> float:
        """The figure under `key`; `per_s`, `seconds` and `n` are figures too. KeyError when not measured."""
        match key:
            case "per_s" | "seconds" | "n":
                return float(getattr(self, key))
        return float(self.extra[key])

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"extra": dict(self.extra)}


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of one figure over the repetitions of a run."""

    median: float
    low: float
    high: float
    times: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


def spread(runs: Sequence[Run], key: str = "per_s") -> Spread | None:
    """The spread of `key` over those runs that measured it; None when none did."""
    values = [run.value(key) for run in runs if key in run.extra or key in ("per_s", "seconds", "n")]
    return Spread.of(values) if values else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of an ascending sequence; 0 for an empty one."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def latency_figures(values_ms: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values_ms)
    return {f"p{share}_ms": percentile(ordered, share / 100) for share in (50, 95, 99)}
