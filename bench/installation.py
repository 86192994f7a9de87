"""A Redrive on a fresh database: what benches of our own side need of it. Real processes, real roles.

Used by bench.ours, bench.order, bench.workflows, bench.fairness and bench.recovery. What is timed is what a user runs;
only filling the queue and reading figures go through the store directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import asyncpg

from bench.delivery import Delivery, Worker
from bench.peers.base import vacuum_analyze
from bench.postgres import BenchPostgres, free_port
from bench.processes import Child, ProcessError, logging_to, module
from bench.receiver import Receiver
from redrive.app import prepare_database
from redrive.core.policy import Policy
from redrive.core.presets import PRESETS
from redrive.settings import load_settings
from redrive.store import events, policies
from redrive.store.audit import Act
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.endpoints import Endpoints, EndpointSpec
from redrive.store.orgs import ensure_org
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks

OPEN_TASKS = (
    "SELECT coalesce(sum(n), 0)::bigint FROM redrive.counter WHERE name IN ('task.waiting', 'task.leased', 'retrying')"
)
EVENT_TYPE = "bench.event"
MULTIPLY = """
    WITH one AS (SELECT t.*, e.occurred_at, e.body FROM redrive.task t
                   JOIN redrive.event e ON (e.org_id, e.id) = (t.org_id, t.event_id) WHERE t.endpoint_id = $2 LIMIT 1),
    made AS (
      INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
      SELECT one.org_id, redrive.uuid7(), one.event_type, 1, one.occurred_at, one.occurred_at, one.body
        FROM one, generate_series(1, $1::int) RETURNING org_id, id)
    INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                              due_at, received_at, begun_at, updated_at, attempts, first_failed_at, last_failed_at)
    SELECT m.org_id, redrive.uuid7(), m.id, one.endpoint_id, one.policy_id, one.kind, one.queue, 'waiting',
           one.event_type, CASE WHEN m.later THEN now() + interval '1 hour' ELSE one.due_at END, one.received_at,
           one.begun_at, one.updated_at, m.later::int, CASE WHEN m.later THEN now() END,
           CASE WHEN m.later THEN now() END
      FROM (SELECT made.*, $3::bool AND row_number() OVER () % 2 = 1 AS later FROM made) m, one"""
BATCH_EVENTS = 1_000
MAX_WAIT_S = 30.0
STOP_GRACE_S = 10.0
ACT = Act("bench")


class Installation:
    """`setup` prepares a database; `aclose` gives everything back but the database itself."""

    url: str
    key: str
    secret: str
    org_id: UUID
    engine: Database
    app: Database

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._open: list[Database] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, server: BenchPostgres, name: str) -> AsyncIterator[Self]:
        """One on a database of its own, for the length of the block."""
        async with server.database(name) as url:
            installation = cls()
            try:
                await installation.setup(url)
                yield installation
            finally:
                await installation.aclose()

    async def setup(self, url: str) -> None:
        self.url = url
        self._folder = Path(tempfile.mkdtemp(prefix="redrive-bench-ours-"))
        self.key = "rdk_" + secrets.token_urlsafe(32)
        self.secret = secrets.token_urlsafe(32)
        settings = load_settings(
            database_url=url, data_dir=self._folder, admin_key=self.key, secret_key=self.secret, allow_networks=[]
        )
        self.org_id = (await prepare_database(settings, url)).org_id
        self.engine = await Database.open(url, role="redrive_engine", size=4)
        self._open.append(self.engine)
        self.app = await Database.open(url, role="redrive_app", size=2)
        self._open.append(self.app)

    async def aclose(self) -> None:
        for database in self._open:
            await database.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # -- what is in it ---------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.engine, DatabaseClock())

    async def add_org(self, name: str) -> UUID:
        return await ensure_org(self.engine, name, PRESETS, overridden=frozenset())

    async def add_policy(self, name: str, spec: Mapping[str, Any], org_id: UUID | None = None) -> None:
        async with self.app.tenant(org_id or self.org_id) as session:
            await policies.put_policy(session, name, Policy.from_spec(spec), ACT)

    async def add_endpoint(self, spec: EndpointSpec, org_id: UUID | None = None) -> UUID:
        (endpoint_id,) = await self.add_endpoints([spec], org_id)
        return endpoint_id

    async def add_endpoints(self, specs: Sequence[EndpointSpec], org_id: UUID | None = None) -> list[UUID]:
        endpoints = Endpoints(Sealer.from_passphrase(self.secret))
        made: list[UUID] = []
        async with self.app.tenant(org_id or self.org_id) as session:
            for spec in specs:
                row, _ = await endpoints.create(session, spec, ACT)
                made.append(row["id"])
        return made

    async def accept(self, batch: Sequence[events.NewEvent]) -> None:
        """In batches, each one transaction."""
        for start in range(0, len(batch), BATCH_EVENTS):
            await events.accept(self.engine, batch[start : start + BATCH_EVENTS], DatabaseClock())

    async def multiply(self, endpoint_id: UUID, n: int, *, half_later: bool = False) -> None:
        """So many more like a task of this endpoint, as accept() writes them; or half of them retries of the future.

        Made inside the database: a million in less than a minute.
        """
        connection = await asyncpg.connect(self.url, server_settings={"role": "redrive_engine"})
        try:
            await connection.execute(MULTIPLY, n, endpoint_id, half_later)
        finally:
            await connection.close()

    async def rows(self, sql: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url, server_settings={"role": "redrive_engine"})
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    async def write_out(self) -> None:
        """Statistics for the planner, and nothing left to write: or what is timed would pay for what was filled in."""
        await vacuum_analyze(self.url)
        owner = await asyncpg.connect(self.url)
        try:
            await owner.execute("CHECKPOINT")
        finally:
            await owner.close()

    # -- what runs -------------------------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        return {
            "REDRIVE_DATABASE_URL": self.url,
            "REDRIVE_DATA_DIR": str(self._folder),
            "REDRIVE_SECRET_KEY": self.secret,
            "REDRIVE_ADMIN_KEY": self.key,
            "REDRIVE_ALLOW_NETWORKS": "127.0.0.0/8",
            "REDRIVE_LOG_LEVEL": "error",
        }

    def delivery(self, n: int, receiver: Receiver, processes: int = 1, *, timeout_s: float = 90.0) -> Delivery:
        worker = Worker(module("redrive.cli.main", "worker"), self.env)
        url = self.url + ("&" if "?" in self.url else "?") + "role=redrive_engine"  # row-level security: see all orgs
        return Delivery("redrive", n, worker, receiver, processes, url, OPEN_TASKS, timeout_s)

    @contextlib.asynccontextmanager
    async def serving(
        self, *flags: str, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> AsyncIterator[tuple[Child, str]]:
        """`redrive serve`: the API, and a worker unless told otherwise. Its process and its address."""
        port = free_port()
        argv: Sequence[str | Path] = module("redrive.cli.main", "serve", "--port", port, *flags)
        if log is not None:
            argv = logging_to(log, argv)
        child = await Child.start("redrive serve", argv, env={**self.env, **(env or {})}, ready="Redrive")
        try:
            await _answers(port)
            yield child, f"http://127.0.0.1:{port}"
        finally:
            await child.stop(grace_s=STOP_GRACE_S)


async def _answers(port: int) -> None:
    deadline = time.monotonic() + MAX_WAIT_S
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if b" 200 " in answer[:20]:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise ProcessError("redrive serve did not get ready")
        await asyncio.sleep(0.05)


# -- its processes, seen from outside ----------------------------------------------------------------------------------


def children_named(parent: int, word: str) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and word in (stat.parent / "cmdline").read_text():
                found.append(int(stat.parent.name))
    return found


def rss_mb(pid: int) -> float:
    for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """Processor time that a process has taken so far."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
