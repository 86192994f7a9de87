"""Redrive's own side of the bench: real `redrive worker` and `redrive serve` processes on a fresh database.

Called by bench.scenarios. What is timed is what a user runs; only filling the queue and reading figures go through
the store directly.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from uuid import UUID

import asyncpg

from bench.ceilings.ingest import event_body
from bench.installation import BATCH_EVENTS, EVENT_TYPE, MAX_WAIT_S, Installation, children_named, rss_mb
from bench.load import load
from bench.model import BODY_BYTES, Run, latency_figures
from bench.peers.base import vacuum_analyze
from bench.processes import ProcessError
from bench.receiver import Receiver
from bench.wire import Pool, request_head
from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.ports import HTTP_QUEUE, NO_ENDPOINT, Ask, Exchange, Place, Settlement, Stream
from redrive.engine.outlet import START
from redrive.engine.worker import DEFAULT_MARGIN_S
from redrive.store import events
from redrive.store.endpoints import EndpointSpec
from redrive.store.orgs import new_id
from redrive.store.retry_queue import RetryQueueFilter, list_retry_queue

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


class Ours(Installation):
    def __init__(self, receiver: Receiver) -> None:
        super().__init__()
        self.receiver = receiver
        self._endpoint: UUID = NO_ENDPOINT

    async def setup(self, url: str) -> None:
        await super().setup(url)
        await self.add_policy("at-once", {"kind": "list", "delays_s": [0], "max_retries": 5})
        await self.add_policy("later", {"kind": "list", "delays_s": [LATENESS_DELAY_S], "max_retries": 5})
        spec = EndpointSpec("receiver", self.receiver.url, (EVENT_TYPE,), policy="at-once")
        self._endpoint = await self.add_endpoint(spec)

    # -- measurements ----------------------------------------------------------------------------------------------

    async def deliver(self, n: int, *, processes: int, flaky: bool) -> Run:
        await self.receiver.reset(flaky=flaky)
        await self._fill(n)
        await vacuum_analyze(self.url)
        return await self.delivery(n, self.receiver, processes).run()

    async def ingest_single(self, seconds: float, clients: int) -> Run:
        async with self.serving("--no-worker") as (_, base):
            return await load(
                "redrive",
                f"{base}/v1/events",
                body=event_body(),
                headers={"content-type": "application/json", "x-api-key": self.key},
                clients=clients,
                seconds=seconds,
            )

    async def ingest_batch(self, seconds: float, clients: int) -> Run:
        body = b"\n".join([event_body()] * BATCH_EVENTS)
        async with self.serving("--no-worker") as (_, base):
            return await load(
                "redrive",
                f"{base}/v1/events/batch",
                body=body,
                headers={"content-type": "application/x-ndjson", "x-api-key": self.key},
                clients=clients,
                seconds=seconds,
                per_request=BATCH_EVENTS,
            )

    async def idle_latency(self, n: int) -> Run:
        """From the first byte of POST /v1/events to the delivery's arrival, one at a time."""
        await self.receiver.reset()
        async with self.serving() as (_, base):
            pool = await Pool.open(f"{base}/v1/events", 1)
            headers = {"content-type": "application/json", "x-api-key": self.key}
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
        run = await self.delivery(n, self.receiver).run()
        scheduled = await self._scheduled_ms(n)
        rows = await self.rows(
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
        rows = await self.rows(
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
        rows = await self.rows("SELECT event_id FROM redrive.task LIMIT 10000")
        async with self.serving() as (_, base):
            return await load(
                "redrive",
                base,
                body=b"",
                headers={"x-api-key": self.key},
                clients=clients,
                seconds=seconds,
                expect=200,
                paths=[f"/v1/events/{row['event_id']}/status" for row in rows],
            )

    async def backlog(self, waiting: int) -> Run:
        """Claim and settle beside so many waiting tasks, half of them in the future; lists and status beside them.

        Each round takes as many as were just added, so that the backlog keeps its size; the median round counts.
        """
        await self._fill(1)
        await self.multiply(self._endpoint, waiting, half_later=True)
        await self.write_out()
        tasks, worker_id = self.tasks, new_id()
        place = Place(HTTP_QUEUE, self.org_id, self._endpoint)
        asks = [Ask(Stream(place, is_retry), BACKLOG_BATCH, START) for is_retry in (False, True)]
        exchange = Exchange(self.receiver.url, None, 200, None, b"ok")
        rounds_s: list[float] = []
        for _ in range(BACKLOG_WARM_UP + BACKLOG_ROUNDS):
            await self._fill(BACKLOG_BATCH)
            began = time.perf_counter()
            claim = await tasks.claim(asks, limit=BACKLOG_BATCH, worker_id=worker_id, margin_s=DEFAULT_MARGIN_S)
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
                pinned = await self.delivery(n, self.receiver).run()
        finally:
            await holder.close()
        return free, pinned

    async def memory(self) -> Run:
        """Resident memory with IN_FLIGHT deliveries held open, and of the API after 100 000 events."""
        await self.receiver.reset(delay_ms=4_000)
        await self._fill(IN_FLIGHT)
        began = time.perf_counter()
        async with self.serving() as (server, base):
            deadline = time.monotonic() + MAX_WAIT_S
            while (await self.receiver.counts())["requests"] < 200 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            worker_mb = max(rss_mb(pid) for pid in children_named(server.pid, "worker"))
            await self.receiver.reset()
            body = b"\n".join([event_body()] * BATCH_EVENTS)
            headers = {"content-type": "application/x-ndjson", "x-api-key": self.key}
            pool = await Pool.open(f"{base}/v1/events/batch", 1)
            head = request_head(f"{base}/v1/events/batch", headers, len(body))
            figures: dict[str, float] = {}
            for sent in range(1, 101):
                (status,) = await pool.send_all([head + b"\r\n" + body])
                if status != 202:
                    raise ProcessError(f"the API answered {status}")
                if sent in (20, 100):
                    (api,) = children_named(server.pid, "api")
                    figures[f"api_mb_after_{sent}k"] = rss_mb(api)
            worker_mb = max(worker_mb, *(rss_mb(pid) for pid in children_named(server.pid, "worker")))
        figures |= {"worker_mb": worker_mb, "api_mb": figures["api_mb_after_100k"]}
        return Run.timed("redrive", IN_FLIGHT, time.perf_counter() - began, figures)

    # -- parts -----------------------------------------------------------------------------------------------------

    async def _fill(self, n: int, policy: str | None = None) -> None:
        body = event_body()
        await self.accept([events.NewEvent(self.org_id, new_id(), EVENT_TYPE, body, policy=policy) for _ in range(n)])

    async def _list_ms(self) -> float:
        """A page of the retry queue, from the first one on: median."""
        times, after = [], None
        for _ in range(PAGES_WARM_UP + PAGES):
            began = time.perf_counter()
            async with self.app.tenant(self.org_id) as session:
                page = await list_retry_queue(session, RetryQueueFilter(), limit=PAGE_ROWS, after=after)
            times.append((time.perf_counter() - began) * 1000)
            after = page.next_key  # the end of a short list: from the start again
        return statistics.median(times[PAGES_WARM_UP:])

    async def _status_ms(self) -> float:
        ids = await self.rows("SELECT event_id FROM redrive.task LIMIT 200")
        times = []
        for row in ids:
            began = time.perf_counter()
            async with self.app.tenant(self.org_id) as session:
                await events.get_event_status(session, row["event_id"])
            times.append((time.perf_counter() - began) * 1000)
        return statistics.median(times)
