"""`redrive hub` as a person runs it: what it says, when it gives up, how it ends."""

import asyncio
import json
import os
import pty
import re
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from redrive.hub.edge import FIRST_PAUSE_S, LONGEST_PAUSE_S, address_of, pause_s
from support.begun import begin
from support.holding import HoldingReceiver, open_holding
from support.http import HttpClient
from support.hubs import forwarded, hub, told
from support.installation import Installation, installation
from support.processes import ADMIN_KEY, program, until
from support.receiver import Answer

from .command import clean_env
from .command import redrive as command


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[HoldingReceiver]:
    async with open_holding() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def redrive(database_url: str) -> AsyncIterator[Installation]:
    async with installation(database_url) as opened:
        yield opened


async def delivering(redrive: Installation, stop: asyncio.Event) -> asyncio.Task[None]:
    worker = redrive.relay_worker()
    redrive.relay.on_joined = worker.wake
    return asyncio.create_task(worker.run(stop))


@pytest_asyncio.fixture(loop_scope="session")
async def at_work(redrive: Installation) -> AsyncIterator[None]:
    """Webhooks are delivered as they come."""
    stop = asyncio.Event()
    working = await delivering(redrive, stop)
    yield
    stop.set()
    await working


def words(redrive: Installation, endpoint_id: object, forward: str = "http://127.0.0.1:9/") -> list[str]:
    return ["hub", "--edge", redrive.base_url, "--endpoint", str(endpoint_id), "--forward", forward]


# -- when it gives up --------------------------------------------------------------------------------------------------


async def test_a_hub_that_is_not_wanted_says_why_and_ends(redrive: Installation) -> None:
    relay = await redrive.api.relay()
    http = await redrive.api.endpoint("http://127.0.0.1:9/")
    for endpoint_id, key, message in (
        (relay["id"], "no key of ours", "does not know this key"),
        (uuid4(), ADMIN_KEY, "has no such endpoint"),
        (http["id"], ADMIN_KEY, "only a relay has hubs"),
    ):
        ended = await command(*words(redrive, endpoint_id), env={"REDRIVE_KEY": key})
        assert ended.code == 1
        assert message in ended.err
        assert key not in ended.out + ended.err


async def test_what_makes_no_sense_is_wrong_usage() -> None:
    endpoint = ["--endpoint", str(uuid4())]
    for flags, message in (
        (["--edge", "edge.example.com", "--forward", "http://localhost", *endpoint], "--edge"),
        (["--edge", "http://localhost:99999", "--forward", "http://localhost", *endpoint], "no number up to 65535"),
        (["--edge", "https://u:pw@edge.example.com", "--forward", "http://localhost", *endpoint], "--edge"),
        (["--edge", "https://edge.example.com", "--forward", "localhost:3000", *endpoint], "--forward"),
        (["--edge", "https://edge.example.com", "--forward", "http://localhost", "--endpoint", "seven"], "--endpoint"),
    ):
        ended = await command("hub", *flags, env={"REDRIVE_KEY": "k"})
        assert ended.code == 2
        assert message in ended.err
    ended = await command("hub", "--edge", "https://e.example.com", "--forward", "http://localhost", *endpoint)
    assert ended.code == 2
    assert "REDRIVE_KEY" in ended.err


# -- while it runs -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_work")
async def test_each_webhook_is_a_line_and_counted(redrive: Installation, receiver: HoldingReceiver) -> None:
    relay = await redrive.api.relay(name="github")
    receiver.script(200, 404)
    flags = [*words(redrive, relay["id"], receiver.url), "--metrics-port", "0"]
    async with program(*flags, env={"REDRIVE_KEY": ADMIN_KEY}) as running:
        first = await redrive.api.webhook(relay, b"x" * 7_400, X_GitHub_Event="push")
        await until(lambda: len(running.out) == 1)
        await redrive.api.webhook(relay, b"y")
        await until(lambda: len(running.out) == 2)
        assert re.fullmatch(rf"\d\d:\d\d:\d\d  github\.push  {first}  7\.4 kB → 200  \d+ ms", running.out[0])
        assert re.fullmatch(r"\d\d:\d\d:\d\d  webhook  \S+  1 B → 404  \d+ ms", running.out[1])
        said = [str(line["text"]) for line in running.log]
        at, connected = sorted(said, reverse=True)
        assert connected == f'Connected to {redrive.base_url}: webhooks for "github" go to {receiver.url}.'
        found = re.fullmatch(r"Metrics are at http://127\.0\.0\.1:(\d+)/metrics\.", at)
        assert found is not None
        own = HttpClient("127.0.0.1", int(found[1]))
        exposed = (await own.get("/metrics")).body.decode()
        own.close()
        for line in (
            'redrive_hub_forwarded_total{process="hub",status="2xx"} 1.0',
            'redrive_hub_forwarded_total{process="hub",status="4xx"} 1.0',
            'redrive_hub_forward_seconds_count{process="hub"} 2.0',
            'redrive_hub_edge_connected{process="hub"} 1.0',
        ):
            assert line in exposed
        assert await running.terminated() < 5


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize(("to", "code"), [("a full disk", 4), ("a reader that is gone", 0)])
async def test_a_hub_whose_lines_cannot_be_written_ends_and_takes_it_for_no_edge_that_is_away(
    redrive: Installation, receiver: HoldingReceiver, to: str, code: int
) -> None:
    relay = await redrive.api.relay()
    reading, writing = os.pipe()
    os.close(reading)
    with (
        Path("/dev/full").open("wb") as full,
        os.fdopen(writing, "wb") as unread,
        Path(os.devnull).open() as nothing,
        tempfile.TemporaryFile() as err,
    ):
        streams = [nothing.fileno(), (full if code else unread).fileno(), err.fileno()]
        env = clean_env(REDRIVE_KEY=ADMIN_KEY)
        running = await begin(words(redrive, relay["id"], receiver.url), streams, env=env, cwd="/")
        await redrive.api.webhook(relay, b"x")
        try:
            assert await asyncio.wait_for(running.wait(), 15) == code
        except TimeoutError:
            running.kill()
            raise
        err.seek(0)
        said = err.read().decode()
    assert ("No space left on device" in said) == (to == "a full disk")
    assert "is away" not in said


