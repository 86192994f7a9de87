"""A receiver of webhooks that costs little: answers each POST at once and remembers which ids arrived when.

Run as a process of its own (`python -m bench.receiver`); `Receiver.start` does that and speaks to its control
path. Listens on loopback only. Used by the peers, the ceilings and Redrive's own side alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from bench.processes import Child, ProcessError, module

MAX_ARRIVALS = 2_000_000
MAX_REQUEST_BYTES = 8 * 1024 * 1024
CONTROL = b"/_control/"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Ledger:
    """What arrived. One per receiver process; cleared by a reset."""

    def __init__(self) -> None:
        self.reset({})
        self.open_connections = 0

    def behave(self, options: Mapping[str, str]) -> None:
        """What is not named stays as it is."""
        if "flaky" in options:
            self.flaky = options["flaky"] == "1"
        if "down" in options:
            self.down = options["down"] == "1"
        if "delay_ms" in options:
            self.delay_s = float(options["delay_ms"]) / 1000

    def reset(self, options: Mapping[str, str]) -> None:
        self.flaky = self.down = False
        self.delay_s = 0.0
        self.behave(options)
        self.requests = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.levels: list[int] = []
        self.failed_once: set[bytes] = set()
        self.delivered: set[bytes] = set()
        self.duplicates = 0
        self.first_at = 0.0
        self.last_at = 0.0
        self.arrivals: list[tuple[bytes, float, int]] = []
        self.target = 0
        self.reached = asyncio.Event()

    def answer(self, job: bytes) -> bytes:
        now = time.monotonic()
        self.requests += 1
        if not self.first_at:
            self.first_at = now
        self.in_flight += 1
        if self.in_flight > self.most_in_flight:
            self.most_in_flight = self.in_flight
        status = 503 if self.down else 200
        if self.flaky and job not in self.failed_once:
            self.failed_once.add(job)
            status = 503
        if len(self.arrivals) < MAX_ARRIVALS:
            self.arrivals.append((job, now, status))
            self.levels.append(self.in_flight)
        if status == 503:
            return UNAVAILABLE
        if job in self.delivered:
            self.duplicates += 1
        self.delivered.add(job)
        self.last_at = now
        if self.target and len(self.delivered) >= self.target:
            self.reached.set()
        return OK

    def counts(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "delivered": len(self.delivered),
            "failed_once": len(self.failed_once),
            "duplicates": self.duplicates,
            "first_at": self.first_at,
            "last_at": self.last_at,
            "open_connections": self.open_connections,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
        }

    async def control(self, path: str) -> object:
        name, _, query = path.partition("?")
        options = dict(parse_qsl(query))
        match name:
            case "reset":
                self.reset(options)
            case "behave":
                self.behave(options)
            case "levels":
                return self.levels
            case "wait":
                self.target = int(options["delivered"])
                if len(self.delivered) < self.target:
                    self.reached.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.reached.wait(), float(options["seconds"]))
            case "arrivals":
                return [(job.decode(errors="replace"), at, status) for job, at, status in self.arrivals]
        return self.counts()


class _Protocol(asyncio.Protocol):
    __slots__ = ("_buffer", "_ledger", "_replies", "_tasks", "_transport")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._replies: deque[asyncio.TimerHandle] = deque()  # held back

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._ledger.open_connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._ledger.open_connections -= 1
        for reply in self._replies:
            reply.cancel()
            self._ledger.in_flight -= 1

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        transport = self._transport
        assert transport is not None
        while data:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                break
            head = data[: end + 2].lower()
            body_bytes = int(_header(head, b"\r\ncontent-length:") or b"0")
            total = end + 4 + body_bytes
            if total > MAX_REQUEST_BYTES or b"\r\ntransfer-encoding:" in head:
                transport.write(BAD_REQUEST)
                transport.close()
                return
            if len(data) < total:
                break
            path = head[head.find(b" ") + 1 : head.find(b" http/")]
            if path.startswith(CONTROL):
                self._start_control(path[len(CONTROL) :].decode())
            else:
                self._reply(self._ledger.answer(_job(head)))
            data = data[total:]
        self._buffer = data
        if len(data) > MAX_REQUEST_BYTES:
            transport.close()

    def _reply(self, answer: bytes) -> None:
        if self._ledger.delay_s:
            loop = asyncio.get_running_loop()
            self._replies.append(loop.call_later(self._ledger.delay_s, self._reply_later, answer))
        else:
            self._ledger.in_flight -= 1
            self._transport.write(answer)  # type: ignore[union-attr]

    def _reply_later(self, answer: bytes) -> None:
        self._replies.popleft()
        self._ledger.in_flight -= 1
        self._transport.write(answer)  # type: ignore[union-attr]

    def _start_control(self, path: str) -> None:
        task = asyncio.get_running_loop().create_task(self._control(path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _control(self, path: str) -> None:
        body = json.dumps(await self._ledger.control(path)).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)  # type: ignore[union-attr]


def _job(head: bytes) -> bytes:
    """The id of a webhook, or the key of a workflow's step."""
    return _header(head, b"\r\nwebhook-id:") or _header(head, b"\r\nidempotency-key:")


