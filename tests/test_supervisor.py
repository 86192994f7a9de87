"""The supervisor: children are restarted, die with it, and stop in order, PostgreSQL last."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog
from structlog.testing import capture_logs

from redrive.engine.supervisor import (
    FIRST_BACKOFF_S,
    MAX_BACKOFF_S,
    STABLE_AFTER_S,
    Backoff,
    Child,
    PostgresKeeper,
    Supervisor,
    stop_on_signals,
)
from redrive.store.embedded import EmbeddedPostgres

Eventually = Callable[..., Awaitable[None]]
Logs = list[Any]

# Notes its pid when it starts and the word "stopped" when it is asked to stop.
POLITE = """
import os, pathlib, signal, sys, time
out = pathlib.Path(sys.argv[1])
def stop(*_):
    out.open("a").write("stopped\\n"); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
out.open("a").write(f"{os.getpid()}\\n")
while True: time.sleep(60)
"""
# Ignores the request to stop, and has a child of its own.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen(["sleep", "60"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()}\\n{grandchild.pid}\\n")
while True: time.sleep(60)
"""
# Writes down what it sees of its environment.
TELLING = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(os.environ["PATH"] + os.environ["OWN"])
time.sleep(60)
"""
# A supervisor of its own process, as `redrive serve` runs it, with PostgreSQL when a folder is given.
SUPERVISING = """
import asyncio, sys
from pathlib import Path
import structlog
from redrive.engine.supervisor import Child, PostgresKeeper, Supervisor, stop_on_signals
from redrive.store.embedded import EmbeddedPostgres

async def main():
    stop = stop_on_signals()
    log = structlog.get_logger()
    start = lambda: EmbeddedPostgres.start(Path(sys.argv[3]), settings={"fsync": "off"})
    keeper = PostgresKeeper(await start(), start, log=log) if len(sys.argv) > 3 else None
    child = Child("polite", (sys.executable, "-c", sys.argv[1], sys.argv[2]))
    await Supervisor([child], log=log, postgres=keeper).run(stop)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def cluster_dir() -> Iterator[Path]:
    """One data folder for all tests here, so that its cluster is made once."""
    path = Path(f"/tmp/rd-supervised-{os.getpid()}")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def child(script: str, out: Path) -> Child:
    return Child("child", (sys.executable, "-c", script, str(out)))


def lines(out: Path) -> list[str]:
    return out.read_text().split() if out.exists() else []


