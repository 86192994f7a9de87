"""A real Prometheus scrapes two servers and three workers under traffic: its sums are the books of `redrive check`."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg

from redrive.api_process import NOTICE_CONCURRENCY, RELAY_CONCURRENCY
from redrive.store.check import check
from support.http import HttpClient
from support.processes import ADMIN_KEY, LOOPBACK, SECRET_KEY, Served, run, serve, worker
from support.prometheus import Prometheus, free_ports, needs_prometheus, prometheus, promtool
from support.receiver import Answer, Received, Receiver, open_receiver
from support.remote import Remote

from .catalogue import all_metrics, dashboard_expressions

pytestmark = needs_prometheus

POLICY = {"kind": "list", "delays_s": [0.1, 0.1], "max_retries": 2}
AT_REST = "SELECT NOT EXISTS (SELECT FROM redrive.task WHERE state NOT IN ('succeeded', 'dead'))"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
# What adds up (docs/metrics.md): what is asked of Prometheus, and what of the books.
EQUAL: dict[str, Callable[[dict[str, int]], int]] = {
    "events_created_total": lambda books: books["events"],
    "events_received": lambda books: books["received"],
    "events_queued": lambda books: books["queued"],
    "events_delivered_total": lambda books: books["delivered"],
    "events_failed_total - redrive_events_redriven_total": lambda books: books["failed"],
    "events_delivered_total + events_failed_total + events_queued + events_received - redrive_events_redriven_total": (
        lambda books: books["events"]
    ),
    'redrive_deliveries_total{result="succeeded"}': lambda books: books["succeeded"],
    "sum without (reason, category) (redrive_dead_letters_moved_total) - redrive_redriven_total": lambda b: b["dead"],
    'sum without (result) (redrive_deliveries_total{result="failed"}) - redrive_redriven_total': lambda b: b["dead"],
    "time_to_delivery_seconds_count": lambda books: books["succeeded"],
    'retry_attempts_count - sum without (result) (redrive_deliveries_total{result="failed"})': lambda b: b["succeeded"],
    **{
        f'redrive_tasks{{state="{state}"}}': lambda books, state=state: books[state]  # type: ignore[misc]
        for state in ("waiting", "leased", "held", "succeeded", "dead")
    },
    **{
        f'redrive_dead_letters{{state="{state}"}}': lambda books, kept=kept: books[kept]  # type: ignore[misc]
        for state, kept in (("open", "dead_open"), ("resolved", "dead_resolved"), ("replaying", "replaying"))
    },
}


async def test_sums_over_servers_and_workers_are_the_books_before_and_after_the_teller_is_killed(
    database_url: str, tmp_path: Path
) -> None:
    # What is flaky would open its breaker now and then, and its tasks wait for ten seconds.
    env = {"REDRIVE_DATABASE_URL": database_url, "REDRIVE_BREAKER_MIN_TRIES": "1000"}
    ports = [str(port) for port in free_ports(4)]
    async with AsyncExitStack() as stack:
        begin = stack.enter_async_context
        # Prometheus first: it looks for what it is to scrape five seconds after it began, whatever is there by then.
        scraped = await begin(prometheus(tmp_path, [f"127.0.0.1:{port}" for port in ports]))
        receiver = await begin(open_receiver())
        receiver.usual = _answer
        first = await begin(serve("--workers", "1", "--port", ports[0], env=env))
        await _until(lambda: _tells(first), "the first server tells")
        second, *_ = await asyncio.gather(
            begin(serve("--no-worker", "--port", ports[1], env=env)),
            begin(worker(database_url, "--metrics-port", ports[2], env=env)),
            begin(worker(database_url, "--metrics-port", ports[3], env=env)),
            first.program.said("worker_started", service="redrive-worker"),
        )
        remotes = [Remote(served.host, served.port, ADMIN_KEY) for served in (first, second)]
        for remote in remotes:
            stack.callback(remote.close)
        traffic = Traffic(remotes, receiver)
        await traffic.prepare()
        asked = await traffic.flow()
        books = await _books(database_url)
        assert books["succeeded"] >= 100
        assert min(books["dead"], books["received"], books["replaying"] + books["dead_resolved"]) > 0
        await _equal(scraped, books)
        await _processes_add_up(scraped, database_url, asked)
        await _expressions_can_be_asked(scraped)
        await _texts_are_sound(ports[0], ports[2])

        # The teller is killed in the middle of more traffic. Its time is over in fifteen seconds: the test moves it on.
        flowing = asyncio.create_task(Traffic(remotes[1:], receiver, traffic).flow())
        pid = await first.child_pid("api")
        os.kill(pid, signal.SIGKILL)
        await flowing
        await _sql(database_url, "UPDATE redrive.teller SET until = clock_timestamp()")
        await _at_rest(database_url)
        await _equal(scraped, asdict((await check(database_url)).total))


class Traffic:
    """Failures, retries, dead letters, redrives, an inbox and its acknowledgements, through whichever servers."""

    def __init__(self, remotes: list[Remote], receiver: Receiver, prepared: "Traffic | None" = None) -> None:
        self._remotes = remotes
        self._receiver = receiver
        self._endpoints: dict[str, str] = prepared._endpoints if prepared else {}

    async def prepare(self) -> None:
        remote = self._remotes[0]
        await remote.policy("brief", **POLICY)
        for path in ("good", "flaky", "bad"):
            made = await remote.endpoint(self._receiver.url_of(f"/{path}"), policy="brief")
            self._endpoints[path] = made["id"]

    async def flow(self) -> int:
        """Until it is at rest; how often the status of an event was asked for."""
        asked = 0
        for remote in self._remotes:
            await remote.batch(self._endpoints["good"], 60)
            await remote.batch(self._endpoints["flaky"], 10)
            await remote.batch(self._endpoints["bad"], 4)
            single = await remote.event(self._endpoints["good"])
            for _ in range(5):
                await remote.status(single)
                asked += 1
            inbox = [
                (await remote.post("/v1/events", {"event_type": "for.nobody", "payload": 1}))["event_id"] for _ in "abc"
            ]
            await remote.post(f"/v1/events/{inbox[0]}/ack")
        await self._letters(4 * len(self._remotes))
        return asked

    async def _letters(self, count: int) -> None:
        """Some are redriven, in vain; some are resolved."""
        remote = self._remotes[0]

        letters: list[dict[str, Any]] = []

        async def are_there() -> bool:
            letters[:] = (await remote.get("/v1/dead-letters", state="open", limit="250"))["data"]
            return len(letters) >= count

        await _until(are_there, "dead letters")
        await remote.post(f"/v1/dead-letters/{letters[0]['id']}/retry")
        await remote.post(f"/v1/dead-letters/{letters[1]['id']}/resolve")


def _answer(request: Received) -> Answer:
    """What is flaky fails at its first try."""
    if request.path == "/bad":
        return Answer(400, b"no")
    is_first = request.headers.get("redrive-attempt", "1") == "1"
    return Answer(503 if request.path == "/flaky" and is_first else 200)


async def _equal(scraped: Prometheus, books: dict[str, int]) -> None:
    """What Prometheus adds up, and the largest, both: whoever told it."""
    await _comes_to(
        scraped,
        {
            f"{how} without (instance, job) ({expression})": float(of(books))
            for expression, of in EQUAL.items()
            for how in ("sum", "max")
        },
    )


async def _processes_add_up(scraped: Prometheus, url: str, asked: int) -> None:
    (tries,) = await _sql(
        url,
        "SELECT count(*) AS n, count(*) FILTER (WHERE number > 1) AS again FROM redrive.attempt"
        " WHERE result <> 'released'",
    )
    await _comes_to(
        scraped,
        {
            "count(up == 1)": 4,
            "sum(redrive_attempts_total)": tries["n"],
            "max(redrive_task_attempts_total)": tries["n"],
            "sum(redrive_retries_total)": tries["again"],
            "max(redrive_task_retries_total)": tries["again"],
            "sum(redrive_retry_lateness_seconds_count)": tries["again"],
            "sum(event_status_queries_total)": asked,
            # The worker of the first server is shown there, beside the two that are scraped themselves.
            'count(redrive_attempts_limit{process="api"})': 2,
            'sum(redrive_attempts_limit{process="api"})': 2 * (RELAY_CONCURRENCY + NOTICE_CONCURRENCY),
            'count(redrive_attempts_limit{process="worker"})': 2,
            'count(redrive_attempts_limit{process="worker-1"})': 1,
            "sum(redrive_tells_installation)": 1,
            "max(redrive_workers_alive)": 3,
        },
    )


async def _comes_to(scraped: Prometheus, wanted: dict[str, float]) -> None:
    found: dict[str, float | None] = {}

    async def are_equal() -> bool:
        found.update({expression: await scraped.value(expression) for expression in wanted})
        return found == wanted

    with contextlib.suppress(AssertionError):
        await _until(are_equal, "sums", within_s=30)
    assert found == wanted


async def _expressions_can_be_asked(scraped: Prometheus) -> None:
    for expression in dashboard_expressions():
        await scraped.ask("query", query=expression)
    rules = [rule for group in (await scraped.ask("rules"))["groups"] for rule in group["rules"]]
    assert len(rules) > 20
    assert {(rule["name"], rule["health"]) for rule in rules if rule["health"] != "ok"} == set()


async def _texts_are_sound(*ports: str) -> None:
    """promtool finds no fault with what is exposed, and it is in the catalogue, in both formats."""
    documented = all_metrics()
    for port in ports:
        client = HttpClient("127.0.0.1", int(port))
        plain = await client.get("/metrics")
        text = plain.body.decode()
        await promtool("check", "metrics", given=text)
        assert not any(secret in text for secret in (ADMIN_KEY, SECRET_KEY, "/flaky", "only.", "for.nobody", "default"))
        types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
        assert {name: documented.get(name) for name in types} == types
        client.close()
        client = HttpClient("127.0.0.1", int(port))
        asked = await client.get("/metrics", Accept=OPEN_METRICS)
        assert asked.headers["content-type"].startswith("application/openmetrics-text")
        assert asked.body.endswith(b"# EOF\n")
        client.close()
        client = HttpClient("127.0.0.1", int(port))
        assert (await client.get("/readyz")).status == 200
        client.close()


async def _tells(served: Served) -> bool:
    client = HttpClient(served.host, served.port)
    try:
        return b'redrive_tells_installation{process="api"} 1.0' in (await client.get("/metrics")).body
    finally:
        client.close()


async def _at_rest(url: str) -> None:
    async def is_at_rest() -> bool:
        (row,) = await _sql(url, AT_REST)
        return bool(row[0])

    await _until(is_at_rest, "rest", within_s=30)


async def _books(url: str) -> dict[str, int]:
    """Once nothing is under way."""
    await _at_rest(url)
    code, said = await run(
        "check", "--json", REDRIVE_DATABASE_URL=url, REDRIVE_SECRET_KEY=SECRET_KEY, REDRIVE_ALLOW_NETWORKS=LOOPBACK
    )
    assert code == 0, said
    books: dict[str, int] = json.loads(said)["books"]
    return books


async def _sql(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url, server_settings={"role": "redrive_engine"})
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


async def _until(condition: Callable[[], Awaitable[bool]], what: str, within_s: float = 20.0) -> None:
    try:
        async with asyncio.timeout(within_s):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {within_s} s") from None
