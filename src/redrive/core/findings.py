"""What `redrive doctor` finds: for each examination what it looked at, and what is wrong. Pure.

Made by store.examinations and by the package doctor; shown by the command line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MAX_FINDINGS = 12  # told of one examination; the rest is counted


class Severity(StrEnum):
    PROBLEM = "problem"  # somebody has to do something
    WARNING = "warning"  # somebody should know


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, why it matters, and what to do about it: a command or SQL where there is one."""

    severity: Severity
    what: str
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What an examination came to. `saw` is a sentence about what was looked at, whatever was found there."""

    saw: str
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """An examination that was made, or was not: then `saw` says why, and a finding that nobody can tell."""

    name: str
    title: str
    saw: str
    findings: tuple[Finding, ...] = ()
    more: int = 0  # findings beyond those that are told,
    more_problems: int = 0  # and how many of them are problems
    made: bool = True
    took_ms: float = 0.0

    @property
    def is_fine(self) -> bool:
        return self.made and not self.findings

    def has(self, severity: Severity) -> bool:
        return any(finding.severity is severity for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    at: datetime
    examinations: tuple[Examined, ...]

    def count(self, severity: Severity) -> int:
        told = sum(finding.severity is severity for examined in self.examinations for finding in examined.findings)
        more_problems = sum(examined.more_problems for examined in self.examinations)
        if severity is Severity.PROBLEM:
            return told + more_problems
        return told + sum(examined.more for examined in self.examinations) - more_problems

    @property
    def needs_somebody(self) -> bool:
        return self.count(Severity.PROBLEM) > 0


def problem(what: str, why: str, fix: str) -> Finding:
    return Finding(Severity.PROBLEM, what, why, fix)


def warning(what: str, why: str, fix: str) -> Finding:
    return Finding(Severity.WARNING, what, why, fix)


def examined(name: str, title: str, seen: Seen, took_s: float) -> Examined:
    """The gravest first, and not more than a person reads."""
    ordered = sorted(seen.findings, key=lambda finding: finding.severity is not Severity.PROBLEM)
    told, more = tuple(ordered[:MAX_FINDINGS]), ordered[MAX_FINDINGS:]
    problems = sum(finding.severity is Severity.PROBLEM for finding in more)
    return Examined(name, title, seen.saw, told, len(more), problems, took_ms=took_s * 1000)


def not_made(name: str, title: str, why: str, took_s: float = 0.0, *, is_problem: bool = True) -> Examined:
    """An examination that could not be made. Where an earlier finding says why, that is no problem of its own."""
    if not is_problem:
        return Examined(name, title, why, made=False)
    finding = problem(
        "This could not be examined.",
        why,
        "See what the other examinations say, put that right, and run `redrive doctor` again.",
    )
    return Examined(name, title, why, (finding,), made=False, took_ms=took_s * 1000)


def counted(count: int, one: str) -> str:
    """As a person says it: 1 worker, 2 workers."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def span(seconds: float) -> str:
    """A length of time as a person says it: 0.4 s, 12 s, 7 min, 3 h, 2 days."""
    size = abs(seconds)
    if size < 10:
        return f"{seconds:.1f} s"
    if size < 120:
        return f"{seconds:.0f} s"
    if size < 7200:
        return f"{seconds / 60:.0f} min"
    if size < 172_800:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86_400:.0f} days"
