"""Tasks that wait longer than their policy allows die, also where nobody would ever try them.

A step of the janitor's pass, under the same leadership, but as the engine: the janitor's own role removes, and lets
nothing die. Called by store.retention.
"""

from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from redrive.core.expiry import why_expired
from redrive.core.fingerprint import fingerprint
from redrive.core.outcome import Category
from redrive.core.ports import Floor
from redrive.core.sweep import ExpiredTask, Expiries, SweptOrg
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, past_deadlocks
from redrive.store.last_errors import LOST, LastError, last_errors
from redrive.store.snapshots import keep_payloads

BATCH_TASKS = 500  # looked at; as many die at most, but for the other tasks of the last one's event

_START = Floor(datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))


class Expiry:
    """`dry_run`: nothing is written."""

    def __init__(self, engine: Database, clock: Clock, *, dry_run: bool = False) -> None:
        self._engine = engine
        self._clock = clock
        self._dry_run = dry_run

    async def batch(self, org: SweptOrg, place: Floor | None) -> Expiries | None:
        """None: another janitor is at work at this moment. How old tasks are is judged as of the pass's beginning; they
        die now.
        """
        if org.aged_until is None:
            return Expiries(0, [], None)
        return await past_deadlocks(partial(self._batch, org, place or _START))

    async def _batch(self, org: SweptOrg, after: Floor) -> Expiries | None:
        async with self._engine.transaction() as session:
            leads = await session.fetchrow("lead_sweep")
            if leads is None or not leads["ours"]:
                return None
            seen = await session.fetch(
                "expire_pick", org.org_id, org.now, org.aged_until, after.due_at, after.task_id, BATCH_TASKS
            )
            old = [row for row in seen if row["expired"]]
            died: list[Record] = []
            if old and not self._dry_run:
                errors = await last_errors(session, [org.org_id] * len(old), [row["id"] for row in old])
                deaths = [_death(row, errors.get(row["id"])) for row in old]
                died = await session.fetch("expire_many", self._clock.now(), org.org_id, *zip(*deaths, strict=True))
                await keep_payloads(session, [(org.org_id, row["id"]) for row in old if row["kind"] == "step"])
        end = Floor(seen[-1]["received_at"], seen[-1]["event_id"]) if len(seen) >= BATCH_TASKS else None
        return Expiries(len(old) if self._dry_run else len(died), [_expired(row) for row in died], end)


def _death(row: Record, last: LastError | None) -> tuple[UUID, datetime, str, str, str]:
    """Its dead letter shows how its last try failed; without any, that there was none."""
    if row["lost"]:
        last = LOST
    category, message = last or LastError(Category.TIMEOUT, why_expired(row["max_age_s"]))
    cause = fingerprint(row["kind"], row["place"], category, message)
    return row["id"], row["begun_at"], cause, message, category.value


def _expired(row: Record) -> ExpiredTask:
    return ExpiredTask(*(row[name] for name in ExpiredTask._fields))
