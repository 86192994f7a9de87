"""Migrations: applied once, in order, by any number of processes, and never against a schema unknown to us."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from redrive.store import migrate as migrations
from redrive.store.migrate import (
    MigrationChanged,
    MigrationError,
    SchemaTooNew,
    load_migrations,
    migrate,
    schema_version,
)

FIRST = "CREATE TABLE thing (id int);"
SECOND = "ALTER TABLE thing ADD name text; INSERT INTO thing VALUES (1, 'one');"


@pytest_asyncio.fixture(loop_scope="session")
async def conn(empty_database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_database_url)
    yield connection
    await connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_thing.sql").write_text(FIRST)
    (tmp_path / "0002_name.sql").write_text(SECOND)
    return tmp_path


async def test_a_new_database_is_at_version_0(conn: asyncpg.Connection) -> None:
    assert await schema_version(conn) == 0


async def test_each_migration_is_applied_once_in_order(conn: asyncpg.Connection, folder: Path) -> None:
    applied = await migrate(conn, folder=folder)
    assert [m.title for m in applied] == ["0001_thing", "0002_name"]
    assert await migrate(conn, folder=folder) == []
    assert await schema_version(conn) == 2
    assert await conn.fetchval("SELECT count(*) FROM redrive.thing") == 1


async def test_a_target_stops_on_the_way_and_there_is_no_way_back(conn: asyncpg.Connection, folder: Path) -> None:
    assert [m.version for m in await migrate(conn, 1, folder=folder)] == [1]
    assert [m.version for m in await migrate(conn, folder=folder)] == [2]
    with pytest.raises(MigrationError, match="no way back to 1"):
        await migrate(conn, 1, folder=folder)
    with pytest.raises(MigrationError, match="no schema 3: this Redrive knows 1 to 2"):
        await migrate(conn, 3, folder=folder)


async def test_migrators_at_the_same_time_all_succeed_and_share_the_work(empty_database_url: str, folder: Path) -> None:
    connections = [await asyncpg.connect(empty_database_url) for _ in range(4)]
    try:
        answers = await asyncio.gather(*(migrate(c, folder=folder) for c in connections))
        assert sorted(m.version for applied in answers for m in applied) == [1, 2]
        assert {await schema_version(c) for c in connections} == {2}
    finally:
        for connection in connections:
            await connection.close()


async def test_a_failed_migration_leaves_nothing_behind_and_says_which(conn: asyncpg.Connection, folder: Path) -> None:
    broken = folder / "0003_broken.sql"
    broken.write_text("CREATE TABLE half (id int); SELECT 1 / 0;")
    with pytest.raises(MigrationError, match=r"0003_broken failed .* division by zero.* at schema 2"):
        await migrate(conn, folder=folder)
    assert await schema_version(conn) == 2
    assert await conn.fetchval("SELECT to_regclass('redrive.half')") is None
    broken.write_text("CREATE TABLE whole (id int);")
    assert [m.version for m in await migrate(conn, folder=folder)] == [3]


async def test_a_migration_that_must_wait_for_a_table_lets_everybody_else_use_it(
    conn: asyncpg.Connection, empty_database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_WITHIN_MS", 30)
    monkeypatch.setattr(migrations, "REST_S", 0.02)
    await migrate(conn, 1, folder=folder)
    slow, quick = [await asyncpg.connect(empty_database_url) for _ in range(2)]
    try:
        reading = slow.transaction()
        await reading.start()
        await slow.fetchval("SELECT count(*) FROM redrive.thing")
        migrating = asyncio.create_task(migrate(conn, folder=folder))
        async with asyncio.timeout(10):
            for _ in range(10):
                await quick.execute("INSERT INTO redrive.thing VALUES (7)")
                await asyncio.sleep(0.01)
            assert not migrating.done()
            await reading.rollback()
            assert [m.version for m in await migrating] == [2]
    finally:
        await slow.close()
        await quick.close()


async def test_a_table_that_is_never_free_is_left_as_it_was_and_said(
    conn: asyncpg.Connection, empty_database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LOCK_WITHIN_MS", 10), ("REST_S", 0), ("MAX_TRIES", 3)):
        monkeypatch.setattr(migrations, name, value)
    await migrate(conn, 1, folder=folder)
    other = await asyncpg.connect(empty_database_url)
    try:
        async with other.transaction():
            await other.execute("LOCK TABLE redrive.thing")
            with pytest.raises(MigrationError, match=r"in use whenever it was tried, 3 times.*redrive doctor"):
                await migrate(conn, folder=folder)
    finally:
        await other.close()
    assert await schema_version(conn) == 1


async def test_a_database_of_a_newer_redrive_is_refused(conn: asyncpg.Connection, folder: Path) -> None:
    await migrate(conn, folder=folder)
    (folder / "0002_name.sql").unlink()
    with pytest.raises(SchemaTooNew, match=r"at schema 2, this Redrive knows up to 1: upgrade Redrive"):
        await migrate(conn, folder=folder)


async def test_a_changed_migration_is_named(conn: asyncpg.Connection, folder: Path) -> None:
    await migrate(conn, folder=folder)
    (folder / "0001_thing.sql").write_text(FIRST + " -- harmless?")
    with pytest.raises(MigrationChanged, match="0001_thing was changed after"):
        await migrate(conn, folder=folder)


async def test_line_ends_of_another_system_are_no_change(conn: asyncpg.Connection, folder: Path) -> None:
    (folder / "0001_thing.sql").write_bytes(b"CREATE TABLE thing\n(id int);\n")
    await migrate(conn, folder=folder)
    (folder / "0001_thing.sql").write_bytes(b"CREATE TABLE thing\r\n(id int);\r\n")
    assert await migrate(conn, folder=folder) == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("0004_gap.sql", "0004_gap should have version 0003"),
        ("0002_again.sql", "0002_name should have version 0003"),
        ("third.sql", "third.sql is no name for a migration"),
    ],
)
def test_file_names_must_make_a_sequence(folder: Path, name: str, complaint: str) -> None:
    (folder / name).write_text("SELECT 1;")
    with pytest.raises(MigrationError, match=complaint):
        load_migrations(folder)


def test_an_installation_without_migrations_says_so(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="missing from this installation"):
        load_migrations(tmp_path / "nowhere")


async def test_our_own_migrations_bring_a_database_to_the_newest_schema(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        assert await schema_version(connection) == len(load_migrations())
        assert await migrate(connection) == []
    finally:
        await connection.close()


async def test_what_was_stored_before_is_counted_in_bytes(conn: asyncpg.Connection) -> None:
    await migrate(conn, 10)
    await conn.execute("SET ROLE redrive_engine")
    org_id = await conn.fetchval(
        "INSERT INTO redrive.org (org_id, name) VALUES (gen_random_uuid(), 'o') RETURNING org_id"
    )
    await conn.execute(
        "INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)"
        " SELECT $1, gen_random_uuid(), 'a', 0, now(), now(), convert_to(repeat('x', n), 'UTF8')"
        "   FROM generate_series(1, 4) n",
        org_id,
    )
    await conn.execute("RESET ROLE")
    await migrate(conn)
    await conn.execute("SET ROLE redrive_engine")
    assert await conn.fetchval("SELECT sum(n) FROM redrive.counter WHERE name = 'event.bytes'") == 10


async def test_letters_of_before_are_counted_for_their_groups(conn: asyncpg.Connection) -> None:
    await migrate(conn, 19)
    await conn.execute("SET ROLE redrive_engine")
    org_id = await conn.fetchval(
        "INSERT INTO redrive.org (org_id, name) VALUES (gen_random_uuid(), 'o') RETURNING org_id"
    )
    await conn.execute("RESET ROLE")
    # Their tasks are not what this is about.
    await conn.execute("ALTER TABLE redrive.dead_letter DROP CONSTRAINT dead_letter_org_id_task_id_fkey")
    await conn.execute("SET ROLE redrive_engine")
    await conn.execute(
        "INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, event_type, reason, category,"
        " fingerprint, error_message, failed_at, generation, created_at, updated_at)"
        " SELECT $1, gen_random_uuid(), CASE WHEN n < 3 THEN 'resolved' ELSE 'open' END, 'http', gen_random_uuid(),"
        " 'a', 'permanent', 'timeout', 'f' || n % 2, 'late', now(), 0, now(), now() FROM generate_series(1, 9) n",
        org_id,
    )
    await conn.execute("RESET ROLE")
    await migrate(conn)
    await conn.execute("SET ROLE redrive_engine")
    rows = await conn.fetch("SELECT state, fingerprint, n FROM redrive.letter_count ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [
        ("open", "f0", 3),
        ("open", "f1", 4),
        ("resolved", "f0", 1),
        ("resolved", "f1", 1),
    ]


async def test_a_breaker_that_was_probing_is_open_afterwards(conn: asyncpg.Connection) -> None:
    await migrate(conn, 49)
    await conn.execute("SET ROLE redrive_engine")
    await conn.execute(
        "INSERT INTO redrive.endpoint_state (org_id, endpoint_id, breaker, breaker_since)"
        " VALUES (gen_random_uuid(), gen_random_uuid(), 'probing', now())"
    )
    await conn.execute("RESET ROLE")
    await migrate(conn)
    await conn.execute("SET ROLE redrive_engine")
    assert await conn.fetchval("SELECT breaker FROM redrive.endpoint_state") == "open"


async def test_what_failed_before_has_the_time_and_the_correlation_id_of_its_event(conn: asyncpg.Connection) -> None:
    await migrate(conn, 52)
    await conn.execute("SET ROLE redrive_engine")
    org_id = await conn.fetchval(
        "INSERT INTO redrive.org (org_id, name) VALUES (gen_random_uuid(), 'o') RETURNING org_id"
    )
    await conn.execute(
        "INSERT INTO redrive.policy (org_id, id, name, spec, timeout_s)"
        " VALUES ($1, gen_random_uuid(), 'integration', '{}', 30)",
        org_id,
    )
    await conn.execute(
        "SELECT redrive.accept(ARRAY[$1::uuid], ARRAY[gen_random_uuid()], '{a}', ARRAY['1'::bytea],"
        " ARRAY[now() - interval '1 day'], ARRAY[NULL::uuid], '{h}', ARRAY[NULL], ARRAY[NULL], ARRAY[NULL], '{c}')",
        org_id,
    )
    await conn.execute(
        "WITH died AS ("
        "  UPDATE redrive.task SET state = 'dead', reason = 'skipped', due_at = 'infinity', updated_at = now()"
        "  RETURNING *)"
        " INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, event_type, reason, category,"
        " fingerprint, error_message, failed_at, generation, created_at, updated_at)"
        " SELECT org_id, id, 'open', kind, event_id, event_type, reason, 'unknown', 'f', 'late', now(), 0, now(), now()"
        "   FROM died"
    )
    await conn.execute("RESET ROLE")
    await migrate(conn)
    await conn.execute("SET ROLE redrive_engine")
    row = await conn.fetchrow(
        "SELECT t.received_at - t.occurred_at AS before, d.correlation_id"
        "  FROM redrive.task t JOIN redrive.dead_letter d ON d.task_id = t.id"
    )
    assert row is not None
    assert row["before"] is not None
    assert row["before"].total_seconds() == pytest.approx(86_400, abs=60)
    assert row["correlation_id"] == "c"


async def test_programs_of_before_hand_in_while_their_database_is_migrated_and_afterwards(
    conn: asyncpg.Connection, empty_database_url: str
) -> None:
    """From the schema before anything was tallied; as the library of that time calls it."""
    await migrate(conn, 38)
    program = await asyncpg.connect(empty_database_url, server_settings={"role": "redrive_engine"})
    try:
        await program.execute("INSERT INTO redrive.org (org_id, name) VALUES (gen_random_uuid(), 'o')")
        migrating = asyncio.create_task(migrate(conn))
        taken, after = 0, 5
        async with asyncio.timeout(60):
            while after:
                after -= migrating.done()
                await program.execute("SELECT redrive.hand_in('a', NULL, '1', NULL, 'o', NULL, NULL, NULL)")
                taken += 1
        assert (await migrating)[0].version == 39
        assert await program.fetchval("SELECT count(*) FROM redrive.event") == taken
        assert 5 <= await program.fetchval("SELECT sum(created) FROM redrive.tally") <= taken
    finally:
        await program.close()
