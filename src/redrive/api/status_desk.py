"""Where events stand, for many who ask at once: questions that arrive together share one query.

Producers poll. Asked one by one, each question is four round trips; asked together they are four for all of an org's.
Called by routes.events.
"""

import asyncio
from collections.abc import Mapping
from uuid import UUID

from redrive.api.context import ApiContext
from redrive.observe import traces
from redrive.observe.traces import Attributes, Entry
from redrive.store.db import Record
from redrive.store.events import get_event_statuses
from redrive.store.keys import Caller

MAX_ASKED_TOGETHER = 500

_Answers = asyncio.Future[Mapping[UUID, Record]]


class StatusDesk:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._waiting: dict[UUID, list[tuple[UUID, _Answers]]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def status(self, caller: Caller, event_id: UUID, entry: Entry | None = None) -> Record | None:
        """None: the caller's org has no such event. `entry`: into the trace of the request."""
        row = await self._ask(caller, event_id)
        if entry is not None:
            facts: Attributes = {"redrive.org_id": str(caller.org_id), "redrive.event_id": str(event_id)}
            facts["redrive.status"] = "unknown" if row is None else row["status"]
            traces.handed_in(entry, facts, name="status")
        return row

    async def _ask(self, caller: Caller, event_id: UUID) -> Record | None:
        answers: _Answers = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(caller.org_id)
        if waiting is None:
            self._waiting[caller.org_id] = [(event_id, answers)]
            serving = asyncio.create_task(self._serve(caller))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        else:
            waiting.append((event_id, answers))
        return (await answers).get(event_id)

    async def _serve(self, caller: Caller) -> None:
        """Answer an org's questions until there are none; those that come meanwhile are the next batch."""
        waiting = self._waiting[caller.org_id]
        while waiting:
            batch = waiting[:MAX_ASKED_TOGETHER]
            del waiting[:MAX_ASKED_TOGETHER]
            try:
                async with self._context.tenant(caller) as session:
                    found = {row["id"]: row for row in await get_event_statuses(session, {id for id, _ in batch})}
            except Exception as error:  # noqa: BLE001 (each of those who asked gets it)
                for _, answers in batch:
                    if not answers.done():
                        answers.set_exception(error)
            else:
                for _, answers in batch:
                    if not answers.done():  # its client may have gone
                        answers.set_result(found)
        del self._waiting[caller.org_id]
