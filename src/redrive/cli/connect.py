"""Ways from a command to the database: the one that the settings name, the one of a running Redrive, or the embedded
one, started for the duration of the command.

Called by every command that needs data. Says on stderr when it starts a server.
"""

import asyncio
import getpass
import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict, TypeVar
from uuid import UUID

import asyncpg

from redrive.cli.options import Place, Where
from redrive.cli.output import note
from redrive.cli.runner import Refused, Unreachable
from redrive.core.brief import words_of
from redrive.settings import Settings, load_settings
from redrive.store.audit import Act
from redrive.store.db import LOST, Database, Pooler, Session, connect, shown
from redrive.store.embedded import EmbeddedPostgres, running_url
from redrive.store.migrate import load_migrations, schema_version
from redrive.store.orgs import find_org, prove_seal
from redrive.store.postgres_folder import LOG
from redrive.store.seal import Sealer

STARTING_PATIENCE_S = 10.0  # a server that is just being started, or is recovering
POLL_S = 0.1
STATEMENT_WITHIN_S = 10.0  # each statement of a command; with connecting and closing a person hears of it within 15 s


SLOW = "The database is busy, or another session holds a lock: see `redrive doctor`."

T = TypeVar("T")


class Terms(TypedDict):
    """How a command's connections are opened."""

    size: int
    name: str
    pooler: Pooler
    command_timeout_s: float


class Located(NamedTuple):
    """Where a database is, and how long it may take until somebody answers there."""

    url: str
    patience_s: float = 0.0
    was_started: bool = False  # for this command: no Redrive runs


@dataclass(frozen=True, slots=True)
class Desk:
    """An org's data, ready to be worked on."""

    settings: Settings
    url: str = field(repr=False)
    engine: Database
    app: Database
    org_id: UUID
    org: str

    def session(self) -> AbstractAsyncContextManager[Session]:
        """A transaction in which only this org exists."""
        return self.app.tenant(self.org_id)

    def beyond(self) -> AbstractAsyncContextManager[Session]:
        """The same as the engine, for what reaches beyond an org: accounts."""
        return self.engine.tenant(self.org_id)

    async def sealer(self) -> Sealer:
        return await proven_sealer(self.settings, self.engine)


def settings_of(place: Place) -> Settings:
    return load_settings(data_dir=place.data_dir, database_url=place.database_url)


