"""Which database a command works on, and what it says where there is none."""

import asyncio
import os
import pty
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from redrive.cli import connect
from redrive.cli.options import Where
from redrive.cli.runner import NO_ANSWER, UNREACHABLE, Unreachable, _code_of
from redrive.doctor.diagnose import CONNECTION, diagnose
from redrive.settings import load_settings
from redrive.store import db
from redrive.store.check import RULES, check
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.dead_letters import DeadLetterFilter, list_dead_letters
from redrive.store.embedded import EmbeddedPostgres, running_url
from redrive.store.events import NewEvent, accept
from redrive.store.orgs import new_id
from redrive.store.overview import overview
from redrive.store.postgres_folder import live_processes
from redrive.store.retry_queue import RetryQueueFilter, list_retry_queue

from .command import COMMAND, clean_env, redrive
from .world import SECRET_KEY, World


async def test_without_any_data_the_way_to_start_is_told(data_dir: Path) -> None:
    ended = await redrive("dead", "list", "--data-dir", str(data_dir / "none"))
    assert (ended.code, ended.out) == (3, "")
    assert str(data_dir / "none") in ended.err
    assert "redrive serve" in ended.err
    assert not (data_dir / "none").exists()


async def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    ended = await redrive("check", url="postgresql://me:hunter2@127.0.0.1:9/books")
    assert ended.code == 3
    assert "books at 127.0.0.1:9" in ended.err
    assert "hunter2" not in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("url", ["postgresql://me:hun/ter2@host/db", "postgresql://me:hunter2@host:x/db"])
async def test_nothing_of_an_unreadable_url_is_repeated(url: str) -> None:
    ended = await redrive("check", url=url)
    assert ended.code == 3
    assert not any(part in ended.err for part in ("hun", "ter2", "Traceback"))


async def test_a_database_without_our_schema_is_told_from_one_with_it(empty_database_url: str) -> None:
    ended = await redrive("events", "list", url=empty_database_url)
    assert ended.code == 3
    assert "redrive migrate" in ended.err
    migrated = await redrive("migrate", "--json", url=empty_database_url)
    assert migrated.code == 0
    assert len(migrated.object["applied"]) == migrated.object["schema"] > 0
    again = await redrive("migrate", url=empty_database_url)
    assert (again.code, again.out) == (0, "")
    assert "nothing to do" in again.err
    checked = await redrive("check", url=empty_database_url)
    assert checked.code == 0, checked.err


@asynccontextmanager
async def _locked(world: World) -> AsyncIterator[None]:
    """Nobody can so much as look at tasks and events meanwhile."""
    connection = await asyncpg.connect(world.url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE redrive.task, redrive.event IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("dead", "list"), "lock_timeout"),
        (("events", "list"), "lock_timeout"),
        (("send", "order.paid"), "lock_timeout"),
        (("send", "order.paid"), "statement_timeout"),
    ],
)
async def test_a_command_that_is_not_answered_for_a_lock_says_so_and_who_knows_whose(
    world: World, words: tuple[str, ...], limit: str
) -> None:
    """The limit comes with the URL: nobody waits for that of 15 seconds."""
    async with _locked(world):
        ended = await redrive(*words, url=f"{world.url}{'&' if '?' in world.url else '?'}{limit}=300")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == f"{NO_ANSWER}\n"


