"""How an endpoint does and what protects it, in a row beside it that the workers write.

Each step of a breaker is one statement that asks for the state which the worker took it for: of many that find the
same, one is first, and only that one tells it in the audit. Called by engine.worker through
core.ports.EndpointStates; read by the API and the pages, where a person may close a breaker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redrive.core.breaker import BreakerState
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Session

MAX_REASON_CHARS = 500


class BreakerStates:
    """core.ports.EndpointStates on PostgreSQL."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def open_breaker(self, org_id: UUID, endpoint_id: UUID, *, taken_for: BreakerState, reason: str) -> bool:
        return await self._changed("open_breaker", org_id, endpoint_id, taken_for, reason[:MAX_REASON_CHARS])

    async def begin_ramp(self, org_id: UUID, endpoint_id: UUID) -> bool:
        return await self._changed("begin_ramp", org_id, endpoint_id)

    async def close_breaker(self, org_id: UUID, endpoint_id: UUID) -> bool:
        return await self._changed("close_breaker", org_id, endpoint_id)

    async def _changed(self, name: str, *args: object) -> bool:
        return await self._db.fetchrow(name, self._clock.now(), *args) is not None


@dataclass(frozen=True, slots=True)
class EndpointState:
    """`failing_since`: the first failure behind the last success, and how many there were since."""

    endpoint_id: UUID
    kind: str
    last_success_at: datetime | None
    last_failure_at: datetime | None
    failing_since: datetime | None
    failures: int
    breaker: BreakerState
    breaker_since: datetime | None
    breaker_reason: str | None
    is_halted: bool  # a lane of it

    @property
    def holds(self) -> bool:
        """Whether its breaker lets only a trickle of tasks through."""
        return self.breaker is BreakerState.OPEN


async def get_state(session: Session, endpoint_id: UUID) -> EndpointState | None:
    """None where there is no such endpoint."""
    return (await get_states(session, [endpoint_id])).get(endpoint_id)


async def get_states(session: Session, endpoint_ids: Sequence[UUID]) -> dict[UUID, EndpointState]:
    """Those of a page of endpoints."""
    rows = await session.fetch("get_endpoint_states", session.org_id, list(endpoint_ids))
    return {row["endpoint_id"]: EndpointState(**{**row, "breaker": BreakerState(row["breaker"])}) for row in rows}


async def ramp_by_hand(session: Session, endpoint_id: UUID, act: Act, clock: Clock) -> bool:
    """Let its tasks go on, more and more of them. False where its breaker does not hold them."""
    row = await session.fetchrow("ramp_by_hand", clock.now(), session.org_id, endpoint_id)
    if row is None:
        return False
    before, after = {"breaker": row["breaker"]}, {"breaker": BreakerState.RAMPING}
    await audit.record(session, act, "endpoint.breaker_close", "endpoint", endpoint_id, before=before, after=after)
    return True


async def reset_state(session: Session, endpoint_id: UUID) -> None:
    """What was known of it counts no more."""
    await session.execute("reset_endpoint_state", session.org_id, endpoint_id)
