"""The way to an edge: what is refused for good, what passes, and that nobody else is told the key."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Request, Response

from redrive.hub.edge import Refused, address_of, connected, refusal_of

ENDPOINT = UUID(int=7)
PROBLEM = {"content-type": "application/problem+json"}


@asynccontextmanager
async def answering(
    status: int, headers: dict[str, str], note: Callable[[Request], object] = lambda _: None
) -> AsyncIterator[str]:
    """Something at an address that lets no WebSocket in."""

    def refuse(_: ServerConnection, request: Request) -> Response:
        note(request)
        return Response(status, "", Headers({"content-length": "18", **headers}), b'{"detail": "Why."}')

    async def never(_: ServerConnection) -> None:
        raise AssertionError("somebody was let in")

    async with serve(never, "127.0.0.1", 0, process_request=refuse) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_the_new_address_is_named(status: int) -> None:
    keys: list[str | None] = []
    async with (
        answering(404, {}, lambda request: keys.append(request.headers.get("X-API-Key"))) as elsewhere,
        answering(status, {"location": f"{elsewhere}/new?token=canary"}) as edge,
    ):
        with pytest.raises(Refused) as refused:
            await connected(address_of(edge, ENDPOINT), "rdk_canary")
    assert keys == []
    assert f"{elsewhere}/new" in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "headers", "is_known", "passes"),
    [
        (404, {}, False, False),
        (404, {}, True, True),
        (408, {"content-type": "text/html"}, True, True),
        (302, {"location": "https://elsewhere.example.com"}, True, True),
        (404, PROBLEM, True, False),
        (401, PROBLEM, True, False),
        (503, PROBLEM, False, True),
        (429, {}, False, True),
    ],
)
async def test_what_stands_before_an_edge_that_is_known_speaks_for_a_while_only(
    status: int, headers: dict[str, str], is_known: bool, passes: bool
) -> None:
    async with answering(status, headers) as edge:
        with pytest.raises(InvalidStatus if passes else Refused):
            await connected(address_of(edge, ENDPOINT), "k", is_known=is_known)


@pytest.mark.parametrize(
    ("code", "passes"), [(1012, True), (4400, False), (4401, False), (4408, True), (4409, True), (4410, True)]
)
def test_only_what_stays_as_it_is_sends_a_hub_away_for_good(code: int, passes: bool) -> None:
    assert (refusal_of(ConnectionClosedError(Close(code, "why"), None)) is None) is passes


@pytest.mark.parametrize("proxy", ["ftp://user:canary@127.0.0.1:9", "socks5://127.0.0.1:9"])
async def test_a_proxy_that_cannot_be_used_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(Refused, match="proxy") as refused:
        await connected(address_of("https://edge.example.com", ENDPOINT), "k")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("edge", ["http://localhost:99999", "http://localhost:x", "http://[::1", "ftp://e", "http://"])
def test_an_address_that_is_none_is_a_value_error(edge: str) -> None:
    with pytest.raises(ValueError, match=r"port|edge|URL"):
        address_of(edge, ENDPOINT)
