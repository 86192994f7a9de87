"""A PostgreSQL that is killed, starved or out of reach, under a real `redrive serve`."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import asyncpg
import pytest
import pytest_asyncio

from redrive.store.embedded import EmbeddedPostgres, running_url
from support.holding import HoldingReceiver, open_holding
from support.installation import installation
from support.load import load, volume
from support.oracle import all_succeed, assert_check_passes, assert_sound, counts, states
from support.processes import ADMIN_KEY, Served, altered, serve, until
from support.remote import QUICK, Remote, post_alone

pytestmark = pytest.mark.faults

DISK_BYTES = 192 * 1024 * 1024
LEFT_BYTES = 4 * 1024 * 1024
BIG = 150_000
MANY = volume(50, 100)  # some are being accepted, stored, delivered and settled when something is killed


@dataclass(frozen=True, slots=True)
class Stage:
    """A data folder that is run, broken and run again, and the receiver of everything that was ever accepted there."""

    folder: Path
    receiver: HoldingReceiver
    accepted: list[str]

    @property
    def url(self) -> str:
        url = running_url(self.folder)
        assert url is not None
        return url

    async def endpoint(self, served: Served) -> str:
        remote = Remote(served.host, served.port, ADMIN_KEY)
        await remote.policy("quick", **QUICK)
        endpoint = await remote.endpoint(self.receiver.url, policy="quick", timeout_s=2)
        remote.close()
        endpoint_id: str = endpoint["id"]
        return endpoint_id

    async def assert_sound(self) -> None:
        await assert_sound(self.url, accepted=self.accepted, received=self.receiver.ids)
        await assert_check_passes(REDRIVE_DATA_DIR=str(self.folder))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(durable_dir: Path) -> AsyncIterator[Stage]:
    async with open_holding() as receiver:
        yield Stage(durable_dir, receiver, [])


async def test_nothing_accepted_is_lost_when_postgresql_is_killed_under_load(stage: Stage) -> None:
    async with serve(data_dir=stage.folder) as served:
        async with load(served, await stage.endpoint(served)) as producers:
            for _ in range(2):
                await producers.accepts(MANY)
                os.kill(served.postmaster_pid, signal.SIGKILL)
                await producers.accepts(MANY)
        stage.accepted.extend(producers.accepted)
        assert len(served.program.lines("postgres_died")) == 2
        await all_succeed(stage.url)
        await stage.assert_sound()
        assert await served.program.terminated() < 10


async def test_told_to_stop_under_load_it_ends_in_time_and_leaves_nothing_leased(stage: Stage) -> None:
    async with serve(data_dir=stage.folder) as served:
        async with load(served, await stage.endpoint(served)) as producers:
            await producers.accepts(MANY)
            assert await served.program.terminated() < 10
        stage.accepted.extend(producers.accepted)
    postgres = await EmbeddedPostgres.start(stage.folder)
    try:
        assert "leased" not in await states(stage.url)
        await stage.assert_sound()
    finally:
        await postgres.stop()


async def test_the_lock_of_a_socket_whose_pid_now_is_a_stranger_is_no_obstacle(stage: Stage) -> None:
    folder = stage.folder / "run"
    (folder / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n{stage.folder}/postgres\n1700000000\n5432\n{folder}\n")
    postgres = await EmbeddedPostgres.start(stage.folder)
    await postgres.stop()


async def run_with_a_power_cut(stage: Stage, build: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Kill everything at once under load, start again, let it finish. The ids that were accepted meanwhile."""
    async with (
        serve(data_dir=stage.folder, env=build) as served,
        load(served, await stage.endpoint(served)) as producers,
    ):
        await producers.accepts(MANY)
        children = [await served.child_pid(name) for name in ("api", "worker-1")]
        for pid in (served.postmaster_pid, *children, served.program.pid):
            os.kill(pid, signal.SIGKILL)
        await served.program.process.wait()
    async with serve(data_dir=stage.folder):
        await all_succeed(stage.url)
        known = await counts(stage.url, "SELECT id, 1 FROM redrive.event")
        await assert_sound(stage.url, accepted=stage.accepted, received=stage.receiver.ids)
    return [event_id for event_id in producers.accepted if event_id not in known]


