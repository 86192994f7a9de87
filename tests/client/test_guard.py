"""No request reaches an address that was not judged: names, literals, rebinding, several addresses, IPv6."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from redrive.core.address import AddressRules, Ip
from redrive.destinations.client import FailureKind, SystemResolver, TransferError

from .harness import OK, ScriptedNames, a_client, answering, on_both_loops, post

PUBLIC_ONLY = AddressRules()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"])
@on_both_loops
async def test_a_literal_address_is_judged_before_connecting(host: str) -> None:
    async with answering(OK) as server, a_client(rules=PUBLIC_ONLY) as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url=f"http://{host}:{server.port}/?token=s3cret"), timeout_s=5)
        assert (caught.value.kind, caught.value.sent) == (FailureKind.REFUSED_ADDRESS, False)
        assert "s3cret" not in caught.value.message
        assert (server.connections, client.stats().open) == (0, 0)


@on_both_loops
async def test_a_name_that_resolves_to_refused_addresses_alone_is_refused_with_the_reason() -> None:
    names = ScriptedNames(hooks_example=[["10.0.0.5", "::1", "64:ff9b::a9fe:a9fe"]])
    async with a_client(rules=PUBLIC_ONLY, resolver=names) as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url="http://hooks.example/"), timeout_s=5)
    assert caught.value.kind is FailureKind.REFUSED_ADDRESS
    assert "NAT64 form of 169.254.169.254" in caught.value.message


@on_both_loops
async def test_a_name_is_looked_up_once_per_connection_and_the_judged_address_is_the_one_connected() -> None:
    # A rebinding name: harmless at the first lookup, internal at every later one.
    names = ScriptedNames(rebind_example=[["127.0.0.1"], ["127.0.0.2"]])
    rules = AddressRules.parse("127.0.0.1/32")
    close = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with answering(close, host="0.0.0.0") as server, a_client(rules=rules, resolver=names) as client:
        request = post(0, url=f"http://rebind.example:{server.port}/")
        assert (await client.send(request, timeout_s=5)).status == 200
        assert names.lookups == ["rebind.example"]
        with pytest.raises(TransferError) as caught:
            await client.send(request, timeout_s=5)
        assert caught.value.kind is FailureKind.REFUSED_ADDRESS
        assert server.connections == 1
        assert f"host: rebind.example:{server.port}\r\n".encode() in server.requests[0]


@on_both_loops
async def test_refused_addresses_are_skipped_and_a_failed_connect_tries_the_next() -> None:
    names = ScriptedNames(hooks_example=[["10.0.0.5", "127.0.0.9", "127.0.0.1"]])
    async with answering(OK, host="127.0.0.1") as server, a_client(resolver=names) as client:
        response = await client.send(post(0, url=f"http://hooks.example:{server.port}/"), timeout_s=5)
        assert response.status == 200


@on_both_loops
async def test_a_silent_address_leaves_time_for_the_next() -> None:
    listener = socket.socket()
    fillers = [socket.socket(), socket.socket()]
    try:
        async with answering(OK, host="127.0.0.1") as server:
            listener.bind(("127.0.0.9", server.port))
            listener.listen(0)
            for filler in fillers:  # a full queue leaves further connects without an answer
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.9", server.port))
            names = ScriptedNames(hooks_example=[["127.0.0.9", "127.0.0.1"]])
            async with a_client(resolver=names) as client:
                response = await client.send(post(0, url=f"http://hooks.example:{server.port}/"), timeout_s=1)
                assert response.status == 200
    finally:
        for each in (listener, *fillers):
            each.close()


@on_both_loops
async def test_ipv6_is_reached_by_literal_and_by_name() -> None:
    names = ScriptedNames(six_example=[["::1"]])
    async with answering(OK, host="::1") as server, a_client(resolver=names) as client:
        for host in ("[::1]", "six.example"):
            request = post(0, url=f"http://{host}:{server.port}/")
            assert (await client.send(request, timeout_s=5)).status == 200
        assert f"host: [::1]:{server.port}\r\n".encode() in server.requests[0]


@on_both_loops
async def test_a_name_without_address_is_a_dns_failure() -> None:
    names = ScriptedNames(empty_example=[[]])
    async with a_client(resolver=names) as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url="http://empty.example/"), timeout_s=5)
    assert (caught.value.kind, caught.value.sent) == (FailureKind.DNS, False)


@on_both_loops
async def test_a_name_that_does_not_exist_is_a_dns_failure() -> None:
    async with a_client() as client:
        with pytest.raises(TransferError) as caught:
            await client.send(post(0, url="http://no-such-name.invalid/?token=s3cret"), timeout_s=10)
    assert (caught.value.kind, caught.value.sent) == (FailureKind.DNS, False)
    assert "s3cret" not in caught.value.message


@on_both_loops
async def test_the_system_knows_localhost() -> None:
    async with answering(OK) as server, a_client() as client:
        assert (await client.send(post(0, url=f"http://localhost:{server.port}/"), timeout_s=5)).status == 200


@on_both_loops
async def test_lookups_of_one_name_that_overlap_share_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    real = socket.getaddrinfo

    def counting(host: bytes, port: int, **options: int) -> object:
        asked.append(host)
        return real(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", counting)
    resolver = SystemResolver()
    answers: list[Sequence[Ip]] = await asyncio.gather(*(resolver.resolve("localhost", 80) for _ in range(20)))
    assert asked == [b"localhost"]
    assert all(ip_address("127.0.0.1") in answer for answer in answers)


@on_both_loops
async def test_a_caller_that_gives_up_leaves_the_lookup_to_the_others() -> None:
    resolver = SystemResolver()
    first = asyncio.create_task(resolver.resolve("localhost", 80))
    second = asyncio.create_task(resolver.resolve("localhost", 80))
    await asyncio.sleep(0)
    first.cancel()
    assert ip_address("127.0.0.1") in await second
