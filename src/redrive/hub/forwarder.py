"""Forwarding: one delivery as one POST to the local service, one at a time. Touches the network and nothing else."""

import asyncio
import json
import time
from dataclasses import dataclass
from ipaddress import ip_network

from redrive.core.address import AddressRules, Target
from redrive.core.outcome import Category
from redrive.core.relay import (
    MAX_ANSWER_BYTES,
    MAX_ANSWER_HEADERS_BYTES,
    MAX_HEADER_CHARS,
    MAX_HEADERS,
    MAX_TEXT_CHARS,
    Answered,
    Delivery,
    Unanswered,
)
from redrive.destinations.client import (
    CLIENT_HEADERS,
    BadHeader,
    Client,
    FailureKind,
    Request,
    Response,
    TransferError,
    build_head,
)

RESENT = "redrive-resent"
# The person who starts the hub names the one address that it forwards to: no address is out of bounds.
ANYWHERE = AddressRules((ip_network("0.0.0.0/0"), ip_network("::/0")))
# Of the time that the edge gives: so that our word that the service took too long comes before the edge gives up on us.
TIME_FOR_THE_SERVICE = 0.95
BUSY = "the service was busy with a webhook that was sent again by hand"


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A delivery, what became of it, and how long that took."""

    delivery: Delivery
    result: Answered | Unanswered
    took_s: float
    resent: bool = False


class Forwarder:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._client = Client(rules=ANYWHERE, max_connections=2, max_per_origin=1, response_cap_bytes=MAX_ANSWER_BYTES)
        self._turn = asyncio.Lock()

    async def forward(self, delivery: Delivery, *, resent: bool = False) -> Forwarded:
        """Send it, within its time, that for its turn included. What goes wrong is a result, too."""
        time_s = delivery.timeout_s * TIME_FOR_THE_SERVICE
        came = time.perf_counter()
        try:
            async with asyncio.timeout(time_s):
                await self._turn.acquire()
        except TimeoutError:
            busy = Unanswered(delivery.id, delivery.fence, BUSY, Category.TIMEOUT, False)
            return Forwarded(delivery, busy, time.perf_counter() - came, resent)
        began = time.perf_counter()
        try:
            result = await self._result(delivery, resent, time_s - (began - came))
        finally:
            self._turn.release()
        return Forwarded(delivery, result, time.perf_counter() - began, resent)

    async def _result(self, delivery: Delivery, resent: bool, time_s: float) -> Answered | Unanswered:
        headers = {name: value for name, value in delivery.headers.items() if name.lower() not in CLIENT_HEADERS}
        if resent:
            headers[RESENT] = "true"
        try:
            request = Request(self._target, build_head(headers.items()), delivery.body)
            response = await self._client.send(request, timeout_s=time_s)
        except TransferError as error:
            category = Category.TIMEOUT if error.kind is FailureKind.TIMEOUT else Category.NETWORK
            return Unanswered(delivery.id, delivery.fence, error.message[:MAX_TEXT_CHARS], category, error.sent)
        except BadHeader as error:
            why = f"its headers cannot be sent: {error}"[:MAX_TEXT_CHARS]
            return Unanswered(delivery.id, delivery.fence, why, Category.CONFIGURATION, False)
        return _answered(delivery, response)

    async def aclose(self) -> None:
        await self._client.aclose()


def _answered(delivery: Delivery, response: Response) -> Answered:
    headers: dict[str, str] = {}
    left_bytes = MAX_ANSWER_HEADERS_BYTES
    for raw_name, raw_value in response.headers[:MAX_HEADERS]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")[:MAX_HEADER_CHARS]
        size = len(json.dumps({name: value}))
        if size <= left_bytes:  # those that are small have room behind one that is not
            left_bytes -= size
            headers[name] = value
    return Answered(
        delivery.id,
        delivery.fence,
        response.status,
        headers,
        response.body,
        response.truncated or response.body_error is not None,
    )