async def test_nothing_accepted_is_lost_when_the_power_goes(stage: Stage) -> None:
    assert await run_with_a_power_cut(stage) == []


async def test_a_build_that_answers_before_the_commit_is_caught(stage: Stage) -> None:
    assert len(await run_with_a_power_cut(stage, altered("early_answer"))) > 0


@pytest.fixture
def small_disk(data_dir: Path) -> Iterator[Path]:
    """A folder on a disk of its own that is soon full."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root, to mount a small disk")
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0755", "tmpfs", str(data_dir)], check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not let root mount a small disk")
    yield data_dir
    subprocess.run(["umount", "--lazy", str(data_dir)], check=True)


async def test_a_full_disk_is_told_and_what_was_accepted_is_safe(small_disk: Path, receiver: HoldingReceiver) -> None:
    folder = small_disk / "data"
    folder.mkdir(mode=0o755)
    ballast = small_disk / "ballast"
    accepted: list[str] = []
    async with serve(data_dir=folder) as served:
        remote = Remote(served.host, served.port, ADMIN_KEY)
        await remote.policy("quick", **QUICK)
        endpoint = await remote.endpoint(receiver.url, policy="quick")

        async def post() -> tuple[int, str]:
            answer = await remote.try_event(endpoint["id"], os.urandom(BIG).hex())
            if answer.status == 202:
                accepted.append(answer.json["event_id"])
                return 202, ""
            return answer.status, answer.json["detail"]

        assert await post() == (202, "")
        _fill(small_disk, ballast)
        for _ in range(300):
            status, reason = await post()
            if status != 202:
                break
        assert status == 503
        assert "disk is full" in reason or "cannot be reached" in reason  # PostgreSQL may have had to restart
        ballast.unlink()
        async with asyncio.timeout(60):
            while (await post())[0] != 202:
                await asyncio.sleep(0.1)
        for event_id in accepted:
            await remote.delivered(event_id)
        remote.close()
        url = running_url(folder)
        assert url is not None
        await assert_sound(url, accepted=accepted, received=receiver.ids)
        await served.program.terminated()


def _fill(disk: Path, ballast: Path) -> None:
    space = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - LEFT_BYTES)


async def test_more_than_can_wait_is_refused_and_not_stored(database_url: str) -> None:
    async with installation(database_url) as redrive:
        blocker = await asyncpg.connect(database_url)
        blocking = blocker.transaction()
        await blocking.start()
        await blocker.execute("LOCK TABLE redrive.event IN ACCESS EXCLUSIVE MODE")
        batch = [{"event_type": "nobody.listens", "payload": {"n": n}} for n in range(1_000)]
        posting = [
            asyncio.create_task(post_alone(redrive.host, redrive.port, ADMIN_KEY, "/v1/events/batch", batch))
            for _ in range(13)
        ]
        # Ten thousand events may wait for a commit; the rest is sent away at once.
        await until(lambda: sum(task.done() for task in posting) == 3)
        refused = [task.result() for task in posting if task.done()]
        assert {answer.status for answer in refused} == {503}
        assert all("wait" in answer.json["detail"] and answer.headers["retry-after"] for answer in refused)
        assert (await redrive.api.http.get("/readyz")).status == 503
        await blocking.rollback()
        await blocker.close()
        answers = await asyncio.gather(*posting)
        assert sorted(answer.status for answer in answers) == [202] * 10 + [503] * 3
        assert (await redrive.api.http.get("/readyz")).status == 200
    assert await counts(database_url, "SELECT status, count(*) FROM redrive.event_entry GROUP BY status") == {
        "received": 10_000
    }
    await assert_sound(database_url)
