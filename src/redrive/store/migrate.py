"""Bring a database's schema up to date: plain numbered SQL files, each in a transaction of its own.

The only module that changes the schema. Called by `redrive migrate`, at start-up, and by tests with a
folder of their own.

Under traffic: whoever waits for a lock on a table keeps everybody behind it waiting, so a migration waits for a moment
only, lets the others through, and tries again.
"""

import asyncio
import hashlib
import re
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable

import asyncpg

FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
ADVISORY_LOCK = 0x7265_6472_6976_6501  # "redrive" and a number of ours, in a database that others may share

LOCK_WITHIN_MS = 1_000  # for so long others may stand behind us
REST_S = 1.0  # and then they go first
MAX_TRIES = 120
IN_THE_WAY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

LEDGER = """
CREATE SCHEMA IF NOT EXISTS redrive;
CREATE TABLE IF NOT EXISTS redrive.schema_migration (
  version    integer PRIMARY KEY,
  name       text NOT NULL,
  checksum   text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now());
"""


class MigrationError(Exception):
    """The schema cannot be brought up to date. The message says what happened, why, and what to do."""


class SchemaTooNew(MigrationError):
    """A newer Redrive has migrated this database."""


class MigrationChanged(MigrationError):
    """A file that was applied earlier reads differently now."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    checksum: str
    sql: str = field(repr=False)

    @property
    def title(self) -> str:
        return f"{self.version:04}_{self.name}"


def load_migrations(folder: Traversable | None = None) -> list[Migration]:
    """Every migration that this program knows, in order; versions run from 1 without a gap."""
    place = folder or resources.files("redrive.store").joinpath("migrations")
    if not place.is_dir():
        raise MigrationError(f"The migrations are missing from this installation ({place}). Install Redrive again.")
    found = sorted(
        (_read(file) for file in place.iterdir() if file.name.endswith(".sql")),
        key=lambda m: (m.version, m.name),
    )
    for expected, migration in enumerate(found, start=1):
        if migration.version != expected:
            raise MigrationError(f"Migration {migration.title} should have version {expected:04}: fix its file name.")
    return found


async def schema_version(conn: asyncpg.Connection) -> int:
    """The newest migration that was applied; 0 for a database that has none."""
    async with conn.transaction():
        if await conn.fetchval("SELECT to_regclass('redrive.schema_migration')") is None:
            return 0
        return int(await conn.fetchval("SELECT coalesce(max(version), 0) FROM redrive.schema_migration"))


async def migrate(
    conn: asyncpg.Connection, target: int | None = None, *, folder: Traversable | None = None
) -> list[Migration]:
    """Apply what is missing, up to `target` (None: everything); returns what this call applied.

    Any number of processes may do this at the same time. The lock belongs to each transaction, not to the
    session, so that it also holds behind a pooler and ends with whoever held it.
    """
    known = load_migrations(folder)
    goal = len(known) if target is None else target
    if not 0 <= goal <= len(known):
        raise MigrationError(f"There is no schema {goal}: this Redrive knows 1 to {len(known)}.")
    applied: list[Migration] = []
    while (step := await _apply_patiently(conn, known, goal)) is not None:
        applied.append(step)
    return applied


async def _apply_patiently(conn: asyncpg.Connection, known: list[Migration], goal: int) -> Migration | None:
    for _ in range(MAX_TRIES):
        try:
            return await _apply_next(conn, known, goal)
        except IN_THE_WAY:
            await asyncio.sleep(REST_S)
    raise MigrationError(
        f"A table that is to be changed was in use whenever it was tried, {MAX_TRIES} times; it is as it was. Look for"
        " a transaction that stays open (`redrive doctor` names it), end it, and run `redrive migrate` again."
    )


async def _apply_next(conn: asyncpg.Connection, known: list[Migration], goal: int) -> Migration | None:
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", ADVISORY_LOCK)
        await conn.execute(LEDGER)
        current = await _verified_version(conn, known)
        if current > goal:
            raise MigrationError(
                f"This database is at schema {current}; there is no way back to {goal}. Restore a backup from"
                " before the upgrade if you need the older schema."
            )
        if current == goal:
            return None
        migration = known[current]
        await conn.execute("SET LOCAL search_path = redrive, public")
        await conn.execute(f"SET LOCAL lock_timeout = {LOCK_WITHIN_MS}")
        try:
            await conn.execute(migration.sql)
        except IN_THE_WAY:
            raise
        except asyncpg.PostgresError as problem:
            raise MigrationError(
                f"Migration {migration.title} failed and left nothing behind: {problem}. The database stays"
                f" at schema {current}."
            ) from problem
        await conn.execute(
            "INSERT INTO redrive.schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.checksum,
        )
        return migration


def require_known(version: int, newest: int | None = None) -> None:
    """SchemaTooNew where a database is ahead of this program."""
    newest = len(load_migrations()) if newest is None else newest
    if version > newest:
        raise SchemaTooNew(
            f"This database is at schema {version}, this Redrive knows up to {newest}: upgrade Redrive,"
            " or restore a backup from before the newer one ran."
        )


async def _verified_version(conn: asyncpg.Connection, known: list[Migration]) -> int:
    """The database's version, after comparing all that was applied with what we would have applied."""
    rows = await conn.fetch("SELECT version, name, checksum FROM redrive.schema_migration ORDER BY version")
    current = rows[-1]["version"] if rows else 0
    require_known(current, len(known))
    for row in rows:
        migration = known[row["version"] - 1]
        if migration.checksum != row["checksum"]:
            raise MigrationChanged(
                f"Migration {migration.title} was changed after it had been applied to this database (as"
                f" {row['version']:04}_{row['name']}). Restore the file; put the change into a new migration."
            )
    return int(current)


def _read(file: Traversable) -> Migration:
    matched = FILE_NAME.fullmatch(file.name)
    if matched is None:
        raise MigrationError(f"{file.name} is no name for a migration: it must look like 0001_first_tables.sql.")
    sql = file.read_text(encoding="utf-8")  # universal newlines: a checkout on Windows has the same checksum
    return Migration(int(matched[1]), matched[2], hashlib.sha256(sql.encode()).hexdigest(), sql)
