"""`redrive hub` as a real process, connected; and one that is played here, where it does not matter what a hub is.

async with hub(redrive.base_url, endpoint["id"], receiver.url) as program: ...
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from redrive.core.relay import Answered, Delivery, HubSeat, from_edge
from support.installation import Installation
from support.processes import ADMIN_KEY, START_WITHIN_S, Program, program, until


def told(running: Program, beginning: str) -> list[str]:
    """Remarks that begin like this."""
    return [text for line in running.log if (text := str(line.get("text", ""))).startswith(beginning)]


def forwarded(running: Program) -> list[dict[str, Any]]:
    """What it forwarded, as it says itself."""
    return [json.loads(line) for line in running.out]


@asynccontextmanager
async def hub(
    edge: str, endpoint_id: str, forward: str, *words: str, key: str = ADMIN_KEY, connected: bool = True
) -> AsyncIterator[Program]:
    where = ("--edge", edge, "--endpoint", endpoint_id, "--forward", forward)
    async with program("hub", "--json", *where, *words, env={"REDRIVE_KEY": key}) as running:
        if connected:
            await until(lambda: bool(told(running, "Connected")), within_s=START_WITHIN_S, why=lambda: running.log)
        yield running


class PlayedHub:
    """Has a seat without a connection, and answers each delivery at once with a status; None: never."""

    def __init__(self, redrive: Installation, relay: dict[str, Any], status: int | None = 200) -> None:
        self.status = status
        self.headers: dict[str, str] = {}  # of its answers
        self.deliveries: list[Delivery] = []
        self.is_ended = False
        seat = redrive.relay.join(redrive.org_id, UUID(relay["id"]), relay["name"], self, "http://localhost:3000")
        assert seat is not None
        self.seat: HubSeat = seat

    def post(self, text: str) -> None:
        """core.relay.HubLink."""
        message = from_edge(text)
        if isinstance(message, Delivery):
            self.deliveries.append(message)
            if self.status is not None:
                self.seat.heard(Answered(message.id, message.fence, self.status, self.headers, b"", False))

    def end(self) -> None:
        self.is_ended = True
