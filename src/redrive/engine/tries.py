"""The tries in flight: how each one begins, what follows from its end, and how all are broken off.

Used by engine.worker, which claims before and settles behind. A destination that can calls back when a try has ended;
any other gets a task for each of its tries.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

import structlog

from redrive.core.classify import failure_of
from redrive.core.decide import AwaitPerson, Decision, Die, Reason, Succeed, decide, expired, within_block
from redrive.core.outcome import Category, Failure
from redrive.core.policy import Policy
from redrive.core.ports import (
    NO_EXCHANGE,
    Destination,
    Job,
    PromptDestination,
    Released,
    Settlement,
    Try,
    Trying,
)
from redrive.engine.spans import tell_try
from redrive.observe import traces

SUCCEED = Succeed()
BROKEN_OFF = Released("The worker was stopped while it was trying.", possible_duplicate=True)
TOO_LATE = Released("The worker was too busy to begin in time.")

UNDECIDED_S = 30.0

log = structlog.get_logger("redrive.worker")

Ended = Callable[[Try | Released], None]


class Tries:
    def __init__(
        self,
        destinations: Mapping[str, Destination],
        settle: Callable[[Settlement], None],
        *,
        margin_s: float,
        dice: Callable[[], float],
    ) -> None:
        self._destinations = destinations
        self._prompt = {queue: one for queue, one in destinations.items() if isinstance(one, PromptDestination)}
        self._settle = settle
        self._margin_s = margin_s
        self._dice = dice
        # By the job's identity, not by the task's id: a worker that takes over its own lost lease tries a task twice.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._calling_back: dict[int, tuple[Trying, Ended]] = {}
        self._breaking_off = False

    @property
    def under_way(self) -> int:
        return len(self._tasks) + len(self._calling_back)

    def begin(self, job: Job, policy: Policy, asked_at: float) -> None:
        """Begin a try of a job that was asked for at this moment of the monotonic clock."""
        destination = self._prompt.get(job.queue)
        if destination is not None:
            self._begin(destination, job, policy, asked_at)
        else:
            self._tasks[id(job)] = asyncio.create_task(self._carry_out(job, policy, asked_at))

    def break_off(self) -> None:
        """The worker stops. What is broken off is given back, and may have arrived all the same."""
        self._breaking_off = True
        for trying, ended in list(self._calling_back.values()):
            trying.cancel()
            ended(BROKEN_OFF)
        for task in self._tasks.values():
            task.cancel()

    # -- one try ---------------------------------------------------------------------------------------------------

    def _begin(self, destination: PromptDestination, job: Job, policy: Policy, asked_at: float) -> None:
        """`_carry_out` without a task: whatever ends the try calls `_conclude`."""
        now = self._may_be_tried(job, policy, asked_at)
        if now is None:
            return
        ended = partial(self._conclude, job, policy, now, time.perf_counter())
        try:
            trying = destination.begin(job, now, ended)
        except Exception as error:  # noqa: BLE001 - a destination's bug is a failed try, with its stack
            trying = Try(failure_of(error, traceback.format_exc()))
        if isinstance(trying, (Try, Released)):
            ended(trying)
        else:
            self._calling_back[id(job)] = (trying, ended)

    async def _carry_out(self, job: Job, policy: Policy, asked_at: float) -> None:
        now = self._may_be_tried(job, policy, asked_at)
        if now is not None:
            began = time.perf_counter()
            self._conclude(job, policy, now, began, await self._try(job, now))

    async def _try(self, job: Job, now: datetime) -> Try | Released:
        try:
            return await self._destinations[job.queue].attempt(job, now)
        except asyncio.CancelledError as error:
            if self._breaking_off:
                return BROKEN_OFF
            return Try(failure_of(error, traceback.format_exc()))  # not ours: a handler that cancels itself has failed
        except Exception as error:  # noqa: BLE001 - a destination's bug is a failed try, with its stack
            return Try(failure_of(error, traceback.format_exc()))

    def _may_be_tried(self, job: Job, policy: Policy, asked_at: float) -> datetime | None:
        """The time, by the database's clock; None where no try may be made, and what follows instead is settled."""
        waited_s = time.monotonic() - asked_at
        now = job.claimed_at + timedelta(seconds=waited_s)
        instead: Decision | Released | None
        try:
            instead = _instead_of_a_try(policy, job, now)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not keep the rest of its claim from being tried
            instead = _undecided(job, error)
        if instead is None and waited_s > self._margin_s / 2:
            # The lease covers the time-out and a margin. Half the margin is gone: a try could outlive the lease.
            instead = TOO_LATE
        if instead is None:
            return now
        self._end(Settlement(job, None, instead, NO_EXCHANGE, 0.0))
        return None

    def _conclude(self, job: Job, policy: Policy, now: datetime, began: float, tried: Try | Released) -> None:
        took_s = time.perf_counter() - began
        if isinstance(tried, Released):
            self._end(Settlement(job, None, tried, NO_EXCHANGE, took_s))
            return
        if traces.is_on():
            tell_try(job, tried, took_s)
        outcome, exchange, output, output_is_cut = tried
        decision: Decision = SUCCEED
        if isinstance(outcome, Failure):
            age = now - job.begun_at + timedelta(seconds=took_s)
            try:
                decision = decide(
                    policy, outcome, failures=job.attempts + 1, age=age, roll=self._dice(), leniency=job.leniency
                )
                if job.max_block_s is not None and job.lane is not None:
                    ended_at = now + timedelta(seconds=took_s)
                    blocked_for = ended_at - (job.blocked_since or ended_at)
                    decision = within_block(decision, blocked_for, timedelta(seconds=job.max_block_s), outcome.category)
            except Exception as error:  # noqa: BLE001 - a bug of ours must not keep the lease and its slot
                self._end(Settlement(job, None, _undecided(job, error), NO_EXCHANGE, took_s))
                return
        self._end(Settlement(job, outcome, decision, exchange, took_s, output, output_is_cut, began + took_s))

    def _end(self, settlement: Settlement) -> None:
        key = id(settlement.job)
        if self._calling_back.pop(key, None) is None:
            self._tasks.pop(key, None)
        self._settle(settlement)


