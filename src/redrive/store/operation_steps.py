"""Steps of operations: collect items, act on the next of them, and look what became of those before.

Each step is one short transaction on one operation, which is locked meanwhile. Whoever is killed in a step has done
nothing, and sums cannot count twice: an item changes its state in the transaction that counts it. Run by
engine.operations through core.ports, and by the API for the operation it has just made.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from uuid import UUID

import asyncpg
import msgspec
import structlog

from redrive.core.operations import (
    MAX_ITEMS,
    MAX_SENT_ITEMS,
    Canary,
    Course,
    OperationState,
    completed,
    dispatched,
    is_finished,
    is_trial,
    next_batch,
)
from redrive.core.ports import Step
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.operation_acts import Acts, Verdict, judge
from redrive.store.operations import RETRY_QUEUE
from redrive.store.retry_queue import RetryQueueFilter

COLLECT_ROWS = 5_000  # looked at in one step
BUSY_REST_S = 0.2  # while one is active that can do nothing at the moment
MOST_BUSY_REST_S = 10.0  # for one that has not moved for long
BUSY_REST_SHARE = 0.05  # of the time that it has not moved
IDLE_REST_S = 1.0
UNREADABLE_REST_S = 30.0

log = structlog.get_logger("redrive.operations")


class OperationSteps:
    """Implements core.ports.OperationStore."""

    def __init__(self, engine: Database, clock: Clock, *, dice: Callable[[], float] = random.random) -> None:
        self._engine = engine
        self._clock = clock
        self._dice = dice

    async def step(self) -> Step:
        """Move on the operation that has waited longest. Where it could not move, the next one may at once."""
        row: Record | None = None
        try:
            async with self._engine.transaction() as session:
                row = await session.fetchrow("next_operation", self._clock.now())
                if row is None:
                    return Step(None, IDLE_REST_S)
                wait_s = (row["step_at"] - row["now"]).total_seconds()
                if wait_s > 0:
                    return Step(None, min(wait_s, BUSY_REST_S))
                await self._step(session, row)
        except Exception as error:
            if row is None or _is_cut_off(error):
                raise
            await self._put_off(row, error)
        return Step(row["id"], 0.0)

    async def step_of(self, org_id: UUID, operation_id: UUID) -> Step:
        """Move on this one, where it is active and nobody else is at it."""
        async with self._engine.transaction() as session:
            row = await session.fetchrow("this_operation", self._clock.now(), org_id, operation_id)
            if row is None:
                return Step(None, BUSY_REST_S)
            return Step(row["id"], await self._step(session, row))

    async def _put_off(self, row: Record, error: Exception) -> None:
        """One whose step fails must not be the first in the line again: all others would wait behind it for ever."""
        is_passing = isinstance(error, asyncpg.TransactionRollbackError)
        rest_s = BUSY_REST_S if is_passing else UNREADABLE_REST_S
        log.warning(
            "operation_put_off", operation_id=str(row["id"]), error_type=type(error).__name__, again_in_s=rest_s
        )
        await self._engine.execute("put_off_operation", row["org_id"], row["id"], row["now"], rest_s)

    async def _step(self, session: Session, row: Record) -> float:
        if row["state"] == OperationState.PREPARING:
            return await self._collect(session, row)
        return await self._advance(session, row)

    async def _collect(self, session: Session, row: Record) -> float:
        is_queue = row["subject"] == RETRY_QUEUE
        chosen = _read_filter(RetryQueueFilter if is_queue else DeadLetterFilter, row["filter"])
        if chosen is None:
            log.error("operation_filter_unreadable", operation_id=str(row["id"]))
            await self._move(session, row, _course(row), changed=False, rest_s=UNREADABLE_REST_S)
            return BUSY_REST_S
        await session.fetchrow(
            "collect_retry_queue" if is_queue else "collect_dead_letters",
            row["org_id"],
            row["id"],
            COLLECT_ROWS,
            MAX_ITEMS,
            self._clock.now(),
            *chosen.columns,
            *(() if isinstance(chosen, RetryQueueFilter) else chosen.first_failed),
        )
        return 0.0

    async def _advance(self, session: Session, row: Record) -> float:
        before = course = _course(row)
        if course.sent:
            swept = await session.fetchrow("sweep_operation", row["org_id"], row["id"], MAX_SENT_ITEMS)
            assert swept is not None
            course = dispatched(course, 0, succeeded=swept["succeeded"], failed=swept["failed"], now=row["now"])
        course, count = next_batch(course, row["now"])
        if count:
            course = await self._act(session, row, course, count)
        course = completed(course)
        changed = course != before
        rest_s = 0.0 if changed else _rest_s(row)
        await self._move(session, row, course, changed=changed, rest_s=rest_s)
        return rest_s

    async def _act(self, session: Session, row: Record, course: Course, count: int) -> Course:
        """Act on the next items: judged as each alone would be, done together."""
        place = (row["org_id"], row["id"], course.dispatched, course.dispatched + count)
        await session.fetchrow("lock_item_tasks", *place)
        items = await session.fetch("judge_items", *place)
        assert len(items) == count, "items are numbered without gaps"
        verdicts = [judge(row, item) for item in items]
        verdicts = await Acts(session, row, self._clock, self._dice, once=is_trial(course)).carry_out(verdicts)
        await _mark(session, place, verdicts)
        ended = Counter(verdict.state for verdict in verdicts)
        return dispatched(course, count, succeeded=ended["succeeded"], failed=ended["failed"], now=row["now"])

    async def _move(self, session: Session, row: Record, course: Course, *, changed: bool, rest_s: float) -> None:
        await session.execute(
            "move_operation",
            row["org_id"],
            row["id"],
            row["now"],
            changed,
            rest_s,
            course.state,
            course.dispatched,
            course.succeeded,
            course.failed,
            course.stage,
            course.stage_done,
            course.stage_failed,
            course.paid_until,
            course.note,
            is_finished(course),
        )


def _is_cut_off(error: Exception) -> bool:
    """The server is away, which is no operation's fault. A time-out is, and an argument that asyncpg does not take."""
    if isinstance(error, TimeoutError | asyncpg.QueryCanceledError | ValueError):
        return False
    return isinstance(
        error,
        OSError
        | asyncpg.InterfaceError
        | asyncpg.InternalClientError
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError,
    )


