"""The herald beside a worker: it says, it sends, it survives a database that is away, and it stops when told."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from redrive.app import run_worker
from redrive.core.decide import Reason
from redrive.engine.herald import Herald, say
from redrive.settings import Settings
from redrive.store.notices import Notices
from redrive.store.seal import Sealer
from support.engine import LOOPBACK, Engine, ManualClock, until
from support.holding import open_holding

KEY = "a key of the tests"


async def dead(engine: Engine, **fields: Any) -> UUID:
    await engine.accept(**fields)
    job = await engine.claim_one()
    await engine.kill(job, Reason.EXHAUSTED)
    return job.id


async def test_a_notice_is_a_log_line_with_its_subject_and_its_words(engine: Engine) -> None:
    endpoint_id = await engine.endpoint("billing")
    task_id = await dead(engine)
    await engine.sql.execute(
        "SELECT redrive.note($1, 'lane.moving', 'info', 'endpoint', $2, 'It moves again.')", engine.org_id, endpoint_id
    )
    with capture_logs() as logged:
        assert await Herald(Notices(engine.db, engine.clock)).look() == 2
    lines = {line["kind"]: line for line in logged}
    assert {line["event"] for line in logged} == {"notice"}
    letter = lines["dead_letter"]
    assert (letter["log_level"], letter["org"], letter["subject_id"]) == ("error", "default", str(task_id))
    assert 'endpoint "billing" is a dead letter' in letter["text"]
    assert lines["lane.moving"]["log_level"] == "info"


async def test_a_notice_that_is_rolled_back_is_said_again(engine: Engine) -> None:
    """The line comes before the commit: twice is better than never."""
    await engine.endpoint()
    await dead(engine)
    said = []

    def fails_once(notices: Any) -> None:
        said.append([notice.id for notice in notices])
        if len(said) == 1:
            raise ConnectionError("the database went away")
        say(notices)

    store = Notices(engine.db, engine.clock)
    with pytest.raises(ConnectionError):
        await store.hand_over(10, fails_once)
    assert await store.hand_over(10, fails_once) == 1
    assert said[0] == said[1]


async def test_a_look_that_fails_is_said_and_the_next_one_tells(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await dead(engine)
    looks = 0

    class Shaky(Notices):
        async def hand_over(self, *args: Any) -> int:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise ConnectionError("the database is away")
            return await super().hand_over(*args)

    with capture_logs() as logged:
        running = asyncio.create_task(Herald(Shaky(engine.db, clock), every_s=0.01).run())
        await engine.until("SELECT bool_and(told_at IS NOT NULL) FROM redrive.notice")
        running.cancel()
        await asyncio.wait([running])
    assert [line["event"] for line in logged] == ["notices_failed", "notice"]


async def test_a_worker_tells_an_endpoint_that_asked(live: Engine) -> None:
    """The whole way: a task dies, and whoever subscribed to notices receives a signed event of it."""
    async with open_holding() as ops, open_holding() as broken:
        broken.usual = 400
        live.sealer = Sealer.from_passphrase(KEY)
        await live.endpoint("broken", broken.url, event_types=("order.*",))
        await live.endpoint("ops", ops.url, event_types=("redrive.dead_letter",))  # an alert may be told of it, too
        stop = asyncio.Event()
        settings = Settings(secret_key=SecretStr(KEY), concurrency=2, allow_networks=LOOPBACK.allowed_networks)
        running = asyncio.create_task(run_worker(settings, live.url, stop))
        try:
            await live.accept("order.made")

            async def received() -> bool:
                return bool(ops.ids)

            await until(received, within_s=20)
        finally:
            stop.set()
            await running
    assert len(ops.ids) == 1
