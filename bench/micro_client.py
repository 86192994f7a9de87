"""Measure the CPU that the delivering client spends per request, against a bare receiver in another process.

Run by hand: `python bench/micro_client.py [--loop uvloop|asyncio] [--seconds 2] [--concurrency 64] [--profile]`.
Opens loopback sockets only. CPU is that of the sending process; figures compare within one run alone.
"""

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import os
import pstats
import time
from multiprocessing.connection import Connection as Pipe

import uvloop

from redrive.core.address import AddressRules, parse_target
from redrive.destinations.client import Client, Request, build_head

MAX_SECONDS = 5.0
BODY_BYTES = 512
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nserver: bare\r\n\r\nok"


class Receiver(asyncio.Protocol):
    """Answers 200 for every `expected` bytes: parses nothing, so that the sender is what is measured."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.pending = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pending += len(data)
        answers, self.pending = divmod(self.pending, self.expected)
        if answers:
            self.transport.write(ANSWER * answers)  # type: ignore[attr-defined]


def receive(pipe: Pipe, extra: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Receiver(extra), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


def sample_head() -> bytes:
    return build_head(
        (
            ("content-type", "application/json"),
            ("user-agent", "redrive/0.1"),
            ("webhook-id", "msg_01J0000000000000000000000"),
            ("webhook-timestamp", "1700000000"),
            ("webhook-signature", "v1," + "A" * 44),
        )
    )


def expected_bytes(port: int, head: bytes) -> int:
    fixed = f"POST /hook HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept-encoding: identity\r\n"
    return len(fixed) + len(f"content-length: {BODY_BYTES}\r\n") + len(head) + 2 + BODY_BYTES


async def measure(port: int, seconds: float, concurrency: int) -> dict[str, float]:
    client = Client(rules=AddressRules.parse("127.0.0.0/8"))
    request = Request(parse_target(f"http://127.0.0.1:{port}/hook"), sample_head(), b"x" * BODY_BYTES)
    done = 0

    async def sender(until: float) -> None:
        nonlocal done
        while time.monotonic() < until:
            answer = await client.send(request, timeout_s=10)
            assert answer.status == 200
            done += 1

    await asyncio.gather(*(sender(time.monotonic() + 0.2) for _ in range(concurrency)))
    done = 0
    cpu, wall = time.process_time(), time.monotonic()
    await asyncio.gather(*(sender(wall + seconds) for _ in range(concurrency)))
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    await client.aclose()
    return {"requests": done, "cpu_us": round(cpu / done * 1e6, 2), "per_s": round(done / wall)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    seconds = min(options.seconds, MAX_SECONDS)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    # The port is five digits on Linux' ephemeral range, so the request's length is known beforehand.
    receiver = context.Process(target=receive, args=(theirs, expected_bytes(10_000, sample_head())), daemon=True)
    receiver.start()
    try:
        port = ours.recv()
        factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
        profiler = cProfile.Profile() if options.profile else None
        with asyncio.Runner(loop_factory=factory) as runner:
            if profiler is not None:
                profiler.enable()
            result = runner.run(measure(port, seconds, options.concurrency))
            if profiler is not None:
                profiler.disable()
        print(json.dumps({"loop": options.loop, "concurrency": options.concurrency, "pid": os.getpid(), **result}))
        if profiler is not None:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    finally:
        receiver.terminate()
        receiver.join(5)


if __name__ == "__main__":
    main()
