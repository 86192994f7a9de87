"""What the janitor does to the database: find what may go, keep it in the archive if there is one, remove it. Before
that, what waited too long dies (store.expiry).

Each batch is a transaction of its own that removes events whole, and speaks as redrive_janitor: a role that may see and
remove, and nothing else. Called by engine.janitor and by `redrive retention run`, through the port Sweeper.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from redrive.core.ports import Floor
from redrive.core.sweep import Batch, Expiries, Swept, SweptOrg
from redrive.store import audit
from redrive.store.archive import Archive
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.endpoint_history import HISTORY_TTL
from redrive.store.expiry import Expiry
from redrive.store.rollups import BATCH_FORGOTTEN, KEPT_S

BATCH_EVENTS = 500  # looked at; as many go at most
CLAIM_TTL_S = 7 * 86_400.0  # idempotency keys of things with ids of their own
OPERATION_TTL_S = 90 * 86_400.0  # from its end; `redrive check` looks at none that is older
BATCH_OPERATIONS = 20
BATCH_ITEMS = 2_000
BATCH_RUNS = 50
PULSE_FOLDS_AFTER_S = 2 * 3_600.0  # minutes are shown for an hour, see core.pulse
PULSE_SHOWN_S = 8 * 86_400.0
BATCH_MINUTES = 2_000
BATCH_COUNTS = 2_000  # of causes in shards
WORKER_TTL_S = 86_400.0
JOB_TTL_S = 86_400.0
BATCH_HISTORY = 5_000
BATCH_LANES = 5_000
GAP_TTL_S = 365 * 86_400.0  # of deaths that no delivery of their lane has told of
NOTICE_TTL_S = 30 * 86_400.0  # of those that were told
ALERT_TTL_S = 90 * 86_400.0  # from their end

_START = Floor(datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))


class Retention:
    """core.ports.Sweeper on PostgreSQL. `dry_run`: nothing is written, neither here nor to the archive.

    Without `expiry` it removes only.
    """

    def __init__(
        self,
        db: Database,
        clock: Clock,
        act: Act,
        *,
        archive: Archive | None = None,
        expiry: Expiry | None = None,
        dry_run: bool = False,
    ) -> None:
        self._db = db
        self._clock = clock
        self._act = act
        self._archive = archive
        self._expiry = expiry
        self._dry_run = dry_run

    async def forget_workers(self) -> None:
        if not self._dry_run:
            await self._db.execute("forget_workers", self._clock.now(), WORKER_TTL_S)

    async def forget_jobs(self) -> None:
        if not self._dry_run:
            await self._db.execute("forget_jobs", self._clock.now(), JOB_TTL_S)

    async def forget_history(self) -> None:
        await self._forget("forget_history", BATCH_HISTORY, self._clock.now(), HISTORY_TTL.total_seconds())

    async def forget_lanes(self) -> None:
        await self._forget("forget_gaps", BATCH_LANES, self._clock.now(), GAP_TTL_S)
        await self._forget("forget_lanes", BATCH_LANES)

    async def _forget(self, name: str, most: int, *terms: object) -> None:
        """In batches, each a transaction of its own."""
        gone = 0 if self._dry_run else most
        while gone == most:
            row = await self._db.fetchrow(name, *terms, most)
            gone = row["n"] if row else 0

    async def orgs(self, rested_s: float) -> list[SweptOrg]:
        rows = await self._db.fetch("orgs_to_sweep", self._clock.now(), rested_s)
        return [SweptOrg(*(row[name] for name in SweptOrg._fields)) for row in rows]

    async def begin(self, org: SweptOrg, rested_s: float) -> bool:
        if self._dry_run:
            return True
        return await self._db.fetchrow("begin_sweep", org.org_id, org.now, rested_s) is not None

    async def expire(self, org: SweptOrg, place: Floor | None) -> Expiries | None:
        return Expiries(0, [], None) if self._expiry is None else await self._expiry.batch(org, place)

    async def batch(self, org: SweptOrg, place: Floor | None) -> Batch | None:
        has_counts = await self._fold_letter_counts(org)
        async with self._db.tenant(org.org_id) as session:
            leads = await session.fetchrow("lead_sweep")
            if leads is None or not leads["ours"]:
                return None
            after = place or _START
            swept = await self._remove_claims(session, org, is_first=place is None)
            has_more = swept.idempotency_keys == BATCH_EVENTS and not self._dry_run
            operations, is_last = await self._remove_operations(session, org, is_first=place is None)
            notices = await self._remove_notices(session, org, is_first=place is None)
            alerts = await self._remove_alerts(session, org, is_first=place is None)
            swept = swept.plus(Swept(operations=operations, notices=notices, alerts=alerts))
            is_last = is_last and (max(notices, alerts) < BATCH_EVENTS or self._dry_run)
            has_more = await self._fold_pulse(session, org) or has_counts or has_more or not is_last
            has_more = await self._forget_rollups(session, org) or has_more
            runs = await self._remove_runs(session, org, is_first=place is None)
            swept = swept.plus(runs)
            has_more = has_more or (runs.runs == BATCH_RUNS and not self._dry_run)
            seen = await self._pick(session, org, after)
            picked = [row["id"] for row in seen if row["goes"]]
            if picked:
                swept = swept.plus(await self._remove(session, org, picked))
        if seen:
            after = Floor(seen[-1]["received_at"], seen[-1]["id"])
        return Batch(swept, after if has_more or len(seen) == BATCH_EVENTS else None)

    async def conclude(self, org: SweptOrg, swept: Swept) -> None:
        if self._dry_run:
            return
        async with self._db.tenant(org.org_id) as session:
            await audit.record(session, self._act, "retention.delete", "org", org.org_id, after=swept.removed())

    async def _pick(self, session: Session, org: SweptOrg, after: Floor) -> list[Record]:
        if org.until is None:
            return []
        return await session.fetch(
            "sweep_pick",
            org.org_id,
            org.now,
            org.until,
            *(after.due_at, after.task_id),
            *(org.acked_s, org.received_s),
            BATCH_EVENTS,
        )

    async def _remove_claims(self, session: Session, org: SweptOrg, *, is_first: bool) -> Swept:
        if not self._dry_run:
            row = await session.fetchrow("delete_claims", org.org_id, org.now, CLAIM_TTL_S, BATCH_EVENTS)
        elif is_first:
            row = await session.fetchrow("count_claims", org.org_id, org.now, CLAIM_TTL_S)
        else:
            return Swept()
        return Swept(idempotency_keys=row["n"] if row else 0)

    async def _remove_operations(self, session: Session, org: SweptOrg, *, is_first: bool) -> tuple[int, bool]:
        """How many went, and whether those were the last."""
        terms = (org.org_id, org.now, OPERATION_TTL_S)
        if self._dry_run:
            row = await session.fetchrow("count_old_operations", *terms) if is_first else None
            return (row["n"] if row else 0), True
        row = await session.fetchrow("delete_operations", *terms, BATCH_ITEMS, BATCH_OPERATIONS)
        assert row is not None
        return row["operations"], not (row["operations"] or row["items"])

    async def _remove_notices(self, session: Session, org: SweptOrg, *, is_first: bool) -> int:
        terms = (org.org_id, org.now, NOTICE_TTL_S)
        if not self._dry_run:
            row = await session.fetchrow("delete_notices", *terms, BATCH_EVENTS)
        else:
            row = await session.fetchrow("count_old_notices", *terms) if is_first else None
        return row["n"] if row else 0

    async def _remove_alerts(self, session: Session, org: SweptOrg, *, is_first: bool) -> int:
        terms = (org.org_id, org.now, ALERT_TTL_S)
        if not self._dry_run:
            row = await session.fetchrow("delete_alerts", *terms, BATCH_EVENTS)
        else:
            row = await session.fetchrow("count_old_alerts", *terms) if is_first else None
        return row["n"] if row else 0

    async def _remove_runs(self, session: Session, org: SweptOrg, *, is_first: bool) -> Swept:
        """Runs whole: with what their steps were given, their tries and their dead letters."""
        if self._dry_run:
            row = await session.fetchrow("count_old_runs", org.org_id, org.now) if is_first else None
            return Swept(runs=row["n"] if row else 0)
        held = await session.fetch("sweep_runs", org.org_id, org.now, BATCH_RUNS)
        if not held:
            return Swept()
        events = [event_id for run in held for event_id in run["events"]]
        if self._archive is not None:
            await self._archive.keep(org, session.stream("archive_events", org.org_id, events))
        swept = _swept(await session.fetchrow("delete_events", org.org_id, events))
        await session.execute("delete_runs", org.org_id, [run["id"] for run in held])
        return swept.plus(Swept(runs=len(held)))

    async def _fold_pulse(self, session: Session, org: SweptOrg) -> bool:
        """Whether there may be more to fold. Nothing is removed by it that anybody would miss: it is told nowhere."""
        if self._dry_run:
            return False
        terms = (PULSE_FOLDS_AFTER_S, PULSE_SHOWN_S, BATCH_MINUTES)
        row = await session.fetchrow("fold_pulse", org.org_id, org.now, *terms)
        return row is not None and row["n"] == BATCH_MINUTES

    async def _forget_rollups(self, session: Session, org: SweptOrg) -> bool:
        """Whether there may be more that is too old."""
        if self._dry_run:
            return False
        terms = (list(KEPT_S), list(KEPT_S.values()), BATCH_FORGOTTEN)
        row = await session.fetchrow("forget_rollups", org.org_id, org.now, *terms)
        return row is not None and row["n"] >= BATCH_FORGOTTEN

    async def _fold_letter_counts(self, org: SweptOrg) -> bool:
        """Whether there may be more to fold. In a short transaction of its own: whoever settles a death may wait."""
        if self._dry_run:
            return False
        async with self._db.tenant(org.org_id) as session:
            leads = await session.fetchrow("lead_sweep")
            if leads is None or not leads["ours"]:
                return False
            row = await session.fetchrow("fold_letter_counts", org.org_id, BATCH_COUNTS)
        return row is not None and row["n"] >= BATCH_COUNTS

    async def _remove(self, session: Session, org: SweptOrg, picked: Sequence[UUID]) -> Swept:
        if self._dry_run:
            return _swept(await session.fetchrow("sweep_count", org.org_id, picked))
        held = [row["id"] for row in await session.fetch("sweep_hold", org.org_id, org.now, picked)]
        if not held:
            return Swept()
        if self._archive is not None:
            # On disk before the commit: a crash in between archives a batch twice, never not at all.
            await self._archive.keep(org, session.stream("archive_events", org.org_id, held))
        return _swept(await session.fetchrow("delete_events", org.org_id, held))


def _swept(row: Record | None) -> Swept:
    assert row is not None
    return Swept(row["events"], row["tasks"], row["attempts"], row["dead_letters"], row["bytes"])
