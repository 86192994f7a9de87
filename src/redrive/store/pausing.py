"""The kill switch: the installation, an org or an endpoint is paused and resumed, and what was held for it goes on.

What is paused holds its tasks as they fall due (the claim query moves them to `held`): no try is spent, nothing is
lost. Called by the API and the command line. Whoever resumes or enables commits that first, then calls `release`; what
they leave behind, or die before, the workers release (engine.releaser).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.counters import count_of
from redrive.store.db import Database, Record, Session
from redrive.store.endpoints import get_endpoint

HOLD_BATCH = 2_000  # released in one transaction: short enough for others to come between
RELEASE_WITHIN_S = 2.0  # how long a caller waits for it; the workers go on with the rest
MAX_PAUSED_SHOWN = 100
MAX_HELD_COUNTED = 10_000


class PauseScope(StrEnum):
    INSTALLATION = "installation"
    ORG = "org"
    ENDPOINT = "endpoint"


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether something is paused. `held`: how many tasks it holds; None where that is not the asker's to know."""

    scope: PauseScope
    id: UUID
    paused_at: datetime | None
    paused_by: str | None
    because: str | None
    held: int | None
    name: str | None = None

    @property
    def paused(self) -> bool:
        return self.paused_at is not None


async def pause(session: Session, scope: PauseScope, act: Act, clock: Clock, endpoint_id: UUID | None = None) -> bool:
    """Pause it. False where nothing changed: it is paused already, or there is no such endpoint."""
    place = _place(session, scope, endpoint_id)
    row = await session.fetchrow(f"pause_{scope}", clock.now(), act.actor, act.because, *place)
    if row is None:
        return False
    await audit.record(session, act, f"{scope}.pause", scope, row["id"])
    return True


async def resume(session: Session, scope: PauseScope, act: Act, clock: Clock, endpoint_id: UUID | None = None) -> bool:
    """Let it go on. False where nothing changed. After the commit, call `release`."""
    place = _place(session, scope, endpoint_id)
    row = await session.fetchrow(f"resume_{scope}", clock.now(), *place)
    if row is None:
        return False
    await audit.record(session, act, f"{scope}.resume", scope, row["id"])
    return True


async def release(
    engine: Database, org_id: UUID | None, clock: Clock, *, within_s: float | None = RELEASE_WITHIN_S
) -> int:
    """Let held tasks go on where they stood, if nothing holds them any more: of an org, or of all (None).

    Each batch is a transaction of its own. Answers how many; what is left after `within_s` is left to the workers.
    """
    loop = asyncio.get_running_loop()
    until = None if within_s is None else loop.time() + within_s
    released = 0
    while True:
        row = await engine.fetchrow("release_held", org_id, HOLD_BATCH, clock.now())
        assert row is not None
        count: int = row["n"]
        released += count
        if count < HOLD_BATCH or (until is not None and loop.time() >= until):
            return released


async def kept_back(db: Database | Session, clock: Clock, org_id: UUID | None) -> int:
    """How many tasks are due, and kept back by breakers: of an org, or of all (None). They are held, too."""
    row = await db.fetchrow("count_kept_back", org_id, MAX_HELD_COUNTED, clock.now())
    return int(row["n"]) if row else 0


async def held_of_org(session: Session, clock: Clock) -> int:
    return await count_of(session, "task.held") + await kept_back(session, clock, session.org_id)


async def pauses(session: Session, clock: Clock) -> tuple[Pause, Pause]:
    """The installation's and the org's own. What other orgs hold is not said: see `held_everywhere`."""
    whole, org = await session.fetch("get_pauses", session.org_id)
    return _pause(whole, PauseScope.INSTALLATION, None), _pause(org, PauseScope.ORG, await held_of_org(session, clock))


async def held_everywhere(engine: Database, clock: Clock) -> int:
    row = await engine.fetchrow("count_held_everywhere")
    return (int(row["n"]) if row else 0) + await kept_back(engine, clock, None)


async def paused_endpoints(session: Session, clock: Clock) -> list[Pause]:
    """The oldest, one more than MAX_PAUSED_SHOWN; each counts at most MAX_HELD_COUNTED held tasks."""
    rows = await session.fetch(
        "list_paused_endpoints", session.org_id, MAX_PAUSED_SHOWN + 1, MAX_HELD_COUNTED, clock.now()
    )
    return [_pause(row, PauseScope.ENDPOINT, row["held"], row["name"]) for row in rows]


async def endpoint_pause(session: Session, endpoint_id: UUID, clock: Clock) -> Pause | None:
    """An endpoint's; None where there is no such endpoint."""
    row = await get_endpoint(session, endpoint_id)
    if row is None:
        return None
    counted = await session.fetchrow("count_held", session.org_id, endpoint_id, MAX_HELD_COUNTED, clock.now())
    return _pause(row, PauseScope.ENDPOINT, counted["n"] if counted else 0, row["name"])


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a task is not tried. `shut`: what is paused or disabled; where it is not held yet, it will be when it is due.
    `ways_out`: what lifts that. `breaker`: which keeps it back now, though it is due.
    """

    shut: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()
    breaker: str | None = None

    @property
    def refusal(self) -> str | None:
        """Why it cannot be tried now, and what to do about it; None where it can."""
        if not self.shut:
            return None
        return f"It cannot be tried: {' and '.join(self.shut)}. {' and '.join(self.ways_out)}, then retry."


NO_HOLD = Hold()


async def hold_of(session: Session, task_id: UUID, clock: Clock) -> Hold:
    """What keeps a task from being tried; nothing where it is being released at this moment."""
    return (await holds_of(session, [task_id], clock)).get(task_id, NO_HOLD)


async def holds_of(session: Session, task_ids: Sequence[UUID], clock: Clock) -> dict[UUID, Hold]:
    rows = await session.fetch("hold_causes", session.org_id, list(task_ids), clock.now()) if task_ids else []
    return {row["id"]: _hold(row) for row in rows}


def _hold(row: Record) -> Hold:
    named = f'endpoint "{row["endpoint"]}"'
    shut = [
        (cause, way_out)
        for since, cause, way_out in (
            (row["installation_paused_at"], "the installation is paused", "Resume the installation"),
            (row["org_paused_at"], "the org is paused", "Resume the org"),
            (row["endpoint_paused_at"], f"its {named} is paused", f"Resume {named}"),
            (row["endpoint_disabled_at"], f"its {named} is disabled", f"Enable {named}"),
        )
        if since is not None
    ]
    breaker = None if row["breaker"] is None else f"the breaker of its {named} is {row['breaker']}"
    return Hold(tuple(cause for cause, _ in shut), tuple(way_out for _, way_out in shut), breaker)


def _place(session: Session, scope: PauseScope, endpoint_id: UUID | None) -> Sequence[UUID]:
    match scope:
        case PauseScope.INSTALLATION:
            return ()
        case PauseScope.ORG:
            return (session.org_id,)
        case PauseScope.ENDPOINT:
            assert endpoint_id is not None, "which endpoint?"
            return session.org_id, endpoint_id


def _pause(row: Record, scope: PauseScope, held: int | None, name: str | None = None) -> Pause:
    return Pause(scope, row["id"], row["paused_at"], row["paused_by"], row["paused_because"], held, name)
