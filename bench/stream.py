"""A producer that sends one event after another at a steady pace, and how long each took to its receiver.

Used by bench.fairness and bench.recovery. Times are those of time.monotonic(), the same clock in every process.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from uuid import UUID

from bench.model import BODY_BYTES, percentile
from bench.processes import ProcessError
from bench.receiver import Receiver
from bench.wire import Pool, request_head
from redrive.store.orgs import new_id

CONNECTIONS = 16  # more requests than these are never under way unless the API hangs
ACCEPTED = 202
ARRIVE_S = 60.0  # for the last ones


@dataclass(slots=True)
class Steady:
    """One event every `every_s` to one endpoint, through the API."""

    base: str
    key: str
    endpoint_id: UUID
    every_s: float
    sent_at: dict[str, float] = field(default_factory=dict)
    _statuses: dict[int, int] = field(default_factory=dict)

    async def send(self, seconds: float) -> None:
        await self.send_until(asyncio.Event(), seconds)

    async def send_until(self, stop: asyncio.Event, most_s: float) -> None:
        """Until told, and for so long at most. By the clock: one that was late does not delay the next."""
        url = f"{self.base}/v1/events"
        headers = {"content-type": "application/json", "x-api-key": self.key}
        pool = await Pool.open(url, CONNECTIONS)
        try:
            began = time.monotonic()
            for number in range(round(most_s / self.every_s)):
                await asyncio.sleep(max(0.0, began + number * self.every_s - time.monotonic()))
                if stop.is_set():
                    break
                event_id = str(new_id())
                body = self._body(event_id)
                self.sent_at[event_id] = time.monotonic()
                pool.submit(request_head(url, headers, len(body)) + b"\r\n" + body, number, self._answered)
            await self._all_answered()
        finally:
            pool.close()

    def _body(self, event_id: str) -> bytes:
        facts = {"event_id": event_id, "event_type": "bench.steady", "endpoint_id": str(self.endpoint_id)}
        bare = json.dumps(facts | {"payload": {"text": ""}})
        return bare.replace('""', json.dumps("x" * (BODY_BYTES - len(bare)))).encode()

    def _answered(self, number: int, status: int) -> None:
        self._statuses[number] = status

    async def _all_answered(self) -> None:
        async with asyncio.timeout(ARRIVE_S):
            while len(self._statuses) < len(self.sent_at):
                await asyncio.sleep(0.01)
        if others := set(self._statuses.values()) - {ACCEPTED}:
            raise ProcessError(f"the API answered {others}")

    async def waits_ms(self, receiver: Receiver) -> list[tuple[float, float]]:
        """When each was sent, and how long it took to arrive. ProcessError when one is missing or came twice."""
        await receiver.wait_for(len(self.sent_at), timeout_s=ARRIVE_S)
        arrived = await receiver.arrivals()
        waits = [(self.sent_at[job], (at - self.sent_at[job]) * 1000) for job, at, _ in arrived if job in self.sent_at]
        if len(waits) != len(self.sent_at):
            raise ProcessError(f"{len(waits)} requests for {len(self.sent_at)} events")
        return waits


def wait_figures(waits_ms: list[float]) -> dict[str, float]:
    ordered = sorted(waits_ms)
    figures = {f"p{share}_ms": percentile(ordered, share / 100) for share in (50, 95, 99)}
    return figures | {"max_ms": ordered[-1]}
