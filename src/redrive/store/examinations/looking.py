"""How a database is examined: one connection, and for each question a transaction that reads only and is bounded, so
that a database which is ill ends no examination but its own. Beyond these limits something is said.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg

from redrive.core.brief import brief
from redrive.core.findings import Examined, Seen, examined, not_made
from redrive.store.db import ENGINE_PLANS, LOST, Connection, Record, connect, query

STATEMENT_TIMEOUT_S = 5.0
EXAMINATION_TIMEOUT_S = 12.0  # for a connection that hangs: the server would have ended the statement
LOCK_TIMEOUT_S = 1.0
CLOSE_TIMEOUT_S = 2.0

# Names are written in full, whatever the settings of the login; and no lock is waited for long.
_TERMS = (
    "SET LOCAL statement_timeout = '{:.0f}s'; SET LOCAL lock_timeout = {:.0f};"
    " SET LOCAL search_path = ''; SET LOCAL jit = off"
)
# As the engine plans: no table is read whole, however little the server knows of it.
_AS_ENGINE = "".join(
    f"; SET LOCAL {name} = {value}" for name, value in {"role": "redrive_engine", **ENGINE_PLANS}.items()
)


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is worth a word. `now` is for tests: by which time ages in the database are counted."""

    now: datetime | None = None
    round_trip_s: float = 0.05
    connections_used: float = 0.8
    connections_gone: float = 0.95
    notifications_used: float = 0.1
    notifications_gone: float = 0.5
    skew_s: float = 2.0
    grave_skew_s: float = 60.0
    transaction_s: float = 300.0
    grave_transaction_s: float = 1_800.0
    transaction_xids: int = 1_000_000
    lock_wait_s: float = 10.0
    dead_rows: int = 100_000
    unvacuumed_s: float = 900.0
    heap_bytes: int = 256 * 1024 * 1024
    unserved_s: float = 60.0
    due_s: float = 300.0
    grave_due_s: float = 3_600.0
    breaker_s: float = 300.0
    open_letters: int = 50
    failed_tries: int = 100
    failed_share: float = 0.5
    step_late_s: float = 600.0
    untold_s: float = 300.0
    unrolled_s: float = 600.0


@dataclass(slots=True)
class Looking:
    """A database that is being examined."""

    url: str = field(repr=False)
    limits: Limits
    nobody_runs: bool = False  # the server was started to be examined, whoever the database says was heard of
    _connection: "Connection | None" = None

    async def open(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await connect(
                    self.url, name="redrive-doctor", command_timeout_s=STATEMENT_TIMEOUT_S + 1
                )
            except ValueError:  # nothing of it is repeated: a password may be what made it unreadable
                raise asyncpg.InterfaceError("the URL of the database cannot be read") from None
        return self._connection

    async def close(self) -> None:
        if self._connection is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._connection.close()
        except LOST:
            self._connection.terminate()

    def drop(self) -> None:
        """The next examination gets another connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def rows(self, name: str, *args: object, as_engine: bool = False) -> list[Record]:
        """The answer to sql/<name>.sql, in a transaction of its own; as the engine, which sees the rows of all orgs."""
        connection = await self.open()
        async with connection.transaction(readonly=True):
            terms = _TERMS.format(STATEMENT_TIMEOUT_S, LOCK_TIMEOUT_S * 1000)
            await connection.execute(terms + (_AS_ENGINE if as_engine else ""))
            rows: list[Record] = await connection.fetch(query(name), *args)
            return rows

    async def row(self, name: str, *args: object, as_engine: bool = False) -> Record:
        [row] = await self.rows(name, *args, as_engine=as_engine)
        return row


@dataclass(frozen=True, slots=True)
class Examination:
    """A thing that is looked at. `title` says what, `look` does it."""

    name: str
    title: str
    look: Callable[[Looking], Awaitable[Seen]]


async def examine(looking: Looking, examinations: Sequence[Examination]) -> list[Examined]:
    return [await _examined(looking, examination) for examination in examinations]


async def _examined(looking: Looking, examination: Examination) -> Examined:
    """Whatever it comes to: one that fails is told as such, and keeps no other from being made."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(EXAMINATION_TIMEOUT_S):
            seen = await examination.look(looking)
    except asyncpg.QueryCanceledError:
        why = f"The database did not answer within {STATEMENT_TIMEOUT_S:.0f} s."
    except TimeoutError:
        looking.drop()
        why = f"The database did not answer within {EXAMINATION_TIMEOUT_S:.0f} s."
    except asyncpg.LockNotAvailableError:
        why = "Somebody has locked what was to be looked at."
    except asyncpg.InsufficientPrivilegeError as error:
        why = f"The database user may not see it: {error}."
    except Exception as error:  # noqa: BLE001 - also a bug of ours hides no other examination
        looking.drop()
        why = f"{brief(error)}."
    else:
        return examined(examination.name, examination.title, seen, time.monotonic() - began)
    return not_made(examination.name, examination.title, why, time.monotonic() - began)
