"""TLS: certificates are verified against the right authority and name, always."""

import asyncio
import ssl
from pathlib import Path

import pytest

from redrive.destinations.client import FailureKind, TransferError
from redrive.destinations.client.tls import MAX_TLS_CONTEXTS, TlsContexts

from .harness import OK, Authority, Reader, ScriptedNames, Writer, a_client, answering, on_both_loops, post, serving

NAMES = {"hooks_example": [["127.0.0.1"]], "other_example": [["127.0.0.1"]]}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create()


@on_both_loops
async def test_a_certificate_of_the_endpoint_s_authority_is_accepted(authority: Authority, tmp_path: Path) -> None:
    offered: list[tuple[str | None, str | None]] = []
    context = authority.server_context(tmp_path, "hooks.example")
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda tls, name, _: offered.append((name, None))
    async with answering(OK, tls=context) as server, a_client(resolver=ScriptedNames(**NAMES)) as client:
        request = post(0, url=f"https://hooks.example:{server.port}/", ca_pem=authority.pem)
        for _ in range(3):
            assert (await client.send(request, timeout_s=5)).body == b"ok"
        assert server.connections == 1
        assert offered == [("hooks.example", None)]


@on_both_loops
async def test_http_2_is_not_offered(authority: Authority, tmp_path: Path) -> None:
    chosen: list[str | None] = []

    async def note(reader: Reader, writer: Writer) -> None:
        chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read()

    context = authority.server_context(tmp_path, "127.0.0.1")
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(note, tls=context) as server, a_client() as client:
        request = post(0, url=f"https://127.0.0.1:{server.port}/", ca_pem=authority.pem)
        assert (await client.send(request, timeout_s=5)).status == 200
    assert chosen == ["http/1.1"]


@on_both_loops
async def test_a_certificate_for_a_literal_address_is_checked_by_the_address(
    authority: Authority, tmp_path: Path
) -> None:
    context = authority.server_context(tmp_path, "127.0.0.1")
    async with answering(OK, tls=context) as server, a_client() as client:
        request = post(0, url=f"https://127.0.0.1:{server.port}/", ca_pem=authority.pem)
        assert (await client.send(request, timeout_s=5)).status == 200


@on_both_loops
async def test_a_certificate_for_another_name_is_refused(authority: Authority, tmp_path: Path) -> None:
    context = authority.server_context(tmp_path, "hooks.example")
    async with answering(OK, tls=context) as server, a_client(resolver=ScriptedNames(**NAMES)) as client:
        request = post(0, url=f"https://other.example:{server.port}/?token=s3cret", ca_pem=authority.pem)
        with pytest.raises(TransferError) as caught:
            await client.send(request, timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.TLS, False)
        assert "s3cret" not in caught.value.message
        assert (server.requests, client.stats().open) == ([], 0)


@pytest.mark.parametrize("trusted", ["the system's", "another"])
@on_both_loops
async def test_a_certificate_of_another_authority_is_refused(
    authority: Authority, tmp_path: Path, trusted: str
) -> None:
    ca_pem = Authority.create().pem if trusted == "another" else None
    context = authority.server_context(tmp_path, "hooks.example")
    async with answering(OK, tls=context) as server, a_client(resolver=ScriptedNames(**NAMES)) as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url=f"https://hooks.example:{server.port}/", ca_pem=ca_pem), timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.TLS, False)
        assert "certificate" in caught.value.message


@on_both_loops
async def test_a_connection_verified_for_one_authority_is_not_lent_to_another(
    authority: Authority, tmp_path: Path
) -> None:
    context = authority.server_context(tmp_path, "hooks.example")
    async with answering(OK, tls=context) as server, a_client(resolver=ScriptedNames(**NAMES)) as client:
        url = f"https://hooks.example:{server.port}/"
        await client.send(post(0, url=url, ca_pem=authority.pem), timeout_s=5)
        with pytest.raises(TransferError):
            await client.send(post(0, url=url), timeout_s=5)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Plain HTTP\r\n\r\n", b""])
@on_both_loops
async def test_a_server_that_speaks_no_tls_is_a_tls_failure(authority: Authority, answer: bytes) -> None:
    async def plain(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()

    async with serving(plain) as server, a_client() as client:
        request = post(0, url=f"https://127.0.0.1:{server.port}/", ca_pem=authority.pem)
        with pytest.raises(TransferError) as caught:
            await client.send(request, timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.TLS, False)
        assert client.stats().open == 0


@pytest.mark.parametrize("ca_pem", ["", "s3cret", "-----BEGIN CERTIFICATE-----\ns3cret\n", "ü"])
@on_both_loops
async def test_a_ca_that_cannot_be_read_is_a_tls_failure_that_does_not_repeat_it(ca_pem: str) -> None:
    async with answering(OK) as server, a_client() as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url=f"https://127.0.0.1:{server.port}/", ca_pem=ca_pem), timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.TLS, False)
        assert "s3cret" not in caught.value.message
        assert server.connections == 0


@on_both_loops
async def test_a_large_body_and_a_large_answer_pass_through_tls(authority: Authority, tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n" + b"y" * 60_000
    context = authority.server_context(tmp_path, "127.0.0.1")
    async with answering(answer, tls=context) as server, a_client() as client:
        request = post(0, b"x" * 2_000_000, url=f"https://127.0.0.1:{server.port}/", ca_pem=authority.pem)
        assert len((await client.send(request, timeout_s=10)).body) == 60_000
        assert server.requests[0].endswith(b"x" * 2_000_000)


@on_both_loops
async def test_closing_does_not_wait_for_a_tls_farewell(authority: Authority, tmp_path: Path) -> None:
    async def deaf(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(30)

    context = authority.server_context(tmp_path, "127.0.0.1")
    async with serving(deaf, tls=context) as server, a_client() as client:
        request = post(0, url=f"https://127.0.0.1:{server.port}/", ca_pem=authority.pem)
        await client.send(request, timeout_s=5)
        async with asyncio.timeout(2):
            await client.aclose()
        assert client.stats().open == 0


def test_contexts_are_kept_by_authority_and_their_number_is_bounded(authority: Authority) -> None:
    contexts = TlsContexts()
    first = contexts.get(authority.pem)
    assert contexts.get(authority.pem) is first
    assert (first.check_hostname, first.verify_mode) == (True, ssl.CERT_REQUIRED)
    for number in range(MAX_TLS_CONTEXTS):
        contexts.get(authority.pem + "\n" * (number + 1))
    assert contexts.get(authority.pem) is not first
