"""Keeps a worker's agenda true: what was told, what a survey finds, which lanes want a head, which endpoints are ours.

Used by engine.worker, before each claim. Meets the store through core.ports.
"""

import time
from collections.abc import Sequence
from uuid import UUID

from redrive.core.ports import NO_ENDPOINT, Ask, Place, Stream, TaskStore
from redrive.engine.agenda import Agenda
from redrive.engine.breakers import Breakers

SURVEY_EVERY_S = 0.5  # how long a task may wait that nobody told of, or that was committed behind the floor
SURVEY_PART = 20  # a survey that takes long is made less often: a twentieth of the time at most
MOST_PAUSE_S = 0.9  # but no retry is more than a second late for it
OWNED_S = 10.0  # how long an endpoint is had to oneself at least


class Lookout:
    def __init__(
        self, store: TaskStore, agenda: Agenda, queues: Sequence[str], worker_id: UUID, breakers: Breakers | None
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._queues = queues
        self._worker_id = worker_id
        self._breakers = breakers
        self._told: set[Stream] = set()
        self._lanes_told = True
        self._survey_by = 0.0  # at the latest
        self._survey_from = 0.0  # at the earliest
        self._has_owned = False
        self.may_be_expedited = True  # a person may have asked for a try now

    def tell(self, told: str) -> None:
        """A notification: a line for each stream, of queue, org and endpoint; without a queue: a lane was woken.

        Nothing at all means that anything may be due.
        """
        try:
            streams = [_stream(line) for line in told.splitlines()]
        except ValueError:
            streams = []  # not ours, or of another version
        if not streams:
            self._survey_by = 0.0
            self._lanes_told = True
            self.may_be_expedited = True
            self._agenda.doubt()
        for stream in streams:
            if stream.place.queue in self._queues:
                self._told.add(stream)
            elif not stream.place.queue:
                self._lanes_told = True

    async def look(self, *, everywhere: bool = False) -> None:
        """Bring the agenda up to date, as far as it is time to. `everywhere`: it is."""
        is_time = everywhere or time.monotonic() >= max(self._survey_by, self._survey_from)
        if self._lanes_told or is_time:
            await self._wake_lanes(from_start=everywhere)
        if is_time:
            await self._survey(from_start=True)
        now = time.monotonic()
        told, self._told = self._told, set()
        for stream in told:
            self._agenda.tell(stream, now, now)
        await self._own()
        if self._breakers is not None:
            await self._breakers.tick(time.monotonic())

    async def look_ahead(self) -> None:
        """Find out what comes next, where streams were emptied since the last survey."""
        if self._agenda.is_unsure and time.monotonic() >= self._survey_from:
            await self._survey(from_start=False)

    async def expedited(self) -> list[Ask]:
        """What people asked for now, where anybody may have."""
        if not self.may_be_expedited:
            return []
        self.may_be_expedited = False
        return await self._store.expedited(self._queues)

    def next_look(self) -> float:
        """When to look again at the latest, on the monotonic clock."""
        return self._survey_from if self._agenda.is_unsure else max(self._survey_by, self._survey_from)

    async def _wake_lanes(self, *, from_start: bool) -> None:
        self._lanes_told = False
        woken = await self._store.wake_lanes(from_start=from_start)
        self._lanes_told |= woken.more
        now = time.monotonic()
        for stream in woken.streams:
            if stream.place.queue in self._queues:
                self._agenda.tell(stream, now, now)

    async def _survey(self, *, from_start: bool) -> None:
        began = time.monotonic()
        self._agenda.expect_survey()
        found = await self._store.survey(self._queues)
        now = time.monotonic()
        self._agenda.learn(found, now, from_start=from_start)
        pause_s = min(SURVEY_PART * (time.monotonic() - began), MOST_PAUSE_S)
        self._survey_from = now + pause_s
        if from_start:
            self._survey_by = now + max(SURVEY_EVERY_S, pause_s)
            self.may_be_expedited = True  # nobody may have told of it
            self._agenda.look_after_budgets(now)

    async def _own(self) -> None:
        places = self._agenda.to_own(time.monotonic())
        if not places:
            return
        self._has_owned = True
        owned = await self._store.own(places, self._worker_id, OWNED_S)
        self._agenda.note_owned(places, owned, time.monotonic())

    async def let_go(self) -> None:
        """Nothing is under way any more: others may have what was ours."""
        if self._has_owned:
            await self._store.disown(self._worker_id)


def _stream(line: str) -> Stream:
    queue, org_id, endpoint_id = line.split("\t")
    return Stream(Place(queue, UUID(org_id), UUID(endpoint_id) if endpoint_id else NO_ENDPOINT), False)
