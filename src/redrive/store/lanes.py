"""Lanes of an endpoint: which are halted, in which something waits, and a halt that a person lifts.

Read by the API, the pages and the command line. What keeps lanes in order is in the migrations and in wake_lanes.sql.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.core.lifecycle import TaskState
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Record, Session

MAX_WAITING_COUNTED = 1_000  # tasks of one lane, or deaths; of more nobody is told how many
HALTED = 0
WAITING = 1


@dataclass(frozen=True, slots=True)
class Head:
    """The one of a lane that is tried."""

    id: UUID
    event_id: UUID
    event_type: str
    state: TaskState
    attempts: int
    due_at: datetime
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Lane:
    """`ordering_key` is None where the endpoint as a whole is the lane. `gap`: deaths that no delivery has told of.

    `halted_by`: the dead letter. `waiting`: tasks behind the head. Both numbers are counted to MAX_WAITING_COUNTED.
    """

    lane: UUID
    ordering_key: str | None
    halted_at: datetime | None
    halted_by: UUID | None
    halted_error: str | None
    halted_event_type: str | None
    gap: int
    head: Head | None
    waiting: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LanesPage:
    lanes: list[Lane]
    next_key: tuple[int, UUID] | None


async def list_lanes(
    session: Session, endpoint_id: UUID, *, limit: int, after: Sequence[object] | None = None
) -> LanesPage:
    """The halted ones, then those in which something waits. A page may be short and yet have a next one."""
    stage, place = after or (HALTED, None)
    halted: list[UUID] = []
    if stage == HALTED:
        halted = await _ids(session, "halted_lanes", endpoint_id, place, limit + 1)
        if len(halted) > limit:
            kept = halted[:limit]
            return LanesPage(await _lanes(session, endpoint_id, kept), (HALTED, kept[-1]))
        place = None
    room = limit - len(halted)
    waiting = await _ids(session, "waiting_lanes", endpoint_id, place, room + 1)
    # In a halted one something may wait, too: it is told once, among the halted ones.
    found = await _lanes(session, endpoint_id, [*halted, *(lane for lane in waiting[:room] if lane not in halted)])
    shown = [lane for lane in found if lane.lane in halted or lane.halted_at is None]
    if len(waiting) <= room:
        return LanesPage(shown, None)
    return LanesPage(shown, (WAITING, waiting[room - 1]) if room else (HALTED, halted[-1]))


async def get_lane(session: Session, endpoint_id: UUID, lane: UUID) -> Lane | None:
    """None where nothing is known of it: it is empty, and nothing of it ever died."""
    found = await _lanes(session, endpoint_id, [lane])
    return found[0] if found else None


async def resume_lane(session: Session, endpoint_id: UUID, lane: UUID, act: Act, clock: Clock) -> bool:
    """Go on with the next of it. The dead letter that halted it stays open. False where it is not halted."""
    row = await session.fetchrow("resume_lane", session.org_id, endpoint_id, lane, clock.now())
    if row is None:
        return False
    before = {
        "lane": lane,
        "ordering_key": row["ordering_key"],
        "halted_at": row["halted_at"],
        "dead_letter_id": row["halted_by"],
    }
    after = {"lane": lane, "ordering_key": row["ordering_key"], "halted_at": None, "dead_letter_id": None}
    await audit.record(session, act, "lane.resume", "endpoint", endpoint_id, before=before, after=after)
    return True


class Ahead(NamedTuple):
    """What one that is behind others waits for. Neither, for the moment until a worker has given its lane a head."""

    head: UUID | None
    halted_by: UUID | None  # the dead letter


NOBODY_AHEAD = Ahead(None, None)


async def ahead_of(session: Session, task_id: UUID) -> Ahead:
    """Of one that waits, or of a dead letter if it were redriven."""
    row = await session.fetchrow("ahead_of_task", session.org_id, task_id)
    return NOBODY_AHEAD if row is None else Ahead(row["head"], row["halted_by"])


async def lift_halts(session: Session, *, task_ids: Sequence[UUID] = (), endpoint_id: UUID | None = None) -> None:
    """What halted these lanes goes away for good: they go on with what waits. For those who remove it."""
    await session.execute("lift_halts", session.org_id, list(task_ids), endpoint_id)


async def _ids(session: Session, name: str, endpoint_id: UUID, after: object, limit: int) -> list[UUID]:
    return [row["lane"] for row in await session.fetch(name, session.org_id, endpoint_id, after, limit)]


async def _lanes(session: Session, endpoint_id: UUID, lanes: Sequence[UUID]) -> list[Lane]:
    if not lanes:
        return []
    most = MAX_WAITING_COUNTED + 1
    return [_lane(row) for row in await session.fetch("get_lanes", session.org_id, endpoint_id, list(lanes), most)]


def _lane(row: Record) -> Lane:
    return Lane(
        lane=row["lane"],
        ordering_key=row["ordering_key"],
        halted_at=row["halted_at"],
        halted_by=row["halted_by"],
        halted_error=row["halted_error"],
        halted_event_type=row["halted_event_type"],
        gap=min(row["gap"], MAX_WAITING_COUNTED),
        head=_head(row) if row["head_id"] is not None else None,
        waiting=min(row["waiting"], MAX_WAITING_COUNTED),
        is_whole=row["waiting"] <= MAX_WAITING_COUNTED,
    )


def _head(row: Record) -> Head:
    return Head(
        id=row["head_id"],
        event_id=row["head_event_id"],
        event_type=row["head_event_type"],
        state=TaskState(row["head_state"]),
        attempts=row["head_attempts"],
        due_at=row["head_due_at"],
        error_message=row["head_error"],
    )
