"""How long pages of dead letters take, first, middle and last, for each filter: `python -m bench.lists [--letters N]`.

Run by hand; wired into nothing. Fills a private PostgreSQL with a million dead letters of one org (and some of another
whose values are spread the other way round: the planner knows no orgs), then asks the store as the API does.
The rare values belong to the oldest letters, where they are hardest to find. Prints a table of medians in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from bench.postgres import BenchPostgres, database_name, database_of, postgres
from redrive.core.presets import PRESETS
from redrive.store import groups
from redrive.store.db import Database, Session
from redrive.store.dead_letters import DeadLetterFilter, _page, _total
from redrive.store.migrate import migrate
from redrive.store.orgs import ensure_org

LETTERS = 1_000_000
NOISE = 10  # per cent, of another org
LIMIT = 50
REPEATS = 7
RARE = 20_000  # one letter in so many has a rare value
ENDPOINT = UUID(int=1)
RARE_ENDPOINT = UUID(int=99)

# $1 org, $2 letters; then the tasks' policy, or: one in so many is rare, whether rare and frequent change places.
_NUMBERS = "(SELECT n, timestamptz '2026-01-01' + n * interval '1 s' AS at FROM generate_series(1, $2::int) n) g"
_EVENT = "md5($1::uuid::text || 'e' || n)::uuid"
_TASK = "md5($1::uuid::text || 't' || n)::uuid"
FILL = (
    f"""INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
        SELECT $1::uuid, {_EVENT}, 'order.shipped', 1, at, at, '{{"order": 7}}' FROM {_NUMBERS}""",
    f"""INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, reason, due_at,
                                  received_at, begun_at, updated_at, first_failed_at, last_failed_at, fence, attempts)
        SELECT $1::uuid, {_TASK}, {_EVENT}, $3::uuid, 'http', 'http', 'dead', 'order.shipped', 'exhausted', 'infinity',
               at, at, at, at, at, 1, 4 FROM {_NUMBERS}""",
    f"""INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, started_at, ended_at,
                                     error_message)
        SELECT $1::uuid, {_TASK}, 1, 0, 1, 'failed', at, at, 'HTTP 503 Service Unavailable' FROM {_NUMBERS}""",
    f"""INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, endpoint_id, event_type,
                                         external_system, reason, category, fingerprint, error_message,
                                         first_failed_at, failed_at, generation, created_at, updated_at)
        SELECT $1::uuid, {_TASK}, 'open', CASE WHEN rare THEN 'handler' ELSE 'http' END, {_EVENT},
               lpad(to_hex(CASE WHEN rare THEN 99 ELSE 1 + n % 5 END), 32, '0')::uuid,
               CASE WHEN rare THEN 'rare' WHEN n < $2 / 2 THEN 'old' ELSE 'type.' || n % 20 END,
               CASE WHEN rare THEN 'rare' WHEN n % 2 = 0 THEN 'erp' END,
               CASE WHEN rare THEN 'skipped' WHEN n % 3 = 0 THEN 'permanent' ELSE 'exhausted' END,
               CASE WHEN rare THEN 'configuration' WHEN n % 3 = 0 THEN 'client_error' ELSE 'server_error' END,
               CASE WHEN rare THEN 'rare' WHEN n % 10 < 4 THEN 'big' ELSE left(md5((n % 300)::text), 16) END,
               CASE WHEN rare THEN 'a needle' ELSE 'HTTP 503 Service Unavailable: order ' || n || ' was not taken' END,
               at, at, 0, at, at
          FROM {_NUMBERS}, LATERAL (SELECT (n < $2 / 100 AND n % ($3::int / 100) = 0) <> $4::bool AS rare) r""",
)

CASES: Sequence[tuple[str, dict[str, Any]]] = (
    ("none", {}),
    ("kind, frequent", {"kind": "http"}),
    ("kind, rare", {"kind": "handler"}),
    ("event_type, frequent", {"event_type": "old"}),
    ("event_type, rare", {"event_type": "rare"}),
    ("external_system, frequent", {"external_system": "erp"}),
    ("external_system, rare", {"external_system": "rare"}),
    ("endpoint_id, frequent", {"endpoint_id": ENDPOINT}),
    ("endpoint_id, rare", {"endpoint_id": RARE_ENDPOINT}),
    ("reason, frequent", {"reason": "exhausted"}),
    ("reason, rare", {"reason": "skipped"}),
    ("category, frequent", {"category": "server_error"}),
    ("category, rare", {"category": "configuration"}),
    ("fingerprint, frequent", {"fingerprint": "big"}),
    ("fingerprint, rare", {"fingerprint": "rare"}),
    ("q, frequent", {"q": "was not taken"}),
    ("q, rare", {"q": "needle"}),
    ("event_type and reason", {"event_type": "type.3", "reason": "permanent"}),
    ("that exclude each other", {"category": "server_error", "reason": "permanent"}),
    ("state without letters", {"state": "ignored", "kind": "http"}),
)


@dataclass(frozen=True, slots=True)
class Filled:
    db: Database
    superuser: asyncpg.Connection[asyncpg.Record]
    org_id: UUID


async def fill(server: BenchPostgres, url: str, letters: int) -> Filled:
    connection = await asyncpg.connect(url)
    await migrate(connection)
    await connection.close()
    engine_db = await Database.open(url, role="redrive_engine", size=1)
    orgs = [await ensure_org(engine_db, name, PRESETS, overridden=frozenset()) for name in ("big", "noise")]
    await engine_db.close()
    superuser = await asyncpg.connect(database_of(server._embedded.superuser_url, database_name(url)))
    await superuser.execute("SET session_replication_role = replica")  # neither triggers nor foreign keys
    for org_id, count, swapped in ((orgs[0], letters, False), (orgs[1], letters * NOISE // 100, True)):
        policy = await superuser.fetchval("SELECT id FROM redrive.policy WHERE org_id = $1 LIMIT 1", org_id)
        await superuser.execute(FILL[0], org_id, count)
        await superuser.execute(FILL[1], org_id, count, policy)
        await superuser.execute(FILL[2], org_id, count)
        await superuser.execute(FILL[3], org_id, count, RARE, swapped)
        await superuser.execute(
            "INSERT INTO redrive.counter (org_id, name, shard, n) VALUES ($1, 'dead.open', 0, $2)", org_id, count
        )
    await superuser.execute("VACUUM (ANALYZE)")
    return Filled(await Database.open(url, role="redrive_app", size=1), superuser, orgs[0])


async def median_ms(ask: Callable[[], Awaitable[object]]) -> float:
    took: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        await ask()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


async def place(filled: Filled, chosen: dict[str, Any], part: float) -> tuple[object, ...] | None:
    """The key before a page in the middle or at the end of the list with these filters."""
    fields = {"state": "open", **{name: value for name, value in chosen.items() if name != "q"}}
    where = " AND ".join(f"{name} = ${number}" for number, name in enumerate(fields, 2))
    if "q" in chosen:
        where += f" AND error_message ILIKE '%{chosen['q']}%'"
    of = f"FROM redrive.dead_letter WHERE org_id = $1 AND {where}"
    values = (filled.org_id, *fields.values())
    count = await filled.superuser.fetchval(f"SELECT count(*) {of}", *values)
    offset = max(int(count * part) - LIMIT - 1, 0)
    query = f"SELECT created_at, task_id {of} ORDER BY created_at DESC, task_id DESC OFFSET {offset} LIMIT 1"
    row = await filled.superuser.fetchrow(query, *values)
    return tuple(row) if row and offset else None


async def measure(filled: Filled) -> None:
    async def asked(ask: Callable[[Session], Awaitable[object]]) -> None:
        async with filled.db.tenant(filled.org_id) as session:
            await ask(session)

    print(f"{'filter':<28}{'first':>9}{'middle':>9}{'last':>9}{'total':>9}   ms, median of {REPEATS}")
    for name, fields in CASES:
        chosen = DeadLetterFilter(**fields)
        figures = []
        for part in (0.0, 0.5, 1.0):
            after = await place(filled, fields, part)
            figures.append(await median_ms(lambda: asked(lambda s: _page(s, chosen, LIMIT, after))))  # noqa: B023
        figures.append(await median_ms(lambda: asked(lambda s: _total(s, chosen))))  # noqa: B023
        print(f"{name:<28}" + "".join(f"{figure:>9.1f}" for figure in figures), flush=True)
    for name, fields in (("groups", {}), ("groups of one type", {"event_type": "type.3"})):
        chosen = DeadLetterFilter(**fields)
        took = await median_ms(lambda: asked(lambda s: groups.list_groups(s, chosen, limit=LIMIT)))  # noqa: B023
        print(f"{name:<28}{took:>9.1f}", flush=True)


async def main(letters: int) -> None:
    async with postgres() as server, server.database("lists") as url:
        began = time.monotonic()
        filled = await fill(server, url, letters)
        print(f"{letters} dead letters, filled in {time.monotonic() - began:.0f} s", flush=True)
        try:
            await measure(filled)
        finally:
            await filled.db.close()
            await filled.superuser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=LETTERS)
    asyncio.run(main(parser.parse_args().letters))
