"""What happened, added up: from the tally, which statements append to as they change things, into rollups and totals.

    roll     move what is in the tally, in one transaction; one at a time, wherever it is called from
    totals   the installation's, with what is not rolled yet: exact at any moment

Rolled by engine.roller in every worker and API process. Totals are read by metrics; rollups by store.analytics.
"""

from dataclasses import dataclass
from typing import NamedTuple

from redrive.core.pulse import RETRY_SLOTS, Waits
from redrive.store.clock import Clock
from redrive.store.db import Database, Session

BATCH_ROWS = 2_000  # of the tally, in one transaction
MAX_KEYS_A_DAY = 500  # of one dimension of an org; what is beyond shares one

# How long a span's rows are kept: a window is read from the finest span that reaches as far (core.analytics).
KEPT_S = {"minute": 2 * 86_400.0, "hour": 90 * 86_400.0, "day": 2 * 365 * 86_400.0}
BATCH_FORGOTTEN = 2_000  # of each dimension and span

MICROSECONDS = 1_000_000


class Death(NamedTuple):
    """Why tasks died: the reason, and the class of the last error."""

    reason: str
    category: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all orgs, since rollups are kept (migration 0039). None ever becomes less; tests of endpoints are in none.

    delivered, failed   tasks that ended. One that died and was redriven ends again
    attempts            tries that ended, lost leases among them; `retries` of these were not the first of their task
    deaths              dead letters that came, those again that were redriven and died again
    ended_after         tasks that ended, by how often they had been tried again: the slots of core.pulse; their sum
    waits               tasks that succeeded, by how long it took since their event came, likewise, and the sum
    firsts              those of them that needed no retry, likewise
    events_…            events of which the last task ended: all were delivered (`routed`), or one at least failed; and
                        that had ended and have an open task again
    """

    created: int
    acknowledged: int
    delivered: int
    failed: int
    redriven: int
    attempts: int
    retries: int
    breaker_openings: int
    deaths: dict[Death, int]
    ended_after: tuple[int, ...]
    retried: int
    waits: Waits
    waited_s: float
    firsts: Waits
    waited_first_s: float
    events_routed: int
    events_failed: int
    events_redriven: int


async def totals(engine: Database | Session) -> Totals:
    """As the engine, which sees all orgs. In one snapshot: what one number knows of, all of them do."""
    counted = {(row["name"], row["slot"]): int(row["n"]) for row in await engine.fetch("totals")}

    def of(name: str) -> int:
        return counted.get((name, ""), 0)

    def slots(name: str, size: int) -> tuple[int, ...]:
        return tuple(counted.get((name, str(place)), 0) for place in range(1, size + 1))

    def waits(name: str) -> Waits:
        return {int(slot): n for (kept_as, slot), n in counted.items() if kept_as == name and n}

    return Totals(
        created=of("created"),
        acknowledged=of("acked"),
        delivered=of("delivered"),
        failed=of("failed"),
        redriven=of("redriven"),
        attempts=of("attempts"),
        retries=of("retries"),
        breaker_openings=of("breakers"),
        deaths={Death(*slot.split("/", 1)): n for (name, slot), n in sorted(counted.items()) if name == "deaths"},
        ended_after=slots("ended", RETRY_SLOTS),
        retried=of("retried"),
        waits=waits("waits"),
        waited_s=of("waited") / MICROSECONDS,
        firsts=waits("waits_first"),
        waited_first_s=of("waited_first") / MICROSECONDS,
        events_routed=of("events_delivered"),
        events_failed=of("events_failed"),
        events_redriven=of("events_redriven"),
    )


class Roller:
    """Moves the tally into rollups and totals. Any number may run: who finds another at it leaves it to that one."""

    def __init__(self, engine: Database, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def roll(self, limit: int = BATCH_ROWS) -> int:
        """How many rows of the tally were moved; 0 where somebody else is at it.

        A transaction: whoever is killed in the middle has moved nothing.
        """
        async with self._engine.transaction() as session:
            leads = await session.fetchrow("lead_roll")
            if leads is None or not leads["ours"]:
                return 0
            row = await session.fetchrow("roll", limit, MAX_KEYS_A_DAY, self._clock.now())
        return int(row["n"]) if row else 0
