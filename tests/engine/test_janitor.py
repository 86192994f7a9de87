"""The janitor's round: it rests, it survives a bad pass, it says what it did, and it stops when told."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from redrive.app import open_sweeper, run_worker
from redrive.core.policy import DAY_S
from redrive.core.ports import Floor
from redrive.core.sweep import Expiries, Swept, SweptOrg
from redrive.engine import janitor as module
from redrive.engine.janitor import ExpiryFailed, Janitor
from redrive.settings import Settings
from redrive.store import retention
from redrive.store.archive import ArchiveError
from redrive.store.audit import Act
from redrive.store.db import Database
from redrive.store.expiry import Expiry
from redrive.store.retention import Retention
from support.engine import Engine, ManualClock, until

AUDITED = "SELECT (after ->> 'events')::int FROM redrive.audit WHERE action = 'retention.delete'"


@asynccontextmanager
async def janitor_of(engine: Engine, folder: Path | None = None, **options: Any) -> AsyncIterator[Janitor]:
    settings = Settings(archive_dir=folder)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Retention]:
        async with open_sweeper(settings, engine.url, Act("engine"), clock=engine.clock) as sweeper:
            yield sweeper

    yield Janitor(opened, **{"every_s": 3600, "dice": lambda: 0.5, **options})


async def acknowledged(engine: Engine, count: int) -> None:
    """Events that are not kept a moment longer."""
    await engine.policy("integration", kind="manual", retention={"delivered_s": 0})
    for event_id in await engine.accept_many(count, event_type="for nobody"):
        assert await engine.acknowledge(event_id) == "received"


async def test_what_was_removed_before_a_failure_is_in_the_audit(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_EVENTS", 2)
    await acknowledged(engine, 5)
    written = []
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        written.append(data)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    async with janitor_of(engine, tmp_path, rest=0) as janitor:
        with pytest.raises(ArchiveError, match="No space left"):
            await janitor.sweep(rested_s=0)
    assert await engine.sql.fetchval(AUDITED) == 2
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.event") == 3


async def test_an_org_whose_tasks_cannot_be_let_die_keeps_no_other_s_from_it(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await engine.org("other")
    for org in (engine.org_id, other):
        await engine.endpoint(policy="relay", org=org)
        await engine.accept(org_id=org)
    clock.advance(7 * DAY_S)
    real = Expiry.batch

    async def batch(self: Expiry, org: SweptOrg, place: Floor | None) -> Expiries | None:
        if org.org_id == engine.org_id:
            raise RuntimeError("a row that no program can read")
        return await real(self, org, place)

    monkeypatch.setattr(Expiry, "batch", batch)
    with capture_logs() as logged:
        async with janitor_of(engine, rest=0) as janitor:
            with pytest.raises(ExpiryFailed, match="in default: the log says why") as failed:
                await janitor.sweep(rested_s=0)
    assert failed.value.done == {"default": Swept(), "other": Swept(expired=1)}
    (said,) = [line for line in logged if line["event"] == "expiry_failed"]
    assert (said["org"], said["error"]) == ("default", "RuntimeError: a row that no program can read")


async def test_a_janitor_that_never_gets_its_turn_gives_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_PAUSE_S", 0)
    await acknowledged(engine, 1)
    other = await Database.open(engine.url, role="redrive_janitor", size=1)
    async with other.transaction() as session, janitor_of(engine) as janitor:
        await session.fetchrow("lead_sweep")
        assert await janitor.sweep(rested_s=0) == {"default": Swept()}
    await other.close()
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.event") == 1


async def test_it_rests_nine_times_as_long_as_it_works(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_EVENTS", 1)
    await acknowledged(engine, 2)
    rests: list[float] = []
    times = iter([-1.0, 0.0, 0.5, 10.0, 20.0, 30.0])  # the first is that of the look at what may expire

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(module, "asyncio", type("Asyncio", (), {"sleep": staticmethod(rest)}))
    monkeypatch.setattr(module, "time", type("Time", (), {"monotonic": staticmethod(lambda: next(times))}))
    async with janitor_of(engine) as janitor:
        assert (await janitor.sweep(rested_s=0))["default"].events == 2
    assert rests == [4.5, module.MAX_REST_S]


async def test_a_bad_pass_is_said_and_the_next_one_made(
    live: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PASS_S", 0)
    await acknowledged(live, 1)
    (tmp_path / "default").write_text("in the way")
    with capture_logs() as logged:
        async with janitor_of(live, tmp_path, every_s=0.01) as janitor:
            running = asyncio.create_task(janitor.run())

            async def said() -> bool:
                return bool(logged)

            await until(said)
            (tmp_path / "default").unlink()
            await live.until("SELECT count(*) = 0 FROM redrive.event")
            running.cancel()
            await asyncio.wait([running])
    assert (logged[0]["event"], logged[0]["log_level"]) == ("retention_failed", "warning")
    assert "Nothing was removed" in logged[0]["error"]


async def test_a_worker_removes_what_its_policies_let_go(live: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PASS_S", 0)
    await acknowledged(live, 3)
    kept = await live.accept("for nobody")
    stop = asyncio.Event()
    settings = Settings(retention_every_s=DAY_S, secret_key=SecretStr("a key of the tests"), concurrency=1)
    running = asyncio.create_task(run_worker(settings, live.url, stop))
    try:
        await live.until("SELECT count(*) = 1 FROM redrive.event")
        await live.until(f"SELECT 3 = ({AUDITED})")
        assert (await live.event(kept))["status"] == "received"
    finally:
        stop.set()
        began = time.monotonic()
        await running
    assert time.monotonic() - began < 10