def _header(head: bytes, name: bytes) -> bytes:
    """A header's value from a lower-case head; `name` with the line break before and the colon after it."""
    start = head.find(name)
    if start < 0:
        return b""
    start += len(name)
    return head[start : head.index(b"\r\n", start)].strip()


@dataclass(slots=True)
class Receiver:
    """A receiver process, seen from the bench."""

    child: Child
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def url_at(self, address: int) -> str:
        """The same receiver as another origin: one of the addresses that it was started with, from 0 on."""
        return f"http://127.0.0.{address + 1}:{self.port}/hook"

    @classmethod
    async def start(cls, *, flaky: bool = False, delay_ms: float = 0, addresses: int = 1) -> Receiver:
        child = await Child.start(
            "receiver", module("bench.receiver", "--addresses", addresses), ready="receiver ready"
        )
        receiver = cls(child, int(child.ready_line.rsplit(" ", 1)[1]))
        try:
            await receiver.reset(flaky=flaky, delay_ms=delay_ms)
        except BaseException:
            await child.stop()
            raise
        return receiver

    async def reset(self, *, flaky: bool = False, delay_ms: float = 0) -> None:
        await self._call("reset", flaky=int(flaky), delay_ms=delay_ms)

    async def behave(self, *, down: bool, delay_ms: float) -> None:
        """From now on, and what arrived so far stays known. Down: 503 for everybody."""
        await self._call("behave", down=int(down), delay_ms=delay_ms)

    async def levels(self) -> list[int]:
        """How many requests were in flight at each arrival, that one included; in the order of arrivals()."""
        return await self._call("levels")  # type: ignore[return-value]

    async def counts(self) -> dict[str, float]:
        return await self._call("counts")  # type: ignore[return-value]

    async def arrivals(self) -> list[tuple[str, float, int]]:
        """Every request: id, when (time.monotonic(), the same clock in every process), status given."""
        return [(job, at, status) for job, at, status in await self._call("arrivals")]  # type: ignore[attr-defined]

    async def wait_for(self, delivered: int, *, timeout_s: float, workers: Iterable[Child] = ()) -> dict[str, float]:
        """Wait until so many distinct ids were answered 200; ProcessError when time is up or a worker ended."""
        watched = tuple(workers)
        deadline = time.monotonic() + timeout_s
        while True:
            for worker in watched:
                worker.require_alive()
            counts = await self._call("wait", delivered=delivered, seconds=0.5)
            if counts["delivered"] >= delivered:  # type: ignore[index]
                return counts  # type: ignore[return-value]
            if time.monotonic() > deadline:
                got = counts["delivered"]  # type: ignore[index]
                tails = "; ".join(f"{worker.name}: {worker.tail[-500:]}" for worker in watched)
                raise ProcessError(f"{got:.0f} of {delivered} delivered after {timeout_s:.0f} s. {tails}")

    async def _call(self, name: str, **options: object) -> object:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=MAX_REQUEST_BYTES)
        try:
            target = f"/_control/{name}?{urlencode(options)}"
            writer.write(f"GET {target} HTTP/1.1\r\nhost: receiver\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            return json.loads(await reader.readexactly(length))
        finally:
            writer.close()

    async def stop(self) -> None:
        await self.child.stop()


@contextlib.asynccontextmanager
async def receiving(*, flaky: bool = False, delay_ms: float = 0, addresses: int = 1) -> AsyncIterator[Receiver]:
    receiver = await Receiver.start(flaky=flaky, delay_ms=delay_ms, addresses=addresses)
    try:
        yield receiver
    finally:
        await receiver.stop()


async def _serve(port: int, addresses: int) -> None:
    ledger = Ledger()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Protocol(ledger), "127.0.0.1", port, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    more = [f"127.0.0.{number}" for number in range(2, addresses + 1)]
    if more:
        await loop.create_server(lambda: _Protocol(ledger), more, port, backlog=4096)
    print("receiver ready", port, flush=True)
    await server.serve_forever()


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--addresses", type=int, default=1, help="listen on 127.0.0.1, 127.0.0.2 and so on")
    args = parser.parse_args()
    uvloop.run(_serve(args.port, args.addresses))


if __name__ == "__main__":
    main()