async def test_a_time_that_is_over_on_our_side_is_told_in_the_same_words(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(db, "COMMAND_TIMEOUT_S", 0.3)

    async def look() -> bool:
        engine = await Database.open(world.url, role="redrive_engine", size=1)
        try:
            await overview(engine, None, DatabaseClock())
        finally:
            await engine.close()
        return True

    async with _locked(world):
        assert await asyncio.to_thread(_code_of, look, asyncio.run) == UNREACHABLE
    assert capsys.readouterr().err == f"{NO_ANSWER}\n"


@pytest.mark.parametrize("how", ["as the engine", "as the app", "of all orgs"])
async def test_every_command_waits_for_each_answer_no_longer_than_a_person_would(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """With connecting and closing, a person hears within 15 s of a database that is locked or away."""
    longest_s = max(db.CONNECT_TIMEOUT_S, connect.STARTING_PATIENCE_S, connect.STATEMENT_WITHIN_S)
    assert longest_s + db.CLOSE_WITHIN_S + db.TIDY_WITHIN_S < 15
    monkeypatch.setattr(connect, "STATEMENT_WITHIN_S", 0.3)
    place = Where(data_dir=None, database_url=world.url, org="default")

    async def look() -> bool:
        if how == "of all orgs":
            async with connect.open_installation(place) as engine:
                await overview(engine, None, DatabaseClock())
            return True
        async with connect.open_desk(place) as desk:
            if how == "as the engine":
                await accept(desk.engine, [NewEvent(desk.org_id, new_id(), "order.paid", b"{}")], DatabaseClock())
            else:
                async with desk.session() as session:
                    await list_dead_letters(session, DeadLetterFilter(), limit=1, after=None)
                    await list_retry_queue(session, RetryQueueFilter(), limit=1, after=None)
        return True

    async with _locked(world):
        assert await asyncio.to_thread(_code_of, look, asyncio.run) == UNREACHABLE
    assert capsys.readouterr().err == f"{NO_ANSWER}\n"


async def test_a_command_that_may_take_long_says_what_it_waits_for(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect, "STATEMENT_WITHIN_S", 0.1)
    async with _locked(world):
        checking = asyncio.create_task(connect.with_a_note(check(world.url), connect.SLOW))
        async with asyncio.timeout(20):
            while not (told := capsys.readouterr().err):
                await asyncio.sleep(0.02)
        assert told == f"Still waiting. {connect.SLOW}\n"
    assert (await checking).clean


async def test_a_setting_that_cannot_be_used_is_wrong_usage(world: World) -> None:
    ended = await redrive("dead", "list", url=world.url, env={"REDRIVE_PORT": "many"})
    assert (ended.code, ended.out) == (2, "")
    assert "REDRIVE_PORT" in ended.err


async def test_the_embedded_postgresql_is_started_for_the_command_and_stopped_again(data_dir: Path) -> None:
    folder = data_dir / "data"
    server = await EmbeddedPostgres.start(folder)
    await server.stop()
    ended = await redrive("migrate", "--json", "--data-dir", str(folder))
    assert ended.code == 0, ended.err
    assert ended.object["schema"] > 0
    assert "started for this command" in ended.err
    assert live_processes(folder / "postgres", folder / "postgres.new") == []


async def test_a_running_embedded_postgresql_is_used(data_dir: Path) -> None:
    folder = data_dir / "data"
    server = await EmbeddedPostgres.start(folder)
    try:
        ended = await redrive("migrate", "--data-dir", str(folder))
        assert ended.code == 0, ended.err
        assert "started for this command" not in ended.err
        assert server.pid in live_processes(folder / "postgres", folder / "postgres.new")
    finally:
        await server.stop()


async def test_an_embedded_postgresql_that_does_not_answer_is_told_with_its_log_not_with_an_address(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "CONNECT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(connect, "STARTING_PATIENCE_S", 0.0)
    folder = data_dir / "data"
    settings = load_settings(data_dir=folder)
    server = await EmbeddedPostgres.start(folder)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable) as told:
            async with connect.reach(settings):
                raise AssertionError("it answered")
        url = running_url(folder)
        assert url is not None
        [found] = [one for one in (await diagnose(settings, url)).examinations if one.name == CONNECTION]
    finally:
        os.kill(server.pid, signal.SIGCONT)
        await server.stop()
    assert (folder / "postgres.log").exists()
    assert f"The PostgreSQL of the data folder {folder} does not answer: no answer in time" in str(told.value)
    for text in (str(told.value), found.saw + found.findings[0].fix):
        assert f"The PostgreSQL of the data folder {folder} does not answer" in text
        assert str(folder / "postgres.log") in text
        assert "redrive serve" in text
        assert "password" not in text


async def test_check_prints_the_books_and_its_exit_code_tells(world: World) -> None:
    await world.dead()
    fine = await redrive("check", "--by-org", url=world.url)
    assert fine.code == 0, fine.out
    assert fine.out.count("1 events = 0 received + 0 queued + 0 delivered + 1 failed") == 2
    assert f"All {len(RULES)} rules hold" in fine.err
    await world.engine._pool.execute("UPDATE redrive.counter SET n = n + 1 WHERE name = 'dead.open'")
    broken = await redrive("check", url=world.url)
    assert broken.code == 1
    assert "BROKEN  counters" in broken.out
    assert str(world.org_id) in broken.out
    machine = await redrive("check", "--json", url=world.url)
    assert machine.code == 1
    [violation] = machine.object["violations"]
    assert violation["rule"] == "counters"
    assert machine.object["books"]["dead_open"] == 1
    assert not machine.object["clean"]


async def test_ids_stay_whole_on_a_narrow_terminal(world: World) -> None:
    task_id = await world.dead("order." + "x" * 60)
    ours, theirs = pty.openpty()
    env = clean_env(REDRIVE_DATABASE_URL=world.url, REDRIVE_SECRET_KEY=SECRET_KEY, COLUMNS="60", TERM="xterm")
    process = await asyncio.create_subprocess_exec(*COMMAND, "dead", "list", stdout=theirs, env=env, cwd="/")
    os.close(theirs)
    said = b""
    try:
        while chunk := await asyncio.to_thread(os.read, ours, 65536):
            said += chunk
    except OSError:
        pass  # the other side is closed: that is how a terminal ends
    finally:
        os.close(ours)
    assert await process.wait() == 0
    assert str(task_id) in said.decode()
