"""Who may come in as a hub, for how long, and what a hub may say."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from redrive.api import hub_door
from redrive.core.permissions import Role, Scope
from redrive.core.relay import Hello, HubLink, encode
from redrive.destinations.relay import MAX_HUBS
from redrive.store.keys import new_key, store_key
from support.installation import Installation, installation
from support.processes import ADMIN_KEY

HELLO = encode(Hello("http://localhost:3000"))


@pytest_asyncio.fixture(loop_scope="session")
async def redrive(database_url: str) -> AsyncIterator[Installation]:
    async with installation(database_url) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def relay(redrive: Installation) -> dict[str, Any]:
    return await redrive.api.relay(name="github")


async def come_in(redrive: Installation, endpoint_id: object, **headers: str) -> ClientConnection:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if not named.keys() & {"X-API-Key", "Authorization", "Cookie"}:
        named["X-API-Key"] = ADMIN_KEY
    address = f"ws://{redrive.host}:{redrive.port}/v1/endpoints/{endpoint_id}/hub"
    return await connect(address, additional_headers=named, compression=None)


async def refused(redrive: Installation, endpoint_id: object, **headers: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as answer:
        await come_in(redrive, endpoint_id, **headers)
    assert answer.value.response.headers["content-type"] == "application/problem+json"
    return answer.value.response.status_code, json.loads(answer.value.response.body)


async def key_of(redrive: Installation, role: Role, scope: Scope | None = None) -> tuple[str, UUID]:
    key = new_key()
    name = f"{role} {uuid4().hex}"
    key_id = await store_key(redrive.stores.engine, redrive.org_id, key, name=name, role=role, scope=scope)
    return key, key_id


async def sent_away(link: ClientConnection, within_s: float = 10.0) -> tuple[int, str]:
    closed: ConnectionClosed | None = None
    async with asyncio.timeout(within_s):
        while closed is None:
            try:
                await link.recv()
            except ConnectionClosed as ended:
                closed = ended
    assert closed.rcvd is not None
    return closed.rcvd.code, closed.rcvd.reason


async def test_a_hub_says_hello_and_is_told_for_whom_it_delivers(redrive: Installation, relay: dict[str, Any]) -> None:
    for headers in ({"X_API_Key": ADMIN_KEY}, {"Authorization": f"Bearer {ADMIN_KEY}"}):
        link = await come_in(redrive, relay["id"], **headers)
        await link.send(HELLO)
        assert json.loads(await link.recv()) == {"type": "welcome", "endpoint": "github", "delivers": True}
        assert redrive.relay.can_reach(UUID(relay["id"]))
        await link.close()
        async with asyncio.timeout(5):
            while redrive.relay.can_reach(UUID(relay["id"])):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("role", "scope", "may"),
    [
        (Role.ADMIN, None, True),
        (Role.IT_MANAGER, None, True),
        (Role.STAFF, None, False),
        (Role.VIEWER, None, False),
        (Role.OWNER, Scope.READ, False),
        (Role.OWNER, Scope.PRODUCE, False),
        (Role.IT_MANAGER, Scope.RELAY, True),
        (Role.OWNER, Scope.RELAY, True),
        (Role.VIEWER, Scope.RELAY, False),
    ],
)
async def test_a_key_that_may_not_manage_endpoints_is_no_hub_s(
    redrive: Installation, relay: dict[str, Any], role: Role, scope: Scope | None, may: bool
) -> None:
    key, _ = await key_of(redrive, role, scope)
    if may:
        await (await come_in(redrive, relay["id"], X_API_Key=key)).close()
    else:
        assert (await refused(redrive, relay["id"], X_API_Key=key))[0] == 403


async def hub_key(redrive: Installation, **fields: object) -> str:
    made = await redrive.api.post("/v1/keys", {"name": "hub", "role": "IT_MANAGER", "scope": "relay", **fields})
    key: str = made["key"]
    return key


async def test_b8_a_hub_s_key_may_be_bound_to_one_relay(redrive: Installation, relay: dict[str, Any]) -> None:
    another = await redrive.api.relay()
    bound = await hub_key(redrive, endpoint_id=relay["id"])
    await (await come_in(redrive, relay["id"], X_API_Key=bound)).close()
    status, problem = await refused(redrive, another["id"], X_API_Key=bound)
    assert (status, problem["detail"]) == (403, f"This key is for the hubs of another relay: {relay['id']}.")
    assert (await refused(redrive, uuid4(), X_API_Key=bound))[0] == 403  # nor is it told what there is
    free = await hub_key(redrive)
    for endpoint in (relay, another):
        await (await come_in(redrive, endpoint["id"], X_API_Key=free)).close()
    shown = {key["endpoint_id"] for key in (await redrive.api.get("/v1/keys"))["data"] if key["scope"] == "relay"}
    assert shown == {relay["id"], None}
    plain = await redrive.api.endpoint("http://127.0.0.1:9/")
    answer = await redrive.api.http.post(
        "/v1/keys", {"name": "hub", "role": "ADMIN", "scope": "relay", "endpoint_id": plain["id"]}
    )
    assert (answer.status, answer.json["errors"][0]["loc"]) == (422, ["body", "endpoint_id"])


@pytest.mark.parametrize("is_bound", [True, False])
async def test_b8_a_hub_s_key_can_do_nothing_but_connect(
    redrive: Installation, relay: dict[str, Any], is_bound: bool
) -> None:
    """Every route of /v1 is tried in test_api_matrix; here what stands beside them, and what is remembered of a key."""
    key = await hub_key(redrive, **({"endpoint_id": relay["id"]} if is_bound else {}))
    link = await come_in(redrive, relay["id"], X_API_Key=key)
    await link.send(HELLO)
    assert json.loads(await link.recv())["type"] == "welcome"
    event_id = await redrive.api.webhook(relay, b'{"secret": 7}')
    reads = ["/", "/endpoints", "/settings/keys", "/v1/session", "/v1/stats", "/v1/inbox", "/inbox", "/v1/keys"]
    reads += [f"/v1/endpoints/{relay['id']}", f"/v1/events/{event_id}", f"/v1/events/{event_id}/status", "/v1/events"]
    for path in reads:
        answer = await redrive.api.http.get(path, X_API_Key=key)
        assert answer.status == 403, path
        assert event_id not in answer.body.decode(), path
    event = {"event_type": "order.created", "payload": {}}
    for method, path in (
        ("POST", "/v1/events"),
        ("POST", f"/v1/events/{event_id}/ack"),
        ("DELETE", f"/v1/events/{event_id}"),
    ):
        for _ in range(2):
            answer = await redrive.api.http.request(method, path, event, headers={"X-API-Key": key})
            assert answer.status == 403, path
    await link.close()


async def test_whoever_has_no_business_here_is_told_so_before_the_connection_stands(
    redrive: Installation, relay: dict[str, Any]
) -> None:
    assert (await refused(redrive, relay["id"], X_API_Key="nobody's"))[0] == 401
    assert (await refused(redrive, relay["id"], Origin=redrive.base_url))[0] == 403
    stranger = await redrive.other_org("another")
    theirs = await refused(redrive, relay["id"], X_API_Key=str(stranger.http.key), X_Correlation_Id="same")
    unknown = await refused(redrive, uuid4(), X_Correlation_Id="same")
    assert theirs == unknown
    assert unknown[0] == 404
    assert (await refused(redrive, "seven"))[0] == 404
    http = await redrive.api.endpoint("http://127.0.0.1:9/")
    assert (await refused(redrive, http["id"]))[0] == 409
    plain = await redrive.api.http.get(f"/v1/endpoints/{relay['id']}/hub")
    assert (plain.status, plain.headers["upgrade"]) == (426, "websocket")


@pytest.mark.parametrize(
    "messages",
    [
        ["{}"],
        ["not JSON"],
        [b"bytes"],
        [HELLO, HELLO],
        [HELLO, '{"type": "result", "id": "seven"}'],
        ['{"type": "hello", "version": 99, "forward": "x"}'],
    ],
)
async def test_a_hub_that_says_what_it_may_not_is_sent_away(
    redrive: Installation, relay: dict[str, Any], messages: list[str | bytes]
) -> None:
    link = await come_in(redrive, relay["id"])
    for message in messages:
        await link.send(message)
    code, why = await sent_away(link)
    assert code == 4400
    assert "cannot be used" in why


async def test_a_message_that_is_too_large_ends_the_connection(redrive: Installation, relay: dict[str, Any]) -> None:
    link = await come_in(redrive, relay["id"])
    await link.send(" " * 300_000)
    assert (await sent_away(link))[0] in (1009, 4400)


async def test_an_endpoint_has_so_many_hubs_and_no_more(redrive: Installation, relay: dict[str, Any]) -> None:
    links = [await come_in(redrive, relay["id"]) for _ in range(MAX_HUBS)]
    for link in links:
        await link.send(HELLO)
        await link.recv()
    one_more = await come_in(redrive, relay["id"])
    await one_more.send(HELLO)
    assert (await sent_away(one_more))[0] == 4409
    for link in links:
        await link.close()


async def test_a_hub_that_does_not_say_hello_is_sent_away(
    redrive: Installation, relay: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_door, "HELLO_WITHIN_S", 0.05)
    assert (await sent_away(await come_in(redrive, relay["id"])))[0] == 4410


@pytest.mark.parametrize("what", ["key", "endpoint"])
async def test_a_hub_whose_key_is_revoked_or_whose_endpoint_is_deleted_is_cut_off(
    redrive: Installation, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(hub_door, "CHECK_EVERY_S", 0.05)
    relay = await redrive.api.relay()
    key, key_id = await key_of(redrive, Role.ADMIN)
    link = await come_in(redrive, relay["id"], X_API_Key=key)
    await link.send(HELLO)
    await link.recv()
    path = f"/v1/keys/{key_id}" if what == "key" else f"/v1/endpoints/{relay['id']}"
    assert (await redrive.api.http.request("DELETE", path)).status in (200, 204)
    assert (await sent_away(link))[0] == 4401
    assert not redrive.relay.can_reach(UUID(relay["id"]))


def test_a_revoked_key_is_noticed_within_a_minute() -> None:
    assert hub_door.CHECK_EVERY_S < 60


async def test_hubs_are_sent_away_when_the_process_ends(database_url: str) -> None:
    async with installation(database_url) as redrive:
        relay = await redrive.api.relay()
        link = await come_in(redrive, relay["id"])
        await link.send(HELLO)
        await link.recv()
        leaving = asyncio.create_task(sent_away(link))
    assert (await leaving)[0] == 1012


async def test_a_hub_that_comes_while_the_process_drains_is_told_to_come_again(
    redrive: Installation, relay: dict[str, Any]
) -> None:
    link = await come_in(redrive, relay["id"])
    redrive.relay.stop()
    await link.send(HELLO)
    assert (await sent_away(link))[0] == 1012
    assert (await refused(redrive, relay["id"]))[0] == 503


@asynccontextmanager
async def deaf_hub(redrive: Installation, relay: dict[str, Any]) -> AsyncIterator[HubLink]:
    """One that reads nothing once it has said hello; the edge's end of its connection."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # or the kernel may take in many megabytes for it
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (redrive.host, redrive.port))
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        head = [
            f"GET /v1/endpoints/{relay['id']}/hub HTTP/1.1",
            "host: edge",
            "upgrade: websocket",
            "connection: upgrade",
            "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
            "sec-websocket-version: 13",
            f"x-api-key: {ADMIN_KEY}",
        ]
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        await reader.readuntil(b"\r\n\r\n")
        masked = HELLO.encode()  # with a mask of zeros
        writer.write(bytes([0x81, 0x80 | len(masked)]) + bytes(4) + masked)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            while not (hubs := redrive.relay._hubs.get(UUID(relay["id"]))):
                await asyncio.sleep(0.01)
        yield hubs[0].link
    finally:
        writer.close()


