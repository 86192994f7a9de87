"""What the error stack of a failed transfer tells: its phases with their times, the address, and what caused it."""

import asyncio
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from redrive.core.address import Ip
from redrive.destinations.client import Client, Request, TransferError

from .harness import (
    OK,
    Authority,
    Reader,
    ScriptedNames,
    Writer,
    a_client,
    answering,
    on_both_loops,
    post,
    read_request,
    serving,
)

TIME = re.compile(r" +\d+\.\d ms")
BAD = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\ndown"


def shown(stack: str | None, port: int) -> list[str]:
    """Its lines without times and ports."""
    assert stack is not None
    return [TIME.sub("", line).replace(str(port), "PORT") for line in stack.splitlines()]


async def failed(client: Client, request: Request, timeout_s: float = 5.0) -> str | None:
    try:
        answer = await client.send(request, timeout_s=timeout_s)
    except TransferError as error:
        return error.stack
    return answer.stack


@on_both_loops
async def test_a29_an_answer_that_is_a_failure_tells_every_phase_of_its_exchange() -> None:
    async with answering(BAD) as server, a_client() as client:
        first = await failed(client, post(server.port))
        again = await failed(client, post(server.port))
    assert shown(first, server.port) == [
        "http://127.0.0.1:PORT",
        "  resolve  127.0.0.1",
        "  connect  127.0.0.1:PORT",
        "  send",
        "  first byte",
        "  body  59 bytes with the headers",
        "answered 503",
    ]
    reused = r"  reused connection to 127\.0\.0\.1:PORT, opened \d+\.\d s before"
    assert re.fullmatch(reused, shown(again, server.port)[1])
    assert "s3cret" not in str((first, again))


@on_both_loops
async def test_a29_tls_is_a_phase(tmp_path: Path) -> None:
    authority = Authority.create()
    names = ScriptedNames(hooks_example=[["127.0.0.1"]])
    context = authority.server_context(tmp_path, "hooks.example")
    async with answering(BAD, tls=context) as server, a_client(resolver=names) as client:
        url = f"https://hooks.example:{server.port}/"
        good = await failed(client, post(0, url=url, ca_pem=authority.pem))
        bad = await failed(client, post(0, url=url))
    assert shown(good, server.port)[3] == "  TLS  TLSv1.3"
    told = shown(bad, server.port)
    assert told[3] == "  TLS  not finished"
    assert told[4].startswith("TransferError: the certificate of https://hooks.example:PORT was not accepted: ")
    assert told[5].startswith("caused by SSLCertVerificationError: ")


@on_both_loops
async def test_a29_each_address_that_refuses_is_told_with_the_exceptions() -> None:
    with socket.socket() as closed:  # bound, not listening: what connects is refused
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        names = ScriptedNames(hooks_example=[["127.0.0.1", "127.0.0.1"]])
        async with a_client(resolver=names) as client:
            stack = await failed(client, post(0, url=f"http://hooks.example:{port}/"))
    told = shown(stack, port)
    assert told[:2] == ["http://hooks.example:PORT", "  resolve  127.0.0.1, 127.0.0.1"]
    assert [line.startswith("  connect  127.0.0.1:PORT: Connect") for line in told[2:4]] == [True, True]
    assert told[4].startswith("TransferError: could not connect to http://hooks.example:PORT: Connect")
    assert told[5].startswith("caused by ConnectionRefusedError: [Errno 111] Connect")


@on_both_loops
async def test_a29_a_name_without_an_address_is_told() -> None:
    class NoNames:
        async def resolve(self, host: str, port: int) -> Sequence[Ip]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with a_client(resolver=NoNames()) as client:
        stack = await failed(client, post(0, url="http://nowhere.example/"))
    told = shown(stack, 0)
    assert told[:2] == ["http://nowhere.example", "  resolve  not finished"]
    assert told[-1] == "caused by gaierror: [Errno -2] Name or service not known"


@on_both_loops
async def test_a29_a_deadline_and_a_reset_tell_how_far_it_came() -> None:
    async def hang(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        await reader.read()

    async def reset(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with serving(hang) as silent, serving(reset) as rude, a_client() as client:
        late = await failed(client, post(silent.port), timeout_s=0.3)
        cut = await failed(client, post(rude.port))
    assert late is not None
    waited = re.search(r"first byte +(\d+\.\d) ms  none came", late)
    assert waited is not None
    assert 200 <= float(waited[1]) <= 5_000
    assert shown(late, silent.port)[-1] == "TransferError: http://127.0.0.1:PORT did not answer before the deadline"
    told = shown(cut, rude.port)
    assert told[4] == "  first byte  none came"
    assert told[5].startswith("TransferError: http://127.0.0.1:PORT reset the connection")
    assert told[6].startswith("caused by ConnectionResetError")


@on_both_loops
async def test_a29_a_connection_that_is_never_made_tells_how_long_it_was_waited_for() -> None:
    class Slow:
        async def resolve(self, host: str, port: int) -> Sequence[Ip]:
            await asyncio.sleep(60)
            return ()

    async with answering(OK) as server, a_client(resolver=Slow()) as client:
        stack = await failed(client, post(0, url=f"http://slow.example:{server.port}/"), timeout_s=0.2)
    assert stack is not None
    waited = re.search(r"resolve +(\d+\.\d) ms  not finished", stack)
    assert waited is not None
    assert 100 <= float(waited[1]) <= 5_000
