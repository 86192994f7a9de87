"""Numbers over ten million finished tasks, and over ten thousand: `python -m bench.observability [--small]`.

Run by hand; wired into nothing. Two installations on a private PostgreSQL, real `redrive serve` processes, each with
four orgs whose tasks ended over the last 25 days: events, tasks and dead letters as real rows, written in large
statements with every trigger on, rolled up and swept as in any installation. (Attempts are left out: nothing that is
asked here reads them.) Then the dashboard and `GET /v1/stats` are asked of both in turn. Prints medians in milliseconds
and their ratio. `--small` compares 1 000 with 100 000. Durability is off while it fills: nothing here is about writing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import asyncpg

from bench.alone import Measured
from bench.pages import Site, _sign_in, _time
from bench.peers.base import vacuum_analyze
from bench.peers.systems import peers
from bench.postgres import BenchPostgres, database_name, database_of, free_port
from bench.processes import Child, module
from bench.report import NUMBERS as PATHS
from bench.report import render, write_results
from bench.run import about, say
from redrive.app import open_sweeper, prepare_database
from redrive.core.presets import PRESETS
from redrive.settings import Settings, load_settings
from redrive.store.audit import Act
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.orgs import ensure_org
from redrive.store.rollups import Roller

FEW, MANY = 10_000, 10_000_000
ORGS = 4
DAYS = 25  # delivered tasks are kept for 30
STATEMENT_ROWS = 50_000
WRITERS = 2
ROLLED_AT_ONCE = 20_000
GOAL = 1.3
REQUESTS = 200  # of each: a page takes so little that what else the machine does is most of a difference
SCENARIO = "observability"
SETTINGS = {
    "max_connections": "100",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "4GB",
    "shared_buffers": "2GB",
}
# Rows are looked up by their keys, as the engine does it: the planner knows nothing of tables that have just been made.
PLANS = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}

# $1 org, $2 and $3 which of them, $4 of how many, $5 now. They end on the same few thousand moments, evenly spread.
_ROWS = f"""
  SELECT n, n % 10 AS kind, 'order.' || n % 10 AS type, 'system ' || n % 4 AS system,
         (lpad(to_hex(n), 12, '0') || repeat('e', 20))::uuid AS event_id,
         (lpad(to_hex(n), 12, '0') || repeat('a', 20))::uuid AS id,
         date_bin('5 minutes', $5::timestamptz - interval '{DAYS} days' * (1 - n::float8 / $4::int), 'epoch') AS at
    FROM generate_series($2::int, $3::int) n"""
FILL = (
    f"""INSERT INTO redrive.event (org_id, id, event_type, tasks, external_system, occurred_at, received_at, body)
        SELECT $1::uuid, event_id, type, 1, system, at, at, '{{"order": 7}}' FROM ({_ROWS}) r""",
    f"""INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                                  external_system, due_at, received_at, begun_at, updated_at, leased_at, lease_ends_at,
                                  worker_id, fence, attempts)
        SELECT $1::uuid, r.id, event_id, e.id, p.id, 'http', 'http', 'leased', type, system,
               at, at, at, at, at, at, gen_random_uuid(), 1, (r.kind = 3)::int
          FROM ({_ROWS}) r
          JOIN redrive.endpoint e ON e.org_id = $1 AND e.name = 'endpoint ' || r.kind % 5
          JOIN redrive.policy p ON p.org_id = $1 AND p.name = 'integration' AND p.retired_at IS NULL""",
    f"""UPDATE redrive.task t SET state = CASE WHEN n % 100 = 99 THEN 'dead' ELSE 'succeeded' END,
               reason = CASE WHEN n % 100 = 99 THEN 'exhausted' END, attempts = t.attempts + 1, worker_id = NULL,
               lease_ends_at = NULL, due_at = 'infinity', updated_at = at + r.kind * interval '3 s'
          FROM ({_ROWS}) r WHERE t.org_id = $1 AND t.id = r.id""",
    f"""INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, endpoint_id, event_type,
                                         external_system, reason, category, fingerprint, error_message,
                                         first_failed_at, failed_at,
                                         generation, created_at, updated_at)
        SELECT t.org_id, t.id, 'open', 'http', t.event_id, t.endpoint_id, t.event_type, t.external_system, 'exhausted',
               'server_error', 'f' || n / 100 % 20, 'HTTP 503', at, at, 0, at, at
          FROM ({_ROWS}) r JOIN redrive.task t ON t.org_id = $1 AND t.id = r.id WHERE n % 100 = 99""",
)
ENDPOINTS = """
  INSERT INTO redrive.endpoint (org_id, id, name, url, event_types, type_patterns, secret_sealed)
  SELECT $1, gen_random_uuid(), 'endpoint ' || n, 'http://127.0.0.1:9/', '{a}', '{a}', ''
    FROM generate_series(0, 4) n"""


INDEXES = """
  SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS made
    FROM pg_index i
   WHERE i.indrelid IN ('redrive.event'::regclass, 'redrive.task'::regclass, 'redrive.dead_letter'::regclass)
     AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)"""


@contextlib.asynccontextmanager
async def without_indexes(connection: asyncpg.Connection[asyncpg.Record]) -> AsyncIterator[None]:
    """But for the keys: to make an index of many rows takes a fraction of adding each to it."""
    indexes = await connection.fetch(INDEXES)
    for index in indexes:
        await connection.execute(f"DROP INDEX {index['name']}")
    yield
    for index in indexes:
        await connection.execute(index["made"])


async def fill(server: BenchPostgres, url: str, orgs: list[UUID], tasks: int) -> None:
    superuser = database_of(server._embedded.superuser_url, database_name(url))
    each = tasks // len(orgs)
    todo = [(org, low, min(low + STATEMENT_ROWS, each) - 1) for low in range(0, each, STATEMENT_ROWS) for org in orgs]
    now = time.time()

    async def write() -> None:
        connection = await asyncpg.connect(superuser, server_settings=PLANS)
        at = await connection.fetchval("SELECT to_timestamp($1)", now)
        while todo:
            org, low, high = todo.pop(0)
            for statement in FILL:
                await connection.execute(statement, org, low, high, each, at)
        await connection.close()

    connection = await asyncpg.connect(superuser)
    for org in orgs:
        await connection.execute(ENDPOINTS, org)
    async with without_indexes(connection):
        await asyncio.gather(*(write() for _ in range(WRITERS)))
    await connection.close()
    await _settle(url)
    await vacuum_analyze(url)


async def _settle(url: str) -> None:
    """What the jobs of a running installation would have done by now: rolled up, folded."""
    engine = await Database.open(url, role="redrive_engine", size=1)
    while await Roller(engine, DatabaseClock()).roll(ROLLED_AT_ONCE):
        pass
    await engine.close()
    async with open_sweeper(Settings(database_url=url), url, Act("engine")) as sweeper:
        for org in await sweeper.orgs(0.0):
            while (batch := await sweeper.batch(org._replace(until=None), None)) and batch.place is not None:
                pass  # none of the tasks is so old that it would go: they need not be looked through


@contextlib.asynccontextmanager
async def site(server: BenchPostgres, tasks: int) -> AsyncIterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="redrive-bench-observability-"))
    secret, port = secrets.token_urlsafe(32), free_port()
    try:
        async with server.database("observability") as url:
            settings = load_settings(database_url=url, data_dir=folder, secret_key=secret)
            org_id = (await prepare_database(settings, url)).org_id
            engine = await Database.open(url, role="redrive_engine", size=1)
            others = [await ensure_org(engine, f"org {n}", PRESETS, overridden=frozenset()) for n in range(1, ORGS)]
            await engine.close()
            began = time.monotonic()
            await fill(server, url, [org_id, *others], tasks)
            say(f"{tasks:,} finished tasks written in {time.monotonic() - began:.0f} s")
            env = {"REDRIVE_DATABASE_URL": url, "REDRIVE_DATA_DIR": str(folder), "REDRIVE_SECRET_KEY": secret}
            argv = module("redrive.cli.main", "serve", "--no-worker", "--port", port)
            child = await Child.start("redrive serve", argv, env=env | {"REDRIVE_LOG_LEVEL": "error"}, ready="Redrive")
            try:
                yield Site(tasks, port, await _sign_in(url, org_id), PATHS)
            finally:
                await child.stop(grace_s=10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def measure(few: int, many: int, found: Measured) -> str:
    """Notes a run each; answers the server's version."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-bench-pg-", dir="/tmp"))
    folder.chmod(0o755)  # as root, the server runs under an account of its own
    embedded = await EmbeddedPostgres.start(folder, settings=SETTINGS)
    try:
        server = BenchPostgres(embedded, "")
        async with site(server, few) as small, site(server, many) as large:
            await asyncio.to_thread(_time, small, large, requests=REQUESTS)
            for variant, asked in (("few", small), ("many", large)):
                found.note(variant, asked.run())
        connection = await asyncpg.connect(embedded.url)
        version = str(await connection.fetchval("SHOW server_version"))
        await connection.close()
        return version
    finally:
        await embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="1 000 against 100 000; writes no files")
    small = parser.parse_args().small
    found = Measured(SCENARIO)
    version = asyncio.run(measure(*((1_000, 100_000) if small else (FEW, MANY)), found))
    found.compare("many", "few", [f"{name}_ms" for name in PATHS])
    say(f"wanted: each ratio about 1, at most {GOAL}")
    if not small:
        write_results(found.results, about(version))
        say(f"written: bench/results/{SCENARIO}.json, docs/{render(peers()).name}")


if __name__ == "__main__":
    main()
