"""What the janitor and the store hand to each other: what goes by retention, and what dies of age. Pure.

Used by engine.janitor; store.retention and store.expiry are the other side.
"""

from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from redrive.core.ports import Floor


class Swept(NamedTuple):
    """What the janitor removed: in one batch, or in a whole pass over an org. `expired` tasks died, and are kept."""

    events: int = 0
    tasks: int = 0
    attempts: int = 0
    dead_letters: int = 0
    payload_bytes: int = 0
    idempotency_keys: int = 0
    operations: int = 0
    notices: int = 0
    runs: int = 0
    alerts: int = 0
    expired: int = 0

    def plus(self, other: "Swept") -> "Swept":
        return Swept(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def removed(self) -> dict[str, int]:
        return {name: n for name, n in self._asdict().items() if name != "expired"}


class Batch(NamedTuple):
    """One bounded step through an org's events by age. `place` leads on; None: that was the end."""

    swept: Swept
    place: Floor | None


class SweptOrg(NamedTuple):
    """An org to walk through, as of one moment. Nothing that came after `until` can go; None: nothing can. No task that
    came after `aged_until` can have outlived its policy; None: none can.
    """

    org_id: UUID
    name: str
    now: datetime
    until: datetime | None
    acked_s: float | None
    aged_until: datetime | None = None
    received_s: float | None = None


class ExpiredTask(NamedTuple):
    """One that died because it was older than its policy allows, and nobody had taken it up."""

    org_id: UUID
    id: UUID
    event_id: UUID
    attempts: int
    max_retries: int | None
    died_at: datetime
    message: str
    correlation_id: str | None
    event_type: str
    endpoint_id: UUID | None = None
    run_id: UUID | None = None
    step: int | None = None
    submitted_by: str | None = None


class Expiries(NamedTuple):
    """One bounded step through an org's open tasks by age. `place` leads on; None: that was the end.

    In a dry run `expired` would die, and `tasks` names none.
    """

    expired: int
    tasks: list[ExpiredTask]
    place: Floor | None


class Sweeper(Protocol):
    """The janitor's view of the store."""

    async def forget_workers(self) -> None:
        """Those that nothing was heard of for a day."""
        ...

    async def forget_jobs(self) -> None:
        """Background jobs that no process has run for a day."""
        ...

    async def forget_history(self) -> None:
        """How tries of endpoints went, two weeks ago and before."""
        ...

    async def forget_lanes(self) -> None:
        """What nobody needs to know of them any more: that they were halted once, and gaps a year old."""
        ...

    async def orgs(self, rested_s: float) -> list[SweptOrg]:
        """Those that nobody has begun with for so long."""
        ...

    async def begin(self, org: SweptOrg, rested_s: float) -> bool:
        """False: somebody else was first."""
        ...

    async def expire(self, org: SweptOrg, place: Floor | None) -> Expiries | None:
        """Let tasks die that waited too long. None: another janitor is at work at this moment."""
        ...

    async def batch(self, org: SweptOrg, place: Floor | None) -> Batch | None:
        """Remove what may go. None: another janitor is at work at this moment."""
        ...

    async def conclude(self, org: SweptOrg, swept: Swept) -> None:
        """Say in the audit what went."""
        ...