def alive(pid: int) -> bool:
    """Zombies are not: only somebody's exit code is left of them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    task = asyncio.create_task(supervisor.run(stop))
    try:
        yield stop
    finally:
        stop.set()
        await task


async def test_a_child_that_dies_is_started_again(out: Path, logs: Logs, eventually: Eventually) -> None:
    async with running(Supervisor([child(POLITE, out)], log=structlog.get_logger())):
        for life in (1, 2, 3):
            await eventually(lambda life=life: len(lines(out)) == life)
            os.kill(int(lines(out)[-1]), signal.SIGKILL)
        await eventually(lambda: len(lines(out)) == 4)
    died = [entry for entry in logs if entry["event"] == "child_died"]
    assert [entry["ended_by"] for entry in died] == ["SIGKILL"] * 3
    assert [entry["restart_in_s"] for entry in died] == [0.1, 0.2, 0.4]


def test_the_pause_doubles_up_to_its_cap_and_starts_anew_after_a_stable_life() -> None:
    backoff = Backoff()
    pauses = [backoff.after_a_life_of(0.0) for _ in range(12)]
    assert pauses[:3] == [FIRST_BACKOFF_S, FIRST_BACKOFF_S * 2, FIRST_BACKOFF_S * 4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_BACKOFF_S
    assert backoff.after_a_life_of(STABLE_AFTER_S) == FIRST_BACKOFF_S


async def test_stopping_asks_every_child_and_waits_for_it(out: Path, logs: Logs, eventually: Eventually) -> None:
    second = out.with_name("second")
    children = [child(POLITE, out), child(POLITE, second)]
    async with running(Supervisor(children, log=structlog.get_logger())):
        await eventually(lambda: len(lines(out)) == len(lines(second)) == 1)
    assert (lines(out)[1], lines(second)[1]) == ("stopped", "stopped")
    assert [entry["event"] for entry in logs].count("child_stopped") == 2


async def test_a_child_that_will_not_stop_is_killed_with_its_own_children(out: Path, eventually: Eventually) -> None:
    supervisor = Supervisor([child(STUBBORN, out)], log=structlog.get_logger(), grace_s=0.3)
    async with running(supervisor):
        await eventually(lambda: len(lines(out)) == 2)
        pids = [int(pid) for pid in lines(out)]
        assert all(alive(pid) for pid in pids)
    await eventually(lambda: not any(alive(pid) for pid in pids))


async def test_stopping_during_a_pause_does_not_wait_for_its_end(logs: Logs, eventually: Eventually) -> None:
    hopeless = Child("hopeless", ("/nonexistent/program",))
    async with running(Supervisor([hopeless], log=structlog.get_logger())):
        # 0.1 + 0.2 + 0.4 + 0.8 s: the next pause is 1.6 s.
        await eventually(lambda: len([e for e in logs if e["event"] == "child_died"]) == 5)
        began = time.monotonic()
    assert time.monotonic() - began < 1.0
    assert {e["ended_by"] for e in logs if e["event"] == "child_died"} == {"exit code 127"}


async def test_a_ctrl_c_in_the_terminal_reaches_the_supervisor_alone(out: Path, eventually: Eventually) -> None:
    async with running(Supervisor([child(POLITE, out)], log=structlog.get_logger())):
        await eventually(lambda: len(lines(out)) == 1)
        pid = int(lines(out)[0])
        assert os.getpgid(pid) == os.getsid(pid) == pid != os.getpgid(0)


async def test_children_see_our_environment_and_their_own_additions(tmp_path: Path, eventually: Eventually) -> None:
    out = tmp_path / "env"
    added = Child("env", (sys.executable, "-c", TELLING, str(out)), {"OWN": "canary"})
    assert "canary" not in repr(added)
    async with running(Supervisor([added], log=structlog.get_logger())):
        await eventually(lambda: out.exists() and out.read_text() == os.environ["PATH"] + "canary")


async def test_children_of_a_killed_supervisor_stop(out: Path, eventually: Eventually) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISING, POLITE, out], stdout=subprocess.DEVNULL) as popen:
        await eventually(lambda: len(lines(out)) == 1)
        popen.kill()
    await eventually(lambda: lines(out)[1:] == ["stopped"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_children_first_and_postgres_last(
    out: Path, cluster_dir: Path, eventually: Eventually, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", SUPERVISING, POLITE, str(out), str(cluster_dir)]
    (cluster_dir / "postgres.log").unlink(missing_ok=True)
    # Tests that run under nohup ignore hang-ups, and so would what they start.
    heeding = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=heeding) as popen:
        try:
            await eventually(lambda: len(lines(out)) == 1, within_s=30)
            popen.send_signal(number)
            assert await asyncio.to_thread(popen.wait, 10) == 0
        finally:
            popen.kill()
    assert lines(out)[1:] == ["stopped"]
    log = (cluster_dir / "postgres.log").read_text()
    assert "database system is shut down" in log  # in good order, not at once
    ended_at = (cluster_dir / "postgres.log").stat().st_mtime_ns
    assert out.stat().st_mtime_ns < ended_at


async def test_a_killed_postgres_is_started_again_at_the_same_url(
    cluster_dir: Path, logs: Logs, eventually: Eventually
) -> None:
    async def start() -> EmbeddedPostgres:
        return await EmbeddedPostgres.start(cluster_dir)

    first = await start()
    keeper = PostgresKeeper(first, start, log=structlog.get_logger())
    async with running(Supervisor([], log=structlog.get_logger(), postgres=keeper)):
        os.kill(first.pid, signal.SIGKILL)
        await eventually(lambda: "postgres_restarted" in [e["event"] for e in logs], within_s=30)
        conn = await asyncpg.connect(first.url)
        assert await conn.fetchval("SELECT 1") == 1
        await conn.close()
        again = next(e["pid"] for e in logs if e["event"] == "postgres_restarted")
        assert alive(again)
    assert not alive(again)


async def test_a_postgres_that_does_not_start_is_tried_again(logs: Logs, eventually: Eventually) -> None:
    """A server that is gone already, and a start that fails twice before it succeeds."""
    tries = 0

    class Gone:
        pid = 0

        async def wait(self) -> int:
            return -signal.SIGKILL if tries < 3 else await asyncio.get_running_loop().create_future()

        async def stop(self, patience_s: float = 0.0) -> None:
            pass

    async def start() -> Gone:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("no space left")
        return Gone()

    keeper = PostgresKeeper(Gone(), start, log=structlog.get_logger())
    async with running(Supervisor([], log=structlog.get_logger(), postgres=keeper)):
        await eventually(lambda: tries == 3)
    events = [e["event"] for e in logs]
    assert events.count("postgres_restart_failed") == 2
    assert events[-1] == "postgres_restarted"


async def test_ignored_hangups_stay_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    loop = asyncio.get_running_loop()
    try:
        stop = stop_on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)
        assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, before)