def act_of(because: str | None = None) -> Act:
    """Who acts: the account of this machine."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as containers have them
        name = str(os.geteuid())
    return Act(f"cli:{name}", because)


@asynccontextmanager
async def open_desk(where: Where, *, size: int = 1) -> AsyncIterator[Desk]:
    settings = settings_of(where)
    async with reach(settings) as url:
        pooler = settings.pooler
        terms: Terms = {"size": size, "name": "redrive-cli", "pooler": pooler, "command_timeout_s": STATEMENT_WITHIN_S}
        engine = await Database.open(url, role="redrive_engine", **terms)
        try:
            org_id = await find_org(engine, where.org)
            if org_id is None:
                raise Refused(f'There is no org named "{where.org}" here. Name another with --org.')
            app = await Database.open(url, role="redrive_app", **terms)
            try:
                yield Desk(settings, url, engine, app, org_id, where.org)
            finally:
                await app.close()
        finally:
            await engine.close()


@asynccontextmanager
async def open_installation(place: Place) -> AsyncIterator[Database]:
    """Every org, as the engine sees them."""
    settings = settings_of(place)
    async with reach(settings) as url:
        engine = await Database.open(
            url,
            role="redrive_engine",
            size=1,
            name="redrive-cli",
            pooler=settings.pooler,
            command_timeout_s=STATEMENT_WITHIN_S,
        )
        try:
            yield engine
        finally:
            await engine.close()


@asynccontextmanager
async def reach(settings: Settings, *, any_schema: bool = False) -> AsyncIterator[str]:
    """The URL of a database that answers and, unless any will do, has the schema that this Redrive knows."""
    async with located(settings) as there:
        version = await answered_version(settings, there.url, there.patience_s)
        if not any_schema:
            _require(version, there.url)
        yield there.url


@asynccontextmanager
async def located(settings: Settings) -> AsyncIterator[Located]:
    if settings.database_url is not None:
        yield Located(settings.database_url)
        return
    running = running_url(settings.data_dir)
    if running is not None:
        yield Located(running, STARTING_PATIENCE_S)
        return
    if not (settings.data_dir / "postgres").exists():
        raise Unreachable(
            f"There is no Redrive data at {settings.data_dir}. Start a Redrive with `redrive serve`, or say where one "
            "is: --data-dir, --database-url, or REDRIVE_DATABASE_URL."
        )
    note(f"No Redrive runs on {settings.data_dir}: its PostgreSQL is started for this command.")
    postgres = await EmbeddedPostgres.start(settings.data_dir)
    try:
        yield Located(postgres.url, was_started=True)
    finally:
        await postgres.stop()


async def answered_version(settings: Settings, url: str, patience_s: float = 0.0) -> int:
    """The schema's version, once the database answers; Unreachable where it does not."""
    until = time.monotonic() + patience_s
    while True:
        try:
            connection = await connect(url, name="redrive-cli", command_timeout_s=STATEMENT_WITHIN_S)
        except (OSError, asyncpg.CannotConnectNowError) as problem:
            if time.monotonic() >= until:
                raise _unreachable(settings, url, problem) from problem
            await asyncio.sleep(POLL_S)
        except ValueError:
            # Nothing of it is repeated, nor kept as the cause: a password may be what made it unreadable.
            raise Unreachable(
                "The database URL cannot be read. It looks like postgresql://user:password@host:5432/name; special "
                "characters in the password are written as %40 and the like."
            ) from None
        except LOST as problem:
            raise _unreachable(settings, url, problem) from problem
        else:
            break
    try:
        return await schema_version(connection)
    finally:
        await connection.close()


def _unreachable(settings: Settings, url: str, problem: Exception) -> Unreachable:
    why = words_of(problem)
    if settings.database_url is None:  # the embedded one: it has no address, user or password of anybody's
        return Unreachable(
            f"The PostgreSQL of the data folder {settings.data_dir} does not answer: {why}. Its log is "
            f"{settings.data_dir / LOG}. If that does not help, end the `redrive serve` that runs it, and start it "
            "again: what was accepted is kept."
        )
    return Unreachable(
        f"The database {shown(url)} cannot be reached: {why}. See that it runs and that the address, the user and the "
        "password are right."
    )


def _require(version: int, url: str) -> None:
    known = len(load_migrations())
    if version == 0:
        raise Unreachable(f"The database {shown(url)} holds no Redrive. Make one there with `redrive migrate`.")
    if version < known:
        raise Unreachable(
            f"The database {shown(url)} is at schema {version}, this Redrive needs {known}. Bring it up to date with "
            "`redrive migrate`."
        )


async def with_a_note(work: Awaitable[T], waits_for: str) -> T:
    """Work of a command that may take long by right. Where it does, a person is told what it may be waiting for."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=STATEMENT_WITHIN_S)
    if not done:
        note(f"Still waiting. {waits_for}")
    return await task


async def proven_sealer(settings: Settings, engine: Database) -> Sealer:
    """The key that this database's secrets are sealed with. Never a new one: it would open nothing."""
    from redrive.app import SEAL_FILE, sealer_of  # brings the whole of Redrive with it: only where it is needed

    if settings.secret_key is None and not (settings.data_dir / SEAL_FILE).exists():
        raise Refused(
            "The key that endpoint secrets are sealed with is not here. Set REDRIVE_SECRET_KEY to that of this "
            f"installation, or --data-dir to the folder with its {SEAL_FILE}."
        )
    sealer = sealer_of(settings)
    await prove_seal(engine, sealer)
    return sealer
