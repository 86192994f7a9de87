"""What must hold after every fault: the books are in order, what was accepted exists, what succeeded has arrived.

TransitionLog watches what the end state cannot show: who closed which lease.
"""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from redrive.core.lifecycle import TRANSITIONS
from redrive.store.check import check
from redrive.store.db import Record
from support.processes import SECRET_KEY, run

_OVERLAPS = """
SELECT count(*) FROM redrive.attempt a JOIN redrive.attempt b
    ON a.org_id = b.org_id AND a.task_id = b.task_id AND a.fence < b.fence
 WHERE b.started_at < a.ended_at
"""


async def assert_sound(
    url: str, *, accepted: Collection[str] = (), received: Collection[str] = (), now: datetime | None = None
) -> None:
    """The three oracles. `received` are the ids in the receivers' own logs.

    `now` is for tests with a clock of their own, under which all tries of a moment seem to run at once.
    """
    report = await check(url, now=now)
    assert report.clean, [(one.rule.name, one.offences) for one in report.violations]
    connection = await asyncpg.connect(url, server_settings={"role": "redrive_engine"})
    try:
        known = {str(row[0]) for row in await connection.fetch("SELECT id FROM redrive.event")}
        lost = set(accepted) - known
        assert not lost, f"{len(lost)} of {len(accepted)} accepted events do not exist"
        succeeded = await connection.fetch(
            "SELECT DISTINCT event_id FROM redrive.task WHERE state = 'succeeded' AND queue IN ('http', 'notice.http')"
        )
        never_came = {str(row[0]) for row in succeeded} - set(received)
        assert not never_came, f"{len(never_came)} events are said to have succeeded that nobody received"
        steps = await connection.fetch(
            "SELECT s.idempotency_key FROM redrive.step s "
            "JOIN redrive.task t ON t.org_id = s.org_id AND t.id = s.task_id "
            "WHERE t.state = 'succeeded' AND t.queue = 'step.http'"
        )
        never_came = {row[0] for row in steps} - set(received)
        assert not never_came, f"{len(never_came)} steps are said to have succeeded that nobody was called for"
        if now is None:
            assert await connection.fetchval(_OVERLAPS) == 0, "one task had two tries at once"
    finally:
        await connection.close()


async def assert_check_passes(**env: str) -> None:
    """The same books by the command that a person runs."""
    code, said = await run("check", **{"REDRIVE_SECRET_KEY": SECRET_KEY, **env})
    assert code == 0, said


async def counts(url: str, sql: str) -> dict[str, int]:
    """The two columns of a query, as the engine's role sees them."""
    connection = await asyncpg.connect(url, server_settings={"role": "redrive_engine"})
    try:
        return {str(row[0]): int(row[1]) for row in await connection.fetch(sql)}
    finally:
        await connection.close()


async def states(url: str) -> dict[str, int]:
    """How many tasks there are in each state."""
    return await counts(url, "SELECT state, count(*) FROM redrive.task GROUP BY state")


async def all_succeed(url: str, *, within_s: float = 60.0) -> None:
    """Wait until nothing else is left to do."""
    found: dict[str, int] = {}
    try:
        async with asyncio.timeout(within_s):
            while set(found := await states(url)) != {"succeeded"}:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not all succeeded within {within_s} s: {found}") from None


_WATCH = """
CREATE TABLE public.transition (
  n bigint GENERATED ALWAYS AS IDENTITY, task_id uuid, by_whom text, was text, became text, was_fence int, fence int);
CREATE FUNCTION public.note_transition() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.transition (task_id, by_whom, was, became, was_fence, fence)
  VALUES (NEW.id, session_user, OLD.state, NEW.state, OLD.fence, NEW.fence);
  RETURN NULL;
END $$;
CREATE TRIGGER note_transition AFTER UPDATE ON redrive.task FOR EACH ROW EXECUTE FUNCTION public.note_transition();
"""


@dataclass(frozen=True, slots=True, repr=False)
class TransitionLog:
    """Every change of a task and whose login made it. So each worker needs a login of its own: `login`."""

    url: str
    superuser_url: str

    async def install(self) -> None:
        await self._execute(self.url, _WATCH)

    async def login(self, name: str) -> str:
        """The database's URL for a worker that can be told from the others."""
        await self._execute(
            self.superuser_url,
            f"DROP ROLE IF EXISTS {name}",
            f"CREATE ROLE {name} LOGIN PASSWORD '{name}' IN ROLE redrive_engine, redrive_app, redrive_producer",
        )
        return f"postgresql://{name}:{name}@{self.url.partition('@')[2]}"

    async def forget(self, *names: str) -> None:
        await self._execute(self.superuser_url, *(f"DROP ROLE IF EXISTS {name}" for name in names))

    async def offences(self) -> list[str]:
        """What no correct build does."""
        return _offences(await self._rows())

    async def successes(self) -> Counter[str]:
        """How many tasks each login brought to their end."""
        return Counter(row["by_whom"] for row in await self._rows() if row["became"] == "succeeded")

    async def _rows(self) -> list[Record]:
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch("SELECT * FROM public.transition ORDER BY n")
        finally:
            await connection.close()
        assert rows, "nothing was watched"
        return rows

    @staticmethod
    async def _execute(url: str, *statements: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


def _offences(rows: list[Record]) -> list[str]:
    found: list[str] = []
    holder: dict[object, str] = {}
    legal = {(str(was), str(became)) for was, became in TRANSITIONS}
    for row in rows:
        what = f"{row['task_id']}: {row['was']} {row['was_fence']} -> {row['became']} {row['fence']}"
        if row["was"] != row["became"] and (row["was"], row["became"]) not in legal:
            found.append(f"{what} is no transition")
        if row["fence"] != row["was_fence"] + (1 if row["became"] == "leased" else 0):
            found.append(f"{what} has a wrong fence")
        if row["became"] == "leased":
            holder[row["task_id"]] = row["by_whom"]
        elif row["was"] == "leased" and holder.get(row["task_id"]) != row["by_whom"]:
            found.append(f"{what} by {row['by_whom']}, but {holder.get(row['task_id'])} holds the lease")
    return found
