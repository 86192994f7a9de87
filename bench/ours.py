"""Redrive's own side of the bench: real `redrive worker` and `redrive serve` processes on a fresh database.

Called by bench.scenarios. What is timed is what a user runs; only filling the queue and reading figures go through
the store directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import asyncpg

from bench.ceilings.ingest import event_body
from bench.delivery import Delivery, Worker
from bench.load import load
from bench.model import BODY_BYTES, Run, latency_figures
from bench.peers.base import vacuum_analyze
from bench.postgres import free_port
from bench.processes import Child, ProcessError, module
from bench.receiver import Receiver
from bench.wire import Pool, request_head
from redrive.app import prepare_database
from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.policy import Policy
from redrive.core.ports import HTTP_QUEUE, Exchange, Settlement
from redrive.settings import load_settings
from redrive.store import events, policies
from redrive.store.audit import Act
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.endpoints import Endpoints, EndpointSpec
from redrive.store.orgs import new_id
from redrive.store.retry_queue import RetryQueueFilter, list_retry_queue
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks

EVENT_TYPE = "bench.event"
OPEN_TASKS = (
    "SELECT coalesce(sum(n), 0)::bigint FROM redrive.counter WHERE name IN ('task.waiting', 'task.leased', 'retrying')"
)
LATENESS_DELAY_S = 3.0
BACKLOG_BATCH = 100
BACKLOG_WARM_UP = 10
BACKLOG_ROUNDS = 150
PAGE_ROWS = 50
PAGES = 200
PAGES_WARM_UP = 10
IDLE_PAUSE_S = 0.02
IDLE_WARM_UP = 20
IN_FLIGHT = 500
BATCH_EVENTS = 1_000
MAX_WAIT_S = 30.0
ACT = Act("bench")


@dataclass(slots=True)
class Ours:
    receiver: Receiver
    url: str = ""
    _folder: Path | None = None
    _engine: Database | None = None
    _app: Database | None = None
    _org: UUID | None = None
    _key: str = ""
    _secret: str = ""

    async def setup(self, url: str) -> None:
        self.url = url
        self._folder = Path(tempfile.mkdtemp(prefix="redrive-bench-ours-"))
        self._key = "rdk_" + secrets.token_urlsafe(32)
        self._secret = secrets.token_urlsafe(32)
        settings = load_settings(
            database_url=url, data_dir=self._folder, admin_key=self._key, secret_key=self._secret, allow_networks=[]
        )
        prepared = await prepare_database(settings, url)
        self._org = prepared.org_id
        self._engine = await Database.open(url, role="redrive_engine", size=4)
        self._app = await Database.open(url, role="redrive_app", size=2)
        at_once = Policy.from_spec({"kind": "list", "delays_s": [0], "max_retries": 5})
        later = Policy.from_spec({"kind": "list", "delays_s": [LATENESS_DELAY_S], "max_retries": 5})
        async with self._app.tenant(self._org) as session:
            await policies.put_policy(session, "at-once", at_once, ACT)
            await policies.put_policy(session, "later", later, ACT)
            spec = EndpointSpec("receiver", self.receiver.url, (EVENT_TYPE,), policy="at-once")
            await Endpoints(Sealer.from_passphrase(self._secret)).create(session, spec, ACT)

    async def aclose(self) -> None:
        for database in (self._app, self._engine):
            if database is not None:
                await database.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # -- measurements ----------------------------------------------------------------------------------------------

    async def deliver(self, n: int, *, processes: int, flaky: bool) -> Run:
        await self.receiver.reset(flaky=flaky)
        await self._fill(n)
        await vacuum_analyze(self.url)
        return await self._delivery(n, processes).run()

    async def ingest_single(self, seconds: float, clients: int) -> Run:
        async with self._serving("--no-worker") as (_, base):
            return await load(
                "redrive",
                f"{base}/v1/events",
                body=event_body(),
                headers={"content-type": "application/json", "x-api-key": self._key},
                clients=clients,
                seconds=seconds,
            )

    async def ingest_batch(self, seconds: float, clients: int) -> Run:
        body = b"\n".join([event_body()] * BATCH_EVENTS)
        async with self._serving("--no-worker") as (_, base):
            return await load(
                "redrive",
                f"{base}/v1/events/batch",
                body=body,
                headers={"content-type": "application/x-ndjson", "x-api-key": self._key},
                clients=clients,
                seconds=seconds,
                per_request=BATCH_EVENTS,
            )

    async def idle_latency(self, n: int) -> Run:
        """From the first byte of POST /v1/events to the delivery's arrival, one at a time."""
        await self.receiver.reset()
        async with self._serving() as (_, base):
            pool = await Pool.open(f"{base}/v1/events", 1)
            headers = {"content-type": "application/json", "x-api-key": self._key}
            sent: list[float] = []
            begin = time.perf_counter()
            for index in range(n + IDLE_WARM_UP):
                await asyncio.sleep(IDLE_PAUSE_S)
                head = request_head(f"{base}/v1/events", headers, BODY_BYTES)
                sent.append(time.monotonic())
                (status,) = await pool.send_all([head + b"\r\n" + event_body()])
                if status != 202:
                    raise ProcessError(f"the API answered {status}")
                await self.receiver.wait_for(index + 1, timeout_s=MAX_WAIT_S)
            seconds = time.perf_counter() - begin
        arrived = [at for _, at, _ in await self.receiver.arrivals()]
        waits_ms = [(at - was) * 1000 for was, at in zip(sent, arrived, strict=True)]
        return Run.timed("redrive", n, seconds, latency_figures(waits_ms[IDLE_WARM_UP:]))

    async def lateness(self, n: int) -> Run:
        """How late retries begin that all fall due at once: by the database's own clock."""
        await self.receiver.reset(flaky=True)
        await self._fill(n, policy="later")
        run = await self._delivery(n, 1).run()
        scheduled = await self._scheduled_ms(n)
        rows = await self._rows(
            """SELECT extract(epoch FROM b.started_at - a.ended_at)::float8 - $1 AS late_s
                 FROM redrive.attempt a JOIN redrive.attempt b USING (org_id, task_id)
                WHERE a.fence = 1 AND b.fence = 2""",
            LATENESS_DELAY_S,
        )
        figures = {f"scheduled_{name}": value for name, value in latency_figures(scheduled).items()}
        late = latency_figures([row["late_s"] * 1000 for row in rows])
        return Run.timed("redrive", n, run.seconds, late | figures)

    async def _scheduled_ms(self, n: int) -> list[float]:
        """From each first answer of the receiver, a failure, to the time that its retry was written down."""
        failed_at = {job: at for job, at, status in await self.receiver.arrivals() if status == 503}
        to_monotonic_s = time.monotonic() - time.time()
        rows = await self._rows(
            """SELECT t.event_id, extract(epoch FROM a.ended_at)::float8 AS at_s
                 FROM redrive.attempt a JOIN redrive.task t ON t.org_id = a.org_id AND t.id = a.task_id
                WHERE a.fence = 1 AND a.result = 'failed'"""
        )
        if len(rows) != n or len(failed_at) != n:
            raise ProcessError(f"{len(failed_at)} of {n} failed, {len(rows)} of them were scheduled again")
        return [(row["at_s"] + to_monotonic_s - failed_at[str(row["event_id"])]) * 1000 for row in rows]

    async def status_under_load(self, n: int, seconds: float, clients: int) -> Run:
        """GET …/status of many events by many clients, while a worker delivers as fast as it can."""
        await self.receiver.reset()
        await self._fill(n)
        rows = await self._rows("SELECT event_id FROM redrive.task LIMIT 10000")
        async with self._serving() as (_, base):
            return await load(
                "redrive",
                base,
                body=b"",
                headers={"x-api-key": self._key},
                clients=clients,
                seconds=seconds,
                expect=200,
                paths=[f"/v1/events/{row['event_id']}/status" for row in rows],
            )

    async def backlog(self, waiting: int) -> Run:
        """Claim and settle beside so many waiting tasks, half of them in the future; lists and status beside them.

        Each round takes as many as were just added, so that the backlog keeps its size; the median round counts.
        """
        await self._backlog(waiting)
        assert self._engine is not None
        tasks, worker_id = Tasks(self._engine, DatabaseClock()), new_id()
        exchange = Exchange(self.receiver.url, None, 200, None, b"ok")
        rounds_s: list[float] = []
        for _ in range(BACKLOG_WARM_UP + BACKLOG_ROUNDS):
            await self._fill(BACKLOG_BATCH)
            began = time.perf_counter()
            claim = await tasks.claim(
                queues=[HTTP_QUEUE], floors={}, limit=BACKLOG_BATCH, worker_id=worker_id, margin_s=15.0
            )
            await tasks.settle([Settlement(job, Success(200), Succeed(), exchange, 0.001) for job in claim.jobs])
            rounds_s.append(time.perf_counter() - began)
            if len(claim.jobs) != BACKLOG_BATCH:
                raise ProcessError(f"claimed {len(claim.jobs)} of {BACKLOG_BATCH}")
        extra = {"list_ms": await self._list_ms(), "status_ms": await self._status_ms()}
        return Run.timed("redrive", BACKLOG_BATCH, statistics.median(rounds_s[BACKLOG_WARM_UP:]), extra)

    async def pinned_snapshot(self, n: int) -> tuple[Run, Run]:
        """Delivery without and with a transaction that keeps every dead row alive."""
        free = await self.deliver(n, processes=1, flaky=False)
        await self.receiver.reset()
        await self._fill(n)
        await vacuum_analyze(self.url)
        holder = await asyncpg.connect(self.url)
        try:
            async with holder.transaction(isolation="repeatable_read"):
                await holder.fetchval("SELECT count(*) FROM pg_class")
                pinned = await self._delivery(n, 1).run()
        finally:
            await holder.close()
        return free, pinned

    async def memory(self) -> Run:
        """Resident memory with IN_FLIGHT deliveries held open, and of the API after 100 000 events."""
        await self.receiver.reset(delay_ms=4_000)
        await self._fill(IN_FLIGHT)
        began = time.perf_counter()
        async with self._serving() as (server, base):
            deadline = time.monotonic() + MAX_WAIT_S
            while (await self.receiver.counts())["requests"] < 200 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            worker_mb = max(_rss_mb(pid) for pid in _children_named(server.pid, "worker"))
            await self.receiver.reset()
            body = b"\n".join([event_body()] * BATCH_EVENTS)
            headers = {"content-type": "application/x-ndjson", "x-api-key": self._key}
            pool = await Pool.open(f"{base}/v1/events/batch", 1)
            head = request_head(f"{base}/v1/events/batch", headers, len(body))
            figures: dict[str, float] = {}
            for sent in range(1, 101):
                (status,) = await pool.send_all([head + b"\r\n" + body])
                if status != 202:
                    raise ProcessError(f"the API answered {status}")
                if sent in (20, 100):
                    (api,) = _children_named(server.pid, "api")
                    figures[f"api_mb_after_{sent}k"] = _rss_mb(api)
            worker_mb = max(worker_mb, *(_rss_mb(pid) for pid in _children_named(server.pid, "worker")))
        figures |= {"worker_mb": worker_mb, "api_mb": figures["api_mb_after_100k"]}
        return Run.timed("redrive", IN_FLIGHT, time.perf_counter() - began, figures)

    # -- parts -----------------------------------------------------------------------------------------------------

    @property
    def _env(self) -> dict[str, str]:
        return {
            "REDRIVE_DATABASE_URL": self.url,
            "REDRIVE_DATA_DIR": str(self._folder),
            "REDRIVE_SECRET_KEY": self._secret,
            "REDRIVE_ADMIN_KEY": self._key,
            "REDRIVE_ALLOW_NETWORKS": "127.0.0.0/8",
            "REDRIVE_LOG_LEVEL": "error",
        }

    def _delivery(self, n: int, processes: int) -> Delivery:
        worker = Worker(module("redrive.cli.main", "worker"), self._env)
        url = self.url + ("&" if "?" in self.url else "?") + "role=redrive_engine"  # row-level security: see all orgs
        return Delivery("redrive", n, worker, self.receiver, processes, url, OPEN_TASKS)

    @contextlib.asynccontextmanager
    async def _serving(self, *flags: str) -> AsyncIterator[tuple[Child, str]]:
        port = free_port()
        argv = module("redrive.cli.main", "serve", "--port", port, *flags)
        child = await Child.start("redrive serve", argv, env=self._env, ready="Redrive")
        try:
            await _answers(port)
            yield child, f"http://127.0.0.1:{port}"
        finally:
            await child.stop(grace_s=10)

    async def _fill(self, n: int, policy: str | None = None) -> None:
        assert self._engine is not None
        assert self._org is not None
        body = event_body()
        for start in range(0, n, BATCH_EVENTS):
            batch = [
                events.NewEvent(self._org, new_id(), EVENT_TYPE, body, policy=policy)
                for _ in range(min(BATCH_EVENTS, n - start))
            ]
            await events.accept(self._engine, batch, DatabaseClock())

    async def _backlog(self, waiting: int) -> None:
        """Rows as accept() writes them, made inside the database: half due, half retries of the future."""
        await self._fill(1)
        connection = await asyncpg.connect(self.url, server_settings={"role": "redrive_engine"})
        try:
            await connection.execute(
                """
                WITH one AS (SELECT t.*, e.occurred_at, e.body FROM redrive.task t
                               JOIN redrive.event e ON (e.org_id, e.id) = (t.org_id, t.event_id) LIMIT 1),
                made AS (
                  INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
                  SELECT one.org_id, redrive.uuid7(), one.event_type, 1, one.occurred_at, one.occurred_at, one.body
                    FROM one, generate_series(1, $1::int) RETURNING org_id, id)
                INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                                          due_at, received_at, begun_at, updated_at, attempts, first_failed_at,
                                          last_failed_at)
                SELECT m.org_id, redrive.uuid7(), m.id, one.endpoint_id, one.policy_id, one.kind, one.queue, 'waiting',
                       one.event_type, CASE WHEN m.n % 2 = 0 THEN one.due_at ELSE now() + interval '1 hour' END,
                       one.received_at, one.begun_at, one.updated_at, m.n % 2, CASE WHEN m.n % 2 = 1 THEN now() END,
                       CASE WHEN m.n % 2 = 1 THEN now() END
                  FROM (SELECT made.*, row_number() OVER () AS n FROM made) m, one
                """,
                waiting,
            )
        finally:
            await connection.close()
        await vacuum_analyze(self.url)
        owner = await asyncpg.connect(self.url)
        try:
            await owner.execute("CHECKPOINT")  # or the rounds would pay for writing the backlog out
        finally:
            await owner.close()

    async def _list_ms(self) -> float:
        """A page of the retry queue, from the first one on: median."""
        assert self._app is not None
        assert self._org is not None
        times, after = [], None
        for _ in range(PAGES_WARM_UP + PAGES):
            began = time.perf_counter()
            async with self._app.tenant(self._org) as session:
                page = await list_retry_queue(session, RetryQueueFilter(), limit=PAGE_ROWS, after=after)
            times.append((time.perf_counter() - began) * 1000)
            after = page.next_key  # the end of a short list: from the start again
        return statistics.median(times[PAGES_WARM_UP:])

    async def _status_ms(self) -> float:
        assert self._app is not None
        assert self._org is not None
        ids = await self._rows("SELECT event_id FROM redrive.task LIMIT 200")
        times = []
        for row in ids:
            began = time.perf_counter()
            async with self._app.tenant(self._org) as session:
                await events.get_event_status(session, row["event_id"])
            times.append((time.perf_counter() - began) * 1000)
        return statistics.median(times)

    async def _rows(self, sql: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url, server_settings={"role": "redrive_engine"})
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()


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


def _children_named(parent: int, word: str) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and word in (stat.parent / "cmdline").read_text():
                found.append(int(stat.parent.name))
    return found


def _rss_mb(pid: int) -> float:
    for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
