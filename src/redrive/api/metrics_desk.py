"""What /metrics answers: this process, the workers that `redrive serve` runs beside it and, of one server, the whole.

A scrape always gets an answer. While the database is away it has what the processes know of themselves; a worker that
is silent is left out and counted. One per process.
"""

import asyncio
import os
from collections.abc import Mapping

import structlog

from redrive.api.context import ApiContext
from redrive.api.installation_metrics import families
from redrive.observe.exposition import Families, ProcessNumbers, merge, write
from redrive.observe.metrics_server import CHILDREN_VARIABLE, ask
from redrive.observe.process_metrics import BUILD, OF_SERVERS, SCRAPE_FAILURES, server_gauges
from redrive.store.db import LOST
from redrive.store.installation import Installation, Numbers
from redrive.store.orgs import new_id
from redrive.store.teller import Teller

PROCESS = "api"
DATABASE_WITHIN_S = 5.0
CHILD_WITHIN_S = 1.0
MAX_ACCEPT_CHARS = 500

log = structlog.get_logger("redrive.metrics")


class MetricsDesk:
    def __init__(self, context: ApiContext, children: Mapping[str, str] | None = None) -> None:
        """`children`: the sockets of other processes, by their names; by default what the environment says."""
        self.teller = Teller(context.engine_db, context.clock, new_id())
        self._installation = Installation(context.engine_db, context.clock)
        self._children = _children() if children is None else children
        self._is_up = False
        self._reading: asyncio.Task[Numbers] | None = None
        ours = server_gauges(lambda: float(self._is_up), lambda: float(self.teller.tells))
        self._own = ProcessNumbers(PROCESS, (*OF_SERVERS, *ours))
        BUILD.ask(lambda: 1, (context.version,))

    async def text(self, accept: str) -> tuple[str, str]:
        """The text in a format that is accepted, and its content type."""
        accept = accept[:MAX_ACCEPT_CHARS].replace("\r", " ").replace("\n", " ")
        asked = [self._ask(name, where, accept) for name, where in self._children.items()]
        numbers, others = await asyncio.gather(self._numbers(), asyncio.gather(*asked))
        told = [Families(list(families(numbers)))] if numbers is not None else []
        own, content_type = write([self._own, *told], accept)
        text = merge([own, *(other for other in others if other is not None)])
        if numbers is None and self.teller.other is not None and content_type.startswith("text/plain"):
            text += f"# The numbers of the installation are told by {self.teller.other}.\n"
        return text, content_type

    async def _numbers(self) -> Numbers | None:
        """None: another server tells them, or the database is away or slow."""
        answered = False
        try:
            async with asyncio.timeout(DATABASE_WITHIN_S):
                is_ours = await self.teller.renew()
                answered = True
                numbers = await asyncio.shield(self._read()) if is_ours else None
        except LOST as error:
            self._is_up = answered and isinstance(error, TimeoutError)  # it is there, but takes its time
            log.warning("scrape_without_installation", error_type=type(error).__name__, database_up=self._is_up)
            return None
        self._is_up = True
        return numbers if self.teller.tells else None

    def _read(self) -> asyncio.Task[Numbers]:
        """A reading that takes longer than a scrape may goes on, and whoever scrapes next waits for it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._installation.numbers())
            self._reading.add_done_callback(_look_at)
        return self._reading

    async def _ask(self, name: str, where: str, accept: str) -> str | None:
        try:
            return await ask(where, accept, within_s=CHILD_WITHIN_S)
        except (OSError, TimeoutError) as error:
            SCRAPE_FAILURES.add()
            log.info("scrape_without_worker", name=name, error_type=type(error).__name__)
            return None


def _look_at(reading: asyncio.Task[Numbers]) -> None:
    """Whoever waited has heard of its error; where nobody did any more, the next reading meets it again."""
    if not reading.cancelled():
        reading.exception()


def _children() -> dict[str, str]:
    """As `redrive serve` names them: name=socket, separated by commas."""
    named = os.environ.get(CHILDREN_VARIABLE, "")
    return dict(pair.split("=", 1) for pair in named.split(",") if pair)
