"""`redrive worker`: handlers of a program of one's own, run by a process of their own."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.store.check import check

from .command import COMMAND, clean_env, redrive
from .world import SECRET_KEY, World

Eventually = Callable[..., Awaitable[None]]

PROGRAM = """
from pathlib import Path
from redrive import Redrive

app = Redrive({url!r})
idle = Redrive()
number = 7

@app.handler("edi.orders")
async def send_order(task):
    Path("seen").write_text(str(task.payload["order"]))

pager = Redrive({url!r})

@pager.on_dead_letter
def page(notice):
    Path("paged").write_text(str(notice.task_id))
"""


@pytest.fixture
def program(tmp_path: Path, empty_url: str) -> Path:
    (tmp_path / "orders.py").write_text(PROGRAM.format(url=empty_url))
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    return tmp_path


async def test_a_worker_runs_the_handlers_of_an_app_and_drains(
    world: World, program: Path, eventually: Eventually
) -> None:
    producer = Redrive(world.url)
    await producer.enqueue("edi.orders", {"order": 7})
    await producer.close()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "worker",
        "--app",
        "orders:app",  # which names the database itself
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=clean_env(REDRIVE_SECRET_KEY=SECRET_KEY, REDRIVE_DATA_DIR=str(program / "data")),
        cwd=program,
    )
    try:
        await eventually(lambda: (program / "seen").exists(), within_s=40)
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, out) == (0, b"")
    assert (program / "seen").read_text() == "7"
    report = await check(world.url)
    assert report.clean
    assert report.total.delivered == 1


async def test_a_worker_calls_the_callback_of_an_app_without_handlers(
    world: World, program: Path, eventually: Eventually
) -> None:
    task_id = await world.dead()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "worker",
        "--app",
        "orders:pager",
        stderr=asyncio.subprocess.DEVNULL,
        env=clean_env(REDRIVE_SECRET_KEY=SECRET_KEY, REDRIVE_DATA_DIR=str(program / "data")),
        cwd=program,
    )
    try:
        await eventually(lambda: (program / "paged").exists(), within_s=40)
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
    assert (program / "paged").read_text() == str(task_id)


@pytest.mark.parametrize(
    ("app", "code", "said"),
    [
        ("orders", 2, "MODULE:NAME"),
        ("nowhere:app", 2, "There is no module nowhere"),
        ("orders:nothing", 2, "no such name"),
        ("orders:number", 2, "is a int"),
        ("orders:idle", 1, "has no handlers"),
        ("broken:app", 1, "no_such_module_at_all"),
    ],
)
async def test_an_app_that_cannot_be_run_is_explained(program: Path, app: str, code: int, said: str) -> None:
    ended = await redrive("worker", "--app", app, env={"REDRIVE_SECRET_KEY": SECRET_KEY}, cwd=program)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


async def test_a_worker_without_the_sealing_key_is_refused_and_makes_none(world: World, data_dir: Path) -> None:
    env = {"REDRIVE_DATABASE_URL": world.url, "REDRIVE_DATA_DIR": str(data_dir)}
    ended = await redrive("worker", env=env)
    assert ended.code == 1
    assert "REDRIVE_SECRET_KEY" in ended.err
    assert list(data_dir.iterdir()) == []