def _undecided(job: Job, error: Exception) -> Released:
    """Given back for a while, for a worker without the bug."""
    log.error("decision_failed", task=str(job.id), policy=str(job.policy_id), stack=traceback.format_exc())
    why = f"What follows could not be decided ({type(error).__name__}): a bug, see the worker's log."
    return Released(why, possible_duplicate=True, delay_s=UNDECIDED_S)


def _instead_of_a_try(policy: Policy, job: Job, now: datetime) -> Die | AwaitPerson | None:
    """What follows where a leased task may not be tried: its retries went with a lost worker, or it is too old."""
    age = now - job.begun_at
    if job.lost:
        lost = Failure(Category.TIMEOUT, "The worker did not report before its lease ended.")
        decision = decide(policy, lost, failures=job.attempts, age=age, roll=0.5, leniency=job.leniency)
        if isinstance(decision, Die | AwaitPerson):
            return decision
    # A lost try may have used the last retry up before the lease was given back or the task was held. A redrive
    # grants one try at least; of a step it begins without tries.
    granted = 1 if job.generation and job.run_id is None else 0
    if policy.max_retries is not None and job.attempts > max(policy.max_retries, granted):
        return Die(Reason.EXHAUSTED, Category.TIMEOUT)
    if expired(policy, age) and not _is_owed_a_try(policy, job, now):
        return Die(Reason.EXPIRED, Category.TIMEOUT)
    return None


def _is_owed_a_try(policy: Policy, job: Job, now: datetime) -> bool:
    """Whether it grew too old while it was paused: then it gets one try, within its max age from the end of the pause.

    The claim leaves `free_since` out once that try was made.
    """
    resumed_at = job.free_since
    return (
        resumed_at is not None and expired(policy, resumed_at - job.begun_at) and not expired(policy, now - resumed_at)
    )
