"""`/readyz` of a worker: 200 while its claims reach a database that takes writes, else 503 and why."""

from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from conftest import database_of
from redrive.store.embedded import EmbeddedPostgres
from support.engine import until
from support.http import HttpClient
from support.processes import worker
from support.proxy import postgres_proxy


async def test_a_worker_is_ready_while_its_database_is_there_and_takes_writes(
    postgres: EmbeddedPostgres, database_url: str, tmp_path: Path
) -> None:
    name = urlsplit(database_url).path.lstrip("/")
    owner = await asyncpg.connect(database_of(postgres.superuser_url, name))
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
    async with (
        postgres_proxy(database_url, tmp_path) as (proxy, url),
        worker(url, "--metrics-port", "0") as running,
    ):
        at = await running.said("metrics_at")
        client = HttpClient("127.0.0.1", urlsplit(str(at["url"])).port or 0)

        async def answers(status: int, words: str) -> bool:
            answer = await client.get("/readyz")
            return answer.status == status and words in answer.body.decode()

        await until(lambda: answers(200, ""))
        await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await owner.fetch(others, name)
        await until(lambda: answers(503, "The database takes no writes."), within_s=20)
        await owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await owner.fetch(others, name)
        await until(lambda: answers(200, ""), within_s=20)
        proxy.vanish()
        await until(lambda: answers(503, "The database does not answer ("), within_s=20)
        assert (await client.get("/healthz")).status == 200
        client.close()
    await owner.close()