@pytest.mark.usefixtures("at_work")
async def test_with_verbose_headers_and_bodies_are_shown_without_secrets(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    relay = await redrive.api.relay()
    receiver.usual = Answer(200, b"line one\nline two \x1b[31m")
    env = {"REDRIVE_KEY": ADMIN_KEY}
    async with program(*words(redrive, relay["id"], receiver.url), "--verbose", env=env) as running:
        body = json.dumps({"order": 7, "password": "canary"}).encode()
        await redrive.api.webhook(relay, body, X_Secret="canary")
        await until(lambda: any("line two" in line for line in running.out))
    shown = "\n".join(running.out)
    assert '"order": 7' in shown
    assert "x-secret: [redacted]" in shown
    assert "canary" not in shown
    assert "\x1b" not in shown


@pytest.mark.usefixtures("at_work")
async def test_told_to_stop_it_finishes_the_one_under_way(redrive: Installation, receiver: HoldingReceiver) -> None:
    relay = await redrive.api.relay()
    receiver.hold()
    async with hub(redrive.base_url, relay["id"], receiver.url) as running:
        event_id = await redrive.api.webhook(relay)
        await receiver.wait_for(1)
        running.send(signal.SIGTERM)
        receiver.release()
        async with asyncio.timeout(10):
            assert await running.process.wait() == 0
    await redrive.api.delivered(event_id)
    assert len(receiver.requests) == 1


async def test_when_the_edge_comes_back_the_hub_goes_on(database_url: str, receiver: HoldingReceiver) -> None:
    async with installation(database_url) as redrive:
        relay = await redrive.api.relay()
        port, edge = redrive.port, redrive.base_url
        started = hub(edge, relay["id"], receiver.url)
        running = await started.__aenter__()
    try:
        await until(lambda: bool(told(running, f"The edge {edge} is away")))
        async with installation(database_url, port=port) as redrive:
            stop = asyncio.Event()
            working = await delivering(redrive, stop)
            event_id = await redrive.api.webhook(relay)
            await redrive.api.delivered(event_id)
            stop.set()
            await working
        assert len(told(running, "Connected")) == 2
        assert [one["acknowledged"] for one in forwarded(running)] == [True]
        assert await running.terminated() < 5
    finally:
        await started.__aexit__(None, None, None)


async def test_told_to_stop_while_the_edge_is_away_it_ends_at_once() -> None:
    async with hub("http://127.0.0.1:9", str(uuid4()), "http://127.0.0.1:9/", connected=False) as running:
        await until(lambda: bool(told(running, "The edge")))
        assert await running.terminated() < 5


@pytest.mark.usefixtures("at_work")
async def test_at_a_terminal_r_sends_the_last_one_again_and_q_quits(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    relay = await redrive.api.relay()
    terminal, other_end = pty.openpty()
    try:
        at_it = program(*words(redrive, relay["id"], receiver.url), env={"REDRIVE_KEY": ADMIN_KEY}, stdin=other_end)
        async with at_it as running:
            await until(lambda: bool(told(running, "Press r")))
            os.write(terminal, b"r")
            await until(lambda: bool(told(running, "No webhook has come in yet")))
            event_id = await redrive.api.webhook(relay)
            await until(lambda: len(running.out) == 1)
            os.write(terminal, b"xr")
            await until(lambda: len(running.out) == 2)
            assert running.out[1].endswith("sent again by hand")
            os.write(terminal, b"q")
            async with asyncio.timeout(10):
                assert await running.process.wait() == 0
    finally:
        os.close(terminal)
        os.close(other_end)
    assert receiver.ids == [event_id, event_id]
    assert [request.headers.get("redrive-resent") for request in receiver.requests] == [None, "true"]
    assert len(await redrive.api.attempts(event_id)) == 1


# -- small parts -------------------------------------------------------------------------------------------------------


def test_the_pauses_grow_and_stay_within_their_bounds() -> None:
    for failures in range(100):
        for roll in (0.0, 0.5, 0.999):
            assert FIRST_PAUSE_S <= pause_s(failures, roll) <= LONGEST_PAUSE_S
    assert pause_s(0, 0.999) < pause_s(2, 0.0) < pause_s(5, 0.0)


@pytest.mark.parametrize(
    ("edge", "begins"),
    [
        ("https://edge.example.com", "wss://edge.example.com/v1/"),
        ("http://localhost:8787/", "ws://localhost:8787/v1/"),
        ("https://example.com/redrive/", "wss://example.com/redrive/v1/"),
    ],
)
def test_the_edge_s_url_leads_to_its_hubs(edge: str, begins: str) -> None:
    endpoint_id = uuid4()
    assert address_of(edge, endpoint_id) == f"{begins}endpoints/{endpoint_id}/hub"
