"""A load generator for HTTP ingest: keep-alive connections, one request in flight on each, in its own process.

`load()` starts it (`python -m bench.load`) against ceilings and Redrive alike and returns a Run with p50, p95
and p99. Loopback only; bounded in time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from bench.model import Run, latency_figures
from bench.processes import command, module
from bench.wire import Connection, host_and_port, request_head

MAX_SECONDS = 60.0
MAX_CLIENTS = 1_000
WARM_UP_S = 0.5


async def load(
    name: str,
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    clients: int = 64,
    seconds: float = 3.0,
    warm_up_s: float = WARM_UP_S,
    expect: int = 202,
    per_request: int = 1,
    paths: Sequence[str] = (),
) -> Run:
    """POST `body` for so long; any status but `expect` is an error. A request counts `per_request` times.

    With `paths` these are got (GET) in turn instead, at the origin of `url`.
    """
    assert clients <= MAX_CLIENTS
    assert seconds <= MAX_SECONDS
    with tempfile.TemporaryDirectory(prefix="redrive-load-") as folder:
        job = Path(folder) / "job.json"
        job.touch(mode=0o600)  # headers may hold an API key: never on a command line
        job.write_text(
            json.dumps(
                {
                    "url": url,
                    "headers": dict(headers or {}),
                    "body": body.decode("latin-1"),
                    "clients": clients,
                    "seconds": seconds,
                    "warm_up_s": warm_up_s,
                    "expect": expect,
                    "paths": list(paths),
                }
            )
        )
        out = json.loads(await command(module("bench.load", job), timeout_s=seconds + warm_up_s + 30))
    return Run.timed(name, out["n"] * per_request, out["seconds"], out["latency"] | {"requests": out["n"]})


class Generator:
    """Callbacks only: a task per request would cost more than the request."""

    def __init__(self, job: Mapping[str, object]) -> None:
        self._job = job
        self._requests = cycle(_requests(job))
        self._expect = int(job["expect"])  # type: ignore[call-overload]
        self._started: list[float] = []
        self._latencies_ms: list[float] = []
        self._counting = False
        self._stopping = False
        self._open = 0
        self._failure = ""
        self._finished: asyncio.Future[None] | None = None

    async def run(self) -> dict[str, object]:
        loop = asyncio.get_running_loop()
        self._finished = loop.create_future()
        host, port = host_and_port(str(self._job["url"]))
        clients = int(self._job["clients"])  # type: ignore[call-overload]
        self._started = [0.0] * clients
        connections = [
            (await loop.create_connection(lambda: Connection(lambda _: None), host, port))[1] for _ in range(clients)
        ]
        self._connections = connections
        self._open = clients
        for index in range(clients):
            self._next(index)
        await self._pause(float(self._job["warm_up_s"]))  # type: ignore[arg-type]
        self._counting = True
        begin = time.perf_counter()
        await self._pause(float(self._job["seconds"]))  # type: ignore[arg-type]
        self._counting, self._stopping = False, True
        seconds = time.perf_counter() - begin
        async with asyncio.timeout(20):
            await self._finished
        if self._failure:
            raise SystemExit(self._failure)
        latency = latency_figures(self._latencies_ms)
        return {"n": len(self._latencies_ms), "seconds": seconds, "latency": latency}

    async def _pause(self, seconds: float) -> None:
        """Sleep, but end at once when the server misbehaves."""
        await asyncio.wait([self._finished], timeout=seconds)  # type: ignore[list-item]

    def _next(self, index: int) -> None:
        self._started[index] = time.perf_counter()
        self._connections[index].send(next(self._requests), index, self._done)

    def _done(self, index: int, status: int) -> None:
        if self._counting:
            self._latencies_ms.append((time.perf_counter() - self._started[index]) * 1000)
        if status != self._expect:
            self._failure = f"the server answered {status}, not {self._expect} (0 = connection lost)"
            self._stopping = True
        if not self._stopping:
            asyncio.get_running_loop().call_soon(self._next, index)  # after the connection is free again
            return
        self._open -= 1
        if self._finished is not None and not self._finished.done() and (self._open == 0 or self._failure):
            self._finished.set_result(None)


def _requests(job: Mapping[str, object]) -> Iterator[bytes]:
    url, headers = str(job["url"]), job["headers"]
    body = str(job["body"]).encode("latin-1")
    if not job["paths"]:
        yield request_head(url, headers, len(body)) + b"\r\n" + body  # type: ignore[arg-type]
    for path in job["paths"]:  # type: ignore[attr-defined]
        yield request_head(url + path, headers, 0, "GET") + b"\r\n"  # type: ignore[arg-type]


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    job = json.loads(parser.parse_args().job.read_text())
    print(json.dumps(uvloop.run(Generator(job).run())))


if __name__ == "__main__":
    main()
