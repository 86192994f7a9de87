"""Runs of workflows whose workers and whose PostgreSQL are killed: every step is done, its effect once, in order."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from redrive.store.embedded import running_url
from support.holding import HoldingReceiver
from support.load import volume
from support.oracle import assert_check_passes, assert_sound, counts
from support.processes import ADMIN_KEY, Served, serve, until
from support.receiver import Answer, Received
from support.remote import QUICK, Remote

pytestmark = pytest.mark.faults

RUNS, STEPS = volume(80, 200), 5
CALLERS = 4
HELD = 10  # tries that are under way when something is killed
KILLED = ("worker-1", "worker-2", "worker-1")
CALLS_BETWEEN = RUNS // 2  # before something else is killed
_STATUSES = "SELECT status, count(*) FROM redrive.run GROUP BY status"
_DONE = "SELECT index, count(*) FROM redrive.step WHERE done_at IS NOT NULL GROUP BY index"


class Ledger:
    """What a receiver does that knows idempotency keys: the effect of each is had once, and answered the same again."""

    def __init__(self) -> None:
        self.effects: dict[str, int] = {}

    def answer(self, request: Received) -> Answer:
        number = self.effects.setdefault(request.headers["idempotency-key"], len(self.effects))
        return Answer(200, json.dumps({"effect": number}).encode())


async def test_runs_whose_workers_and_whose_postgresql_are_killed_do_every_step_once(
    durable_dir: Path, receiver: HoldingReceiver
) -> None:
    ledger = Ledger()
    receiver.usual = ledger.answer
    async with serve("--workers", "2", "--concurrency", "40", data_dir=durable_dir) as served:
        run_ids = await _begin(served, receiver)
        killed: list[int] = []
        for name in KILLED:
            await _in_mid_call(receiver)
            killed.append(await _restarted(served, name, killed))
            os.kill(killed[-1], signal.SIGKILL)
            receiver.release()
        await _in_mid_call(receiver)
        url = running_url(durable_dir)  # nowhere to be read while it starts again
        assert url is not None
        os.kill(served.postmaster_pid, signal.SIGKILL)
        receiver.release()
        await _all_done(url)
        assert await counts(url, _DONE) == {str(index): RUNS for index in range(STEPS)}
        await assert_sound(url, received=receiver.ids)
        await assert_check_passes(REDRIVE_DATA_DIR=str(durable_dir))
        assert len(served.program.lines("postgres_died")) == 1
        assert len([line for line in served.program.lines("child_died") if line["ended_by"] == "SIGKILL"]) == len(
            KILLED
        )
    keys = {f"{run_id}:{index}" for run_id in run_ids for index in range(STEPS)}
    assert ledger.effects.keys() == keys
    assert len(receiver.requests) > len(keys), "a call that was cut off was made again"
    last = f":{STEPS - 1}"
    assert _told(receiver) == {key: effect for key, effect in ledger.effects.items() if not key.endswith(last)}
    for run_id in run_ids:
        order = [ledger.effects[f"{run_id}:{index}"] for index in range(STEPS)]
        assert order == sorted(order), "one step after the other"


async def _begin(served: Served, receiver: HoldingReceiver) -> list[str]:
    """All at once. Each step tells the next one what its effect was."""
    remotes = [Remote(served.host, served.port, ADMIN_KEY) for _ in range(CALLERS)]
    await remotes[0].policy("quick", **QUICK, timeout_s=1)
    url = receiver.url_of("/step")
    steps = [{"name": "s0", "kind": "http", "url": url, "body": {"before": None}, "policy": "quick"}]
    for index in range(1, STEPS):
        body = {"before": {"key": f"{{{{ run.id }}}}:{index - 1}", "said": f"{{{{ steps.s{index - 1}.output }}}}"}}
        steps.append({"name": f"s{index}", "kind": "http", "url": url, "body": body, "policy": "quick"})
    await remotes[0].workflow("five", *steps)
    await remotes[0].post("/v1/retries/pause", {"because": "they begin together"})

    async def begin(remote: Remote) -> list[str]:
        return [await remote.run("five", {"n": n}) for n in range(RUNS // CALLERS)]

    begun = await asyncio.gather(*map(begin, remotes))
    await remotes[0].post("/v1/retries/resume")
    for remote in remotes:
        remote.close()
    return [run_id for some in begun for run_id in some]


async def _in_mid_call(receiver: HoldingReceiver) -> None:
    goal = len(receiver.requests) + CALLS_BETWEEN
    await until(lambda: len(receiver.requests) >= goal, why=lambda: len(receiver.requests))
    receiver.hold()
    await until(lambda: receiver.held >= HELD, why=lambda: receiver.held)


async def _restarted(served: Served, name: str, killed: Sequence[int]) -> int:
    """The process of that name, once it is another than one that was killed."""
    async with asyncio.timeout(30):
        while (pid := await served.child_pid(name)) in killed:
            await asyncio.sleep(0.02)
    return pid


async def _all_done(url: str) -> None:
    found: dict[str, int] = {}
    async with asyncio.timeout(60):
        while found != {"SUCCESS": RUNS}:
            with suppress(OSError, asyncpg.PostgresError):
                found = await counts(url, _STATUSES)
            await asyncio.sleep(0.05)


def _told(receiver: HoldingReceiver) -> dict[str, int]:
    """The effects of which the steps behind them told, by their keys."""
    bodies = (json.loads(request.body)["before"] for request in receiver.requests)
    return {before["key"]: before["said"]["effect"] for before in bodies if before is not None}
