"""Every shape an answer may have, and what is made of those it may not have."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import binary, lists, sampled_from

from redrive.destinations.client import FailureKind, Response, TransferError
from redrive.destinations.client.protocol import MAX_HEAD_BYTES, MAX_INTERIM_ANSWERS

from .harness import OK, Reader, Writer, a_client, answering, on_both_loops, post, read_request, serving


async def answer_to(data: bytes, *, close: bool = False, **options: int) -> Response:
    async with answering(data, close=close) as server, a_client(**options) as client:
        return await client.send(post(server.port), timeout_s=5)


async def failure_of(data: bytes, *, close: bool = False) -> TransferError:
    with pytest.raises(TransferError) as caught:
        await answer_to(data, close=close)
    return caught.value


@on_both_loops
async def test_a_chunked_body_is_put_together_and_its_connection_reused() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nx-trailer: 1\r\n\r\n"
    )
    async with answering(chunked) as server, a_client() as client:
        for _ in range(2):
            response = await client.send(post(server.port), timeout_s=5)
            assert response.body == b"abcdefg"
            assert response.header(b"x-trailer") is None
        assert server.connections == 1


@on_both_loops
async def test_a_body_without_length_ends_with_the_connection() -> None:
    response = await answer_to(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)
    assert (response.body, response.body_error) == (b"all of it", None)


@on_both_loops
async def test_http_1_0_is_understood_and_its_connection_not_reused() -> None:
    async with answering(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok") as server, a_client() as client:
        for _ in range(2):
            assert (await client.send(post(server.port), timeout_s=5)).body == b"ok"
        assert server.connections == 2


@on_both_loops
async def test_connection_close_is_obeyed() -> None:
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    async with answering(answer) as server, a_client() as client:
        for _ in range(2):
            assert (await client.send(post(server.port), timeout_s=5)).body == b"ok"
        assert server.connections == 2
        assert client.stats().open == 0


@pytest.mark.parametrize("status", [204, 304])
@on_both_loops
async def test_204_and_304_have_no_body(status: int) -> None:
    async with answering(b"HTTP/1.1 %d X\r\n\r\n" % status) as server, a_client() as client:
        for _ in range(2):
            response = await client.send(post(server.port), timeout_s=5)
            assert (response.status, response.body) == (status, b"")
        assert server.connections == 1


@on_both_loops
async def test_interim_answers_are_skipped_with_their_headers() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    response = await answer_to(interim + OK)
    assert (response.status, response.header(b"link"), response.body) == (200, None, b"ok")


@on_both_loops
async def test_the_number_of_interim_answers_is_bounded() -> None:
    error = await failure_of(b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM_ANSWERS + 1) + OK)
    assert (error.kind, error.sent) == (FailureKind.MALFORMED, True)


@on_both_loops
async def test_an_answer_in_single_bytes_is_the_same_answer() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        for byte in b"\r\nHTTP/1.1 201 Created\r\nX-Empty:\r\nX-A: b\r\ncontent-length: 3\r\n\r\nabc":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with serving(drip) as server, a_client() as client:
        response = await client.send(post(server.port), timeout_s=5)
    assert (response.status, response.body) == (201, b"abc")
    assert response.headers == ((b"X-Empty", b""), (b"X-A", b"b"), (b"content-length", b"3"))


@on_both_loops
async def test_an_offer_to_upgrade_does_not_disturb_a_plain_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\nupgrade: h2,h2c\r\nconnection: Upgrade\r\ncontent-length: 2\r\n\r\nok"
    assert (await answer_to(answer)).body == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"this is not http\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"RTSP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 000 X\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 99 X\r\n\r\n",
        b"HTTP/1.1 2x0 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nxyz",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
@on_both_loops
async def test_a_malformed_answer_is_an_error_after_sending(answer: bytes) -> None:
    error = await failure_of(answer)
    assert (error.kind, error.sent) == (FailureKind.MALFORMED, True)
    assert "s3cret" not in f"{error}{error!r}"


@on_both_loops
async def test_a_malformed_body_is_judged_by_its_status_line() -> None:
    response = await answer_to(b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n")
    assert (response.status, response.body) == (500, b"ok")
    assert "malformed" in (response.body_error or "")


@pytest.mark.parametrize(
    "head",
    [
        b"x: " + b"y" * MAX_HEAD_BYTES,
        b"x: y\r\n" * (MAX_HEAD_BYTES // 6 + 1),
        b"x" * MAX_HEAD_BYTES + b": y",
        b"x: " + b"y" * MAX_HEAD_BYTES + b"\r\ncontent-length: 0\r\n\r\n",
    ],
)
@on_both_loops
async def test_headers_beyond_their_limit_are_malformed(head: bytes) -> None:
    error = await failure_of(b"HTTP/1.1 200 OK\r\n" + head)
    assert (error.kind, error.sent) == (FailureKind.MALFORMED, True)
    assert "exceed" in error.message


@on_both_loops
async def test_a_small_head_before_a_large_body_in_one_piece_is_within_its_limit() -> None:
    response = await answer_to(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000)
    assert (response.status, len(response.body), response.truncated) == (200, 65536, True)


@pytest.mark.parametrize("framing", [b"content-length: 1001", b"transfer-encoding: chunked", b"x: lengthless"])
@on_both_loops
async def test_a_body_beyond_the_cap_is_cut_and_its_connection_closed(framing: bytes) -> None:
    body = b"3e9\r\n" + b"x" * 1001 if b"chunked" in framing else b"x" * 1001
    async with (
        answering(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + body) as server,
        a_client(response_cap_bytes=1000) as client,
    ):
        response = await client.send(post(server.port), timeout_s=5)
        assert client.stats().open == 0
    assert (response.body, response.truncated, response.body_error) == (b"x" * 1000, True, None)


@on_both_loops
async def test_a_body_of_exactly_the_cap_is_whole() -> None:
    response = await answer_to(
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000, response_cap_bytes=1000
    )
    assert (len(response.body), response.truncated) == (1000, False)


@on_both_loops
async def test_an_endless_body_is_read_no_further_than_the_cap() -> None:
    written = 0

    async def endless(reader: Reader, writer: Writer) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    async with serving(endless) as server, a_client() as client:
        response = await client.send(post(server.port), timeout_s=5)
        assert (len(response.body), response.truncated) == (65536, True)
    assert written < 64 * 1024 * 1024


@pytest.mark.parametrize("filler", [b"x-trailer: " + b"y" * 8000 + b"\r\n", b"1;" + b"e" * 8000 + b"\r\nx\r\n"])
@on_both_loops
async def test_endless_framing_around_a_small_body_is_cut_too(filler: bytes) -> None:
    async def endless(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        if filler.startswith(b"x-trailer"):
            writer.write(b"0\r\n")
        while True:
            writer.write(filler)
            await writer.drain()

    async with serving(endless) as server, a_client(response_cap_bytes=100) as client:
        response = await client.send(post(server.port), timeout_s=5)
    assert (response.status, response.truncated, response.body_error) == (200, True, None)


@on_both_loops
async def test_honest_chunks_of_one_byte_reach_the_cap() -> None:
    chunks = b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    response = await answer_to(head + chunks, response_cap_bytes=5000)
    assert (len(response.body), response.truncated) == (5000, False)


@pytest.mark.parametrize(
    "extra", [OK, b"HTTP/1.1 200 OK\r\n", b"H", b"garbage", b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"]
)
@on_both_loops
async def test_bytes_after_an_answer_are_never_taken_for_the_next_one(extra: bytes) -> None:
    answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok"
    async with answering(answer + extra) as server, a_client() as client:
        for _ in range(3):
            response = await client.send(post(server.port), timeout_s=5)
            assert (response.status, response.body) == (201, b"ok")
        assert server.connections == 3


@on_both_loops
async def test_an_answer_that_comes_before_the_request_was_sent_is_accepted() -> None:
    async def early(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await asyncio.sleep(30)  # reads no further: the rest of the body stays unsent

    async with serving(early) as server, a_client() as client:
        response = await client.send(post(server.port, b"x" * 32_000_000), timeout_s=10)
        assert response.status == 413
        assert client.stats().open == 0


@on_both_loops
async def test_a_reset_in_the_body_is_judged_by_the_status_line() -> None:
    async def cut(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart")
        await writer.drain()

    async with serving(cut) as server, a_client() as client:
        response = await client.send(post(server.port), timeout_s=5)
    assert (response.status, response.body) == (200, b"part")
    assert "middle of the body" in (response.body_error or "")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nx: y\r\n"])
@on_both_loops
async def test_a_connection_that_ends_before_the_headers_do_is_a_reset_after_sending(answer: bytes) -> None:
    error = await failure_of(answer, close=True)
    assert (error.kind, error.sent) == (FailureKind.RESET, True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lists(
        sampled_from(
            [b"HTTP/1.1 200 OK\r\n", b"\r\n", b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n"]
        )
        | binary(max_size=40),
        max_size=8,
    )
)
async def test_whatever_a_server_says_ends_as_an_answer_or_a_transfer_error(pieces: list[bytes]) -> None:
    async def say(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    async with serving(say) as server, a_client(response_cap_bytes=16) as client:
        (end,) = await asyncio.gather(client.send(post(server.port), timeout_s=5), return_exceptions=True)
    if isinstance(end, Response):
        assert 200 <= end.status <= 999
        assert len(end.body) <= 16
    else:
        assert isinstance(end, TransferError)
        assert end.kind in (FailureKind.MALFORMED, FailureKind.RESET)
