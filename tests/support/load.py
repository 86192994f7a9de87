"""Producers that keep posting, whatever happens, and remember what they were told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPException

from hypothesis import settings

from support.processes import ADMIN_KEY, Served, until
from support.remote import Remote

CALLERS = 4
PAUSE_S = 0.005  # between two: what is accepted must be delivered and looked through as well
PAUSE_AFTER_TROUBLE_S = 0.02
USUAL_EXAMPLES = 50  # of a property, in conftest.py


def volume(usual: int, thorough: int) -> int:
    """How much a fault falls into: enough to be hit by it, or, with `--hypothesis-profile=thorough`, more than that."""
    return thorough if settings.default is not None and settings.default.max_examples > USUAL_EXAMPLES else usual


class Load:
    """`accepted`: the ids that were answered with 202. `troubles`: answers of another kind, and broken connections."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.troubles = 0
        self.posting: list[asyncio.Task[None]] = []

    async def accepts(self, more: int, *, within_s: float = 60.0) -> None:
        """Wait until so many more were accepted, or a producer gave up."""
        goal = len(self.accepted) + more
        await until(
            lambda: len(self.accepted) >= goal or any(task.done() for task in self.posting),
            within_s=within_s,
            why=lambda: f"{len(self.accepted)} of {goal} accepted, {self.troubles} troubles",
        )

    async def post(self, remote: Remote, endpoint_id: str) -> None:
        while True:
            try:
                answer = await remote.try_event(endpoint_id)
            except (OSError, HTTPException):
                remote.close()  # the next request begins afresh
                self.troubles += 1
                await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)
                continue
            if answer.status == 202:
                self.accepted.append(answer.json["event_id"])
                await asyncio.sleep(PAUSE_S)
            else:
                assert answer.status == 503, answer.body
                self.troubles += 1
                await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)


@asynccontextmanager
async def load(served: Served, endpoint_id: str) -> AsyncIterator[Load]:
    """Producers at work for as long as the block runs."""
    running = Load()
    remotes = [Remote(served.host, served.port, ADMIN_KEY) for _ in range(CALLERS)]
    running.posting = [asyncio.create_task(running.post(remote, endpoint_id)) for remote in remotes]
    try:
        yield running
    finally:
        for task in running.posting:
            task.cancel()
        ended = await asyncio.gather(*running.posting, return_exceptions=True)
        for remote in remotes:
            remote.close()
    wrong = [error for error in ended if isinstance(error, Exception)]
    assert not wrong, wrong
