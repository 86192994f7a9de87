"""Handing in within the caller's own transaction: the task exists exactly when the caller's commit does."""

from pathlib import Path

import asyncpg
import psycopg
from sqlalchemy.ext.asyncio import create_async_engine

from redrive import Redrive
from support.installation import installation
from support.oracle import all_succeed, assert_sound, counts
from support.processes import until, worker

APP = """
import os
from redrive import Redrive

app = Redrive()

@app.handler("orders.send", policy="integration")
async def send(task):
    with open(os.environ["HANDLED"], "a") as file:
        file.write(f"{task.payload['order']}\\n")
"""


async def test_what_is_rolled_back_was_never_there_and_what_is_committed_is_carried_out(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "orders.py").write_text(APP)
    handled = tmp_path / "handled"
    handled.touch()
    async with installation(database_url):  # the org, its policies
        pass
    app = Redrive(database_url)

    for commits in (False, True):
        await _through_asyncpg(app, database_url, commits=commits)
        await _through_psycopg(app, database_url, commits=commits)
        await _through_sqlalchemy(app, database_url, commits=commits)
        events = await counts(database_url, "SELECT 'events', count(*) FROM redrive.event")
        assert events == {"events": 3 if commits else 0}

    async with worker(database_url, "--app", "orders:app", cwd=tmp_path, env={"HANDLED": str(handled)}):
        await until(lambda: len(handled.read_text().split()) >= 3)
        await all_succeed(database_url)
    assert sorted(handled.read_text().split()) == ["asyncpg-True", "psycopg-True", "sqlalchemy-True"]
    await app.close()
    await assert_sound(database_url)


async def _through_asyncpg(app: Redrive, url: str, *, commits: bool) -> None:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await app.enqueue("orders.send", {"order": f"asyncpg-{commits}"}, connection=connection)
    await (transaction.commit() if commits else transaction.rollback())
    await connection.close()


async def _through_psycopg(app: Redrive, url: str, *, commits: bool) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await app.enqueue("orders.send", {"order": f"psycopg-{commits}"}, connection=connection)
        await (connection.commit() if commits else connection.rollback())


async def _through_sqlalchemy(app: Redrive, url: str, *, commits: bool) -> None:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://").replace("&port=5432", ""))
    async with engine.connect() as connection:
        await app.enqueue("orders.send", {"order": f"sqlalchemy-{commits}"}, connection=connection)
        await (connection.commit() if commits else connection.rollback())
    await engine.dispose()
