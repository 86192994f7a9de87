"""What goes out on the wire, and what never does."""

import pytest

from redrive.core.address import parse_target
from redrive.destinations.client import BadHeader, Request, build_head

from .harness import OK, a_client, answering, on_both_loops, post


@on_both_loops
async def test_a_request_carries_host_length_headers_and_body_and_asks_for_no_compression() -> None:
    async with answering(OK) as server, a_client() as client:
        response = await client.send(post(server.port, b'{"a": 1}'), timeout_s=5)
    assert (response.status, response.body, response.truncated, response.body_error) == (200, b"ok", False, None)
    assert server.requests == [
        b"POST /hook?token=s3cret HTTP/1.1\r\n"
        + f"host: 127.0.0.1:{server.port}\r\n".encode()
        + b"accept-encoding: identity\r\ncontent-length: 8\r\ncontent-type: application/json\r\n\r\n"
        + b'{"a": 1}'
    ]


@on_both_loops
async def test_each_method_is_sent_as_asked_and_a_body_may_be_empty() -> None:
    async with answering(OK) as server, a_client() as client:
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
            await client.send(post(server.port, b"", method=method), timeout_s=5)
    assert [request.split(b" ")[0] for request in server.requests] == [b"DELETE", b"GET", b"PATCH", b"POST", b"PUT"]


@on_both_loops
async def test_a_method_whose_answer_has_no_visible_end_is_refused() -> None:
    async with a_client() as client:
        for method in ("HEAD", "CONNECT", "post", "GET / HTTP/1.1\r\nx: y\r\n"):
            with pytest.raises(ValueError, match="cannot be sent"):
                await client.send(post(1, method=method), timeout_s=1)


@on_both_loops
async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 16_384
    async with answering(OK) as server, a_client() as client:
        assert (await client.send(post(server.port, body), timeout_s=10)).status == 200
    assert server.requests[0].endswith(body)


@on_both_loops
async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    location = b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    async with answering(location) as server, a_client() as client:
        response = await client.send(post(server.port), timeout_s=5)
    assert (response.status, response.header(b"location"), len(server.requests)) == (302, b"/elsewhere", 1)


@on_both_loops
async def test_a_compressed_body_is_left_as_it_came() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00"
    async with answering(answer) as server, a_client() as client:
        assert (await client.send(post(server.port), timeout_s=5)).body == b"\x1f\x8b\x08\x00"


@on_both_loops
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(OK) as proxy, answering(OK) as server, a_client() as client:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert (await client.send(post(server.port), timeout_s=5)).status == 200
    assert (proxy.connections, server.connections) == (0, 1)


def test_a_head_is_one_line_per_header() -> None:
    assert build_head([("X-A", "1"), ("x-b", "ü\t2")]) == "X-A: 1\r\nx-b: ü\t2\r\n".encode()


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\x00b", "\x1b[31m", "\x7f", "\ud800"])
def test_a_value_that_could_end_its_header_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(BadHeader) as caught:
        build_head([("x-key", f"s3cret{value}")])
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "x y", "x:y", "x\r\ny", "x\x00", "ü"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(BadHeader):
        build_head([(name, "1")])


@pytest.mark.parametrize("name", ["Host", "Content-Length", "transfer-encoding", "Connection", "Accept-Encoding"])
def test_headers_that_frame_the_message_belong_to_the_client(name: str) -> None:
    with pytest.raises(BadHeader, match="client itself"):
        build_head([(name, "1")])


def test_the_size_of_a_head_is_bounded() -> None:
    with pytest.raises(BadHeader, match="exceed"):
        build_head([("x", "y" * 70_000)])


def test_no_secret_shows_in_a_request_s_repr() -> None:
    head = build_head([("authorization", "s3cret")])
    request = Request(parse_target("https://example.com/s3cret"), head, b"s3cret", ca_pem="s3cret")
    assert "s3cret" not in repr(request)


@on_both_loops
async def test_a_timeout_must_be_a_positive_number() -> None:
    async with a_client() as client:
        for timeout_s in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="positive"):
                await client.send(post(1), timeout_s=timeout_s)