def _rest_s(row: Record) -> float:
    """How long one that cannot move is left alone: longer, the longer it has not. There may be thousands."""
    still_s: float = (row["now"] - row["updated_at"]).total_seconds()
    return min(max(BUSY_REST_S, BUSY_REST_SHARE * still_s), MOST_BUSY_REST_S)


async def _mark(session: Session, place: tuple[object, ...], verdicts: Sequence[Verdict]) -> None:
    await session.execute(
        "mark_items",
        *place,
        [verdict.state for verdict in verdicts],
        [verdict.fence for verdict in verdicts],
        [verdict.note for verdict in verdicts],
    )


def canary_of(row: Record) -> Canary | None:
    return None if row["canary"] is None else msgspec.json.decode(row["canary"], type=Canary)


def _course(row: Record) -> Course:
    return Course(
        state=OperationState(row["state"]),
        total=row["total"],
        dispatched=row["dispatched"],
        succeeded=row["succeeded"],
        failed=row["failed"],
        canary=canary_of(row),
        stage=row["stage"],
        stage_done=row["stage_done"],
        stage_failed=row["stage_failed"],
        rate_per_s=row["rate_per_s"],
        paid_until=row["paid_until"],
        note=row["note"],
    )


def _read_filter(
    kind: type[RetryQueueFilter] | type[DeadLetterFilter], stored: str
) -> RetryQueueFilter | DeadLetterFilter | None:
    """None where a newer Redrive stored a filter that this one would read as less strict."""
    names = set(msgspec.json.decode(stored, type=dict[str, object]))
    return msgspec.json.decode(stored, type=kind) if names <= {field.name for field in fields(kind)} else None
