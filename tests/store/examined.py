"""What `redrive doctor` sees in a database, as the tests of its examinations ask for it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.core.findings import Examined, Finding
from redrive.store.examinations.looking import Examination, Limits, Looking, examine
from redrive.store.examinations.queue import QUEUE
from redrive.store.examinations.schema import CATALOGUED, MIGRATIONS
from redrive.store.examinations.server import server_examinations, this_machines_clock
from redrive.store.examinations.upkeep import LOCKS, UPKEEP
from support.engine import Engine

# This server is quick and not durable (conftest.FAST_SETTINGS): that is found, and nothing else.
ALL = [*server_examinations(this_machines_clock, pooler=False), LOCKS, MIGRATIONS, *CATALOGUED, *UPKEEP, *QUEUE]
NOT_DURABLE = {"fsync is off.", "full_page_writes is off.", "synchronous_commit is off."}


async def made(url: str, examinations: Sequence[Examination] = ALL, **limits: object) -> dict[str, Examined]:
    looking = Looking(url, Limits(**limits))  # type: ignore[arg-type]
    try:
        return {one.name: one for one in await examine(looking, examinations)}
    finally:
        await looking.close()


def findings(examined: dict[str, Examined]) -> list[Finding]:
    return [finding for one in examined.values() for finding in one.findings]


async def in_two_hours(engine: Engine) -> datetime:
    now: datetime = await engine.sql.fetchval("SELECT clock_timestamp()")
    return now + timedelta(hours=2)
