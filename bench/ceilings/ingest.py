"""The ceilings of ingest: a plain ASGI route that shares commits, and FastAPI with one INSERT per request.

`ingest()` measures either with bench.load; run as a module it is the server process. Every answer follows its
commit. Plain ASGI stores the bytes unread; FastAPI validates them, as one would with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg

from bench.load import load
from bench.model import BODY_BYTES, Run
from bench.postgres import BenchPostgres, free_port
from bench.processes import Child, module

INGEST_TIMEOUT_S = 30
MAX_SHARED_ROWS = 1_000
POOL_SIZE = 16
SCHEMA = "CREATE TABLE event (id uuid PRIMARY KEY, received_at timestamptz NOT NULL DEFAULT now(), body bytea NOT NULL)"
INSERT_ONE = "INSERT INTO event (id, body) VALUES ($1, $2)"
INSERT_MANY = "INSERT INTO event (id, body) SELECT * FROM unnest($1::uuid[], $2::bytea[])"
ACCEPTED = b'{"status":"received"}'
JSON = [(b"content-type", b"application/json")]


def event_body() -> bytes:
    """An event of exactly BODY_BYTES, in the shape that POST /v1/events takes."""
    bare = json.dumps({"event_type": "bench.event", "payload": {"text": ""}})
    return bare.replace('""', json.dumps("x" * (BODY_BYTES - len(bare)))).encode()


async def ingest(server: BenchPostgres, kind: str, *, seconds: float, clients: int = 64) -> Run:
    """kind: `asgi` or `fastapi`."""
    async with server.database(f"ingest_{kind}") as url:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(SCHEMA)
        finally:
            await connection.close()
        port = free_port()
        child = await Child.start(
            f"ingest {kind}",
            module("bench.ceilings.ingest", kind, port),
            env={"INGEST_URL": url},
            ready="Uvicorn running on",
        )
        try:
            return await load(
                f"ingest {kind}",
                f"http://127.0.0.1:{port}/events",
                body=event_body(),
                headers={"content-type": "application/json"},
                clients=clients,
                seconds=seconds,
            )
        finally:
            await child.stop()


class SharedCommit:
    """Requests that arrive while a commit is under way share the next one."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()

    def add(self, body: bytes) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, stored))
        self._arrived.set()
        return stored

    async def run(self) -> None:
        insert = await self._connection.prepare(INSERT_MANY)
        while True:
            await self._arrived.wait()
            batch, self._waiting = self._waiting[:MAX_SHARED_ROWS], self._waiting[MAX_SHARED_ROWS:]
            if not self._waiting:
                self._arrived.clear()
            await insert.fetch([uuid4() for _ in batch], [body for body, _ in batch])
            for _, stored in batch:
                if not stored.done():
                    stored.set_result(None)


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def plain_asgi(shared: SharedCommit) -> Callable[..., Awaitable[None]]:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        parts = []
        while True:
            message = await receive()
            parts.append(message["body"])
            if not message.get("more_body"):
                break
        await shared.add(b"".join(parts))
        await send({"type": "http.response.start", "status": 202, "headers": JSON})
        await send({"type": "http.response.body", "body": ACCEPTED})

    return app


def fastapi_app(url: str) -> Any:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class NewEvent(BaseModel):
        event_type: str
        payload: dict[str, Any]

    pool: asyncpg.Pool | None = None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        nonlocal pool
        pool = await asyncpg.create_pool(url, min_size=POOL_SIZE, max_size=POOL_SIZE)
        yield
        pool.terminate()

    app = FastAPI(lifespan=lifespan)

    async def accept(event: NewEvent) -> dict[str, str]:
        assert pool is not None
        await pool.execute(INSERT_ONE, uuid4(), event.model_dump_json().encode())
        return {"status": "received"}

    accept.__annotations__ = {"event": NewEvent, "return": dict[str, str]}  # a local class cannot be named by text
    app.post("/events", status_code=202)(accept)
    return app


async def _serve(kind: str, port: int, url: str) -> None:
    import uvicorn

    tasks = []
    if kind == "asgi":
        shared = SharedCommit(await asyncpg.connect(url))
        tasks.append(asyncio.create_task(shared.run()))
        app: Any = plain_asgi(shared)
    else:
        app = fastapi_app(url)
    lifespan = "off" if kind == "asgi" else "on"
    config = uvicorn.Config(app, port=port, http="httptools", access_log=False, lifespan=lifespan, backlog=4096)
    await uvicorn.Server(config).serve()
    for task in tasks:
        task.cancel()


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["asgi", "fastapi"])
    parser.add_argument("port", type=int)
    args = parser.parse_args()
    uvloop.run(_serve(args.kind, args.port, os.environ["INGEST_URL"]))


if __name__ == "__main__":
    main()