async def test_a_hub_that_reads_nothing_is_sent_away_before_much_has_piled_up(
    redrive: Installation, relay: dict[str, Any]
) -> None:
    async with deaf_hub(redrive, relay) as link, asyncio.timeout(20):
        while redrive.relay.can_reach(UUID(relay["id"])):
            link.post("x" * 4_000_000)
            await asyncio.sleep(0.01)


async def test_a_hub_that_does_not_take_in_what_was_sent_in_time_is_sent_away(
    redrive: Installation, relay: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_door, "SEND_WITHIN_S", 0.1)
    monkeypatch.setattr(hub_door, "GOODBYE_WITHIN_S", 0.1)
    async with deaf_hub(redrive, relay) as link, asyncio.timeout(20):
        for _ in range(hub_door.MAX_UNSENT // 2):  # more than the kernel takes in
            link.post("x" * 4_000_000)
        while redrive.relay.can_reach(UUID(relay["id"])):
            await asyncio.sleep(0.01)


async def test_a_hub_that_answers_nothing_is_told_to_connect_again(
    redrive: Installation, relay: dict[str, Any]
) -> None:
    silent = await come_in(redrive, relay["id"])
    await silent.send(HELLO)
    await silent.recv()
    (seat,) = redrive.relay._hubs[UUID(relay["id"])]
    seat.link.end()
    assert (await sent_away(silent))[0] == 4408
