"""Decide what happens to a task after a try. Pure: no clock, no I/O.

Called by engine.worker and by sources that wait in their broker; applied by store.tasks.settle.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum

from redrive.core.classify import retriable
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.policy import Policy, retry_delay

SHORTEST_BLOCK_LEFT = timedelta(seconds=0.5)  # a retry sooner than this would be the same try again


class Reason(StrEnum):
    """Why a task died."""

    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Succeed:
    pass


@dataclass(frozen=True, slots=True)
class RetryIn:
    delay: timedelta


@dataclass(frozen=True, slots=True)
class AwaitPerson:
    """Nothing is scheduled: under a manual policy a person retries."""


@dataclass(frozen=True, slots=True)
class Die:
    reason: Reason
    category: Category


Decision = Succeed | RetryIn | AwaitPerson | Die


class Leniency(Enum):
    """Which failures a task survives."""

    BY_CLASS = "by_class"  # those whose class the policy retries
    ALL = "all"  # a person retried it: all but those in which a handler gives up
    NONE = "none"  # the one try of an early stage


def decide(
    policy: Policy,
    outcome: Outcome,
    *,
    failures: int,
    age: timedelta,
    roll: float,
    leniency: Leniency = Leniency.BY_CLASS,
) -> Decision:
    """What follows from an outcome.

    `failures`: failed tries of this generation, this one included. `age`: time since the task was received.
    """
    match outcome:
        case Success():
            return Succeed()
        case Failure():
            return _after_failure(policy, outcome, failures=failures, age=age, roll=roll, leniency=leniency)


def expired(policy: Policy, age: timedelta) -> bool:
    """Whether a task of this age dies without another try."""
    return policy.max_age_s is not None and age >= timedelta(seconds=policy.max_age_s)


def within_block(decision: Decision, blocked_for: timedelta, max_block: timedelta, category: Category) -> Decision:
    """What follows for the head of a lane, which it may keep for so long once it fails: no retry comes later."""
    if not isinstance(decision, RetryIn):
        return decision
    left = max_block - blocked_for
    if left < SHORTEST_BLOCK_LEFT:
        return Die(Reason.EXPIRED, category)
    return RetryIn(min(decision.delay, left))


def announces(policy: Policy, death: Die) -> bool:
    """Whether administrators are told of this death."""
    return policy.notify and not (policy.quiet_permanent and death.reason is Reason.PERMANENT)


def _after_failure(
    policy: Policy, failure: Failure, *, failures: int, age: timedelta, roll: float, leniency: Leniency
) -> RetryIn | AwaitPerson | Die:
    if failures < 1:
        raise ValueError(f"failures includes this one, so it is 1 or more, not {failures}")
    retries_made = failures - 1
    survives = leniency is Leniency.ALL and failure.steer is None
    if not survives and not retriable(policy, failure):
        return Die(Reason.PERMANENT, failure.category)
    if leniency is Leniency.NONE:
        return Die(Reason.EXHAUSTED, failure.category)
    if policy.max_retries is not None and retries_made >= policy.max_retries:
        return Die(Reason.EXHAUSTED, failure.category)
    if expired(policy, age):
        return Die(Reason.EXPIRED, failure.category)
    delay = retry_delay(policy, retries_made, roll)
    if delay is None:
        return AwaitPerson()
    if failure.retry_after is not None:
        longest = timedelta(seconds=policy.max_retry_after_s)
        delay = max(delay, min(failure.retry_after, longest))
    if policy.max_age_s is not None:
        # A retry beyond the max age would never be made: it falls due when the task expires instead.
        delay = min(delay, timedelta(seconds=policy.max_age_s) - age)
    return RetryIn(delay)
