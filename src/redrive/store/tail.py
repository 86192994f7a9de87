"""Watching: what happens at this moment, in all processes and by all people. Costs them nothing while nobody does.

A Tail has a connection to the server itself. It says by NOTIFY, every few seconds, that somebody is here and what they
want to see; the processes that listen (store.listen) answer with the log lines of their transitions. What people do is
read from the audit, which is where every process and every command writes it. Used by `redrive tail`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec

from redrive.core.watching import WATCH_CHANNEL, Wish, channel_of, word_of_act
from redrive.ending import end
from redrive.store.db import LOST, Connection, Record, connect, query
from redrive.store.listen import tail_secret

CALL_EVERY_S = 4.0  # well below WATCHED_FOR_S: one that is lost does not matter
ACTS_EVERY_S = 1.0
GATHER_S = 0.3  # a little longer than processes gather: what they saw is put in the order of time
ACTS_OVERLAP = timedelta(seconds=5)  # what began earlier may be committed later
MAX_ACTS = 2_000  # read at once
MAX_QUEUED = 5_000  # lines that were not printed yet; more are counted
COMMAND_TIMEOUT_S = 10.0
LEAVE_WITHIN_S = 1.0

Line = dict[str, Any]

_AS_ENGINE = "SET LOCAL ROLE redrive_engine"


class Tail:
    def __init__(self, connection: Connection, wish: Wish) -> None:
        self._connection = connection
        self._wish = wish
        self._id = uuid4().hex
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._missed = 0
        self._turn = asyncio.Lock()  # one question at a time on the connection
        self._names: dict[str, str] = {}
        self._known: set[UUID] = set()  # acts that were told
        self.processes: set[str] = set()

    async def begin(self) -> None:
        self._connection.add_termination_listener(lambda _connection: self._lines.put_nowait(None))
        channel = channel_of(self._id, await tail_secret(self._connection))
        await self._connection.add_listener(channel, lambda *given: self._hear(str(given[-1])))
        self._since: datetime = await self._connection.fetchval("SELECT clock_timestamp()")
        await self._call()

    async def end(self) -> None:
        """Say that nobody watches any more; where that fails, the processes find out by themselves."""
        with contextlib.suppress(*LOST):
            async with asyncio.timeout(LEAVE_WITHIN_S), self._turn:
                call = msgspec.json.encode({"id": self._id, "leaves": True}).decode()
                await self._connection.execute(query("notify"), WATCH_CHANNEL, call)

    async def lines(self) -> AsyncIterator[Line]:
        """Until the connection ends: ConnectionError. A line {"missed": n} stands for n that came too fast."""
        calling = [asyncio.create_task(self._keep_calling()), asyncio.create_task(self._keep_reading())]
        for task in calling:  # one that fails is noticed although nothing is seen
            task.add_done_callback(lambda _task: self._lines.put_nowait(None))
        try:
            while True:
                batch = [await self._lines.get()]
                await asyncio.sleep(GATHER_S)
                while not self._lines.empty():
                    batch.append(self._lines.get_nowait())
                told = sorted((line for line in batch if line is not None), key=lambda line: str(line["at"]))
                for line in await self._named(told):
                    yield line
                if self._missed:
                    missed, self._missed = self._missed, 0
                    yield {"missed": missed}
                for broken in (task for task in calling if task.done()):
                    broken.result()
                if None in batch:
                    raise ConnectionError("The database ended the connection.")
        finally:
            await end(*calling)

    def _hear(self, said: str) -> None:
        told = msgspec.json.decode(said)
        self.processes.add(told["by"])
        self._missed += told["missed"]
        self._put({**line, "by": told["by"]} for line in told["lines"])

    def _put(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if self._lines.qsize() < MAX_QUEUED:
                self._lines.put_nowait(line)
            else:
                self._missed += 1

    async def _keep_calling(self) -> None:
        while True:
            await asyncio.sleep(CALL_EVERY_S)
            await self._call()

    async def _call(self) -> None:
        call = msgspec.json.encode({"id": self._id, "wish": self._wish.as_spec()}).decode()
        async with self._turn:
            await self._connection.execute(query("notify"), WATCH_CHANNEL, call)

    async def _keep_reading(self) -> None:
        while True:
            org_id = UUID(self._wish.org_id) if self._wish.org_id else None
            rows = await self._rows("tail_acts", org_id, self._since, MAX_ACTS)
            new = [row for row in rows if row["id"] not in self._known]
            self._known = {row["id"] for row in rows}
            is_full = len(rows) == MAX_ACTS
            if rows:
                self._since = max(self._since, rows[-1]["at"] - (ACTS_OVERLAP if not is_full else timedelta(0)))
            acts = [(word_of_act(row["action"]), _act(row)) for row in new]
            self._put({"what": word, **act} for word, act in acts if self._wish.wants(word, act))
            await asyncio.sleep(0 if is_full else ACTS_EVERY_S)

    async def _named(self, lines: list[Line]) -> list[Line]:
        """With the names of their orgs and endpoints."""
        asked = [(line.get("org_id"), line.get("endpoint_id")) for line in lines]
        unknown = {id_ for pair in asked for id_ in pair if id_ is not None and id_ not in self._names}
        if unknown:
            orgs = {UUID(org) for org, _ in asked if org is not None}
            ids = [UUID(id_) for id_ in unknown]
            found = await self._rows("tail_names", list(orgs), ids)
            self._names |= dict.fromkeys(unknown, "?") | {str(row["id"]): row["name"] for row in found}
        named = []
        for line, (org, endpoint) in zip(lines, asked, strict=True):
            names = {"org": org, "endpoint": endpoint}
            named.append(line | {name: self._names[id_] for name, id_ in names.items() if id_ is not None})
        return named

    async def _rows(self, name: str, *args: object) -> list[Record]:
        async with self._turn, self._connection.transaction(readonly=True):
            await self._connection.execute(_AS_ENGINE)
            rows: list[Record] = await self._connection.fetch(query(name), *args)
            return rows


@asynccontextmanager
async def open_tail(url: str, wish: Wish) -> AsyncIterator[Tail]:
    """`url` leads to the server itself: notifications do not pass a pooler."""
    connection = await connect(url, name="redrive-tail", command_timeout_s=COMMAND_TIMEOUT_S)
    try:
        tail = Tail(connection, wish)
        await tail.begin()
        try:
            yield tail
        finally:
            await tail.end()
    finally:
        connection.terminate()


async def endpoints_called(url: str, org_id: UUID | None, called: str) -> list[UUID]:
    """The ids of the endpoints that are meant by an id or a name."""
    connection = await connect(url, name="redrive-tail", command_timeout_s=COMMAND_TIMEOUT_S)
    try:
        async with connection.transaction(readonly=True):
            await connection.execute(_AS_ENGINE)
            return [row["id"] for row in await connection.fetch(query("tail_endpoints"), org_id, called)]
    finally:
        await connection.close()


def _act(row: Record) -> Line:
    """An entry of the audit as a line, in the shape of the others: ids are texts, what is not known is left out."""
    line = {
        "event": "person_acted",
        **{name: value for name, value in row.items() if value is not None and name != "id"},
    }
    line["at"] = row["at"].isoformat().replace("+00:00", "Z")
    return {name: str(value) if isinstance(value, UUID) else value for name, value in line.items()}
