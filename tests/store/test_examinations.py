"""What `redrive doctor` sees in a database: each trouble that is planted, and none where there is none."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from conftest import database_of
from redrive.core.findings import MAX_FINDINGS, Diagnosis, Seen, Severity, examined, problem, warning
from redrive.doctor.diagnose import diagnose
from redrive.settings import load_settings
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.examinations.advice import role_findings
from redrive.store.examinations.looking import Limits, Looking
from redrive.store.examinations.schema import CATALOGUE, CATALOGUED, MIGRATIONS, as_text, catalogue_of, from_text
from redrive.store.examinations.server import (
    look_at_clock,
    look_at_connection,
)
from redrive.store.examinations.upkeep import LOCKS, UPKEEP, _is_mostly_empty
from support.engine import Connection, Engine

from .examined import ALL, NOT_DURABLE, findings, in_two_hours, made


@pytest_asyncio.fixture(loop_scope="session")
async def owner(database_url: str) -> AsyncIterator[Connection]:
    """Whoever owns the schema of a database of its own, and may break it."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_what_the_migrations_make_is_what_databases_are_compared_with(empty_url: str) -> None:
    looking = Looking(empty_url, Limits())
    there = as_text(catalogue_of(await looking.rows("doctor_catalogue")))
    await looking.close()
    kept = resources.files("redrive.store.examinations").joinpath(CATALOGUE).read_text(encoding="utf-8")
    assert there == kept, "the migrations make something else now: run `make catalogue`"
    assert as_text(from_text(kept)) == kept


async def test_nothing_is_found_where_nothing_is_wrong(live: Engine) -> None:
    await live.endpoint()
    await live.accept_many(20)
    for place, job in enumerate(await live.claim(15)):
        await (live.succeed, live.fail, live.kill)[place % 3](job)
    examined = await made(live.url)
    assert {finding.what for finding in findings(examined)} == NOT_DURABLE
    assert examined["holds"].saw == "Nothing is paused or disabled."
    assert [one.name for one in examined.values() if not one.made] == []


async def test_whatever_was_changed_in_the_schema_is_found_and_what_it_says_to_do_puts_it_right(
    owner: Connection, database_url: str
) -> None:
    await owner.execute("""
        DROP INDEX redrive.task_stream;
        DROP INDEX redrive.task_under_way;
        DROP TRIGGER operation_transition ON redrive.operation;
        ALTER TABLE redrive.operation_item DISABLE TRIGGER operation_item_transition;
        ALTER TABLE redrive.dead_letter DROP CONSTRAINT dead_letter_state_check;
        ALTER TABLE redrive.event DISABLE ROW LEVEL SECURITY;
        ALTER TABLE redrive.attempt NO FORCE ROW LEVEL SECURITY;
        DROP POLICY tenant ON redrive.task;
        CREATE POLICY everything ON redrive.endpoint TO redrive_app USING (true);
        ALTER POLICY tenant ON redrive.run USING (true);
        GRANT DELETE ON redrive.audit TO redrive_app;
        REVOKE INSERT ON redrive.attempt FROM redrive_engine;
        GRANT SELECT ON redrive.session TO redrive_app;
        GRANT EXECUTE ON FUNCTION redrive.analyse_new() TO PUBLIC;
        CREATE FUNCTION public.theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
        CREATE TRIGGER theirs BEFORE INSERT ON redrive.event FOR EACH ROW EXECUTE FUNCTION public.theirs();
    """)
    found = findings(await made(database_url, CATALOGUED))
    said = "\n".join(finding.what for finding in found)
    for what in (
        "The index task_stream on task is missing.",
        "The index task_under_way on task is missing.",
        "The trigger operation.operation_transition is missing.",
        "The trigger operation_item.operation_item_transition is switched off.",
        "The constraint dead_letter.dead_letter_state_check is missing.",
        "Row-level security of event is not enabled.",
        "Row-level security of attempt is not forced.",
        "The policy tenant of task is missing.",
        "endpoint has a policy that no migration made: everything.",
        "The policy tenant of run is not as the migrations made it.",
        "The rights of redrive_app on audit are not those that the migrations gave.",
        "The rights of redrive_engine on attempt are not those that the migrations gave.",
        "A right was granted that no migration gave: redrive_app on session.",
        "A right was granted that no migration gave: PUBLIC on analyse_new().",
        "event has a trigger that no migration made: theirs.",
    ):
        assert what in said
    assert len(found) == 15
    for finding in found:
        for statement in finding.fix.partition(" unless ")[0].split("; "):
            await owner.execute(statement)
    assert findings(await made(database_url, CATALOGUED)) == []


def test_what_is_not_told_is_counted_for_what_it_is() -> None:
    found = [warning("w", "", "")] * 2 + [problem("p", "", "")] * (MAX_FINDINGS + 3)
    diagnosis = Diagnosis(datetime.now(UTC), (examined("a", "A", Seen("", found), 0.0),))
    assert (diagnosis.count(Severity.PROBLEM), diagnosis.count(Severity.WARNING)) == (MAX_FINDINGS + 3, 2)


async def test_a_function_that_was_replaced_and_a_table_that_is_gone_are_told_with_the_migration_that_made_them(
    owner: Connection, database_url: str
) -> None:
    await owner.execute("""
        CREATE OR REPLACE FUNCTION redrive.may_change() RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';
        DROP TABLE redrive.effect;
    """)
    found = {finding.what: finding.fix for finding in findings(await made(database_url, CATALOGUED))}
    assert "0006_roles.sql" in found["The function may_change() is not as the migrations made it."]
    assert "0035_workflows.sql" in found["The table effect is missing."]
    assert len(found) == 2  # of the table's columns, indexes and policies nothing is said


async def test_a_schema_of_another_redrive_is_told(owner: Connection, database_url: str) -> None:
    await owner.execute(
        "DELETE FROM redrive.schema_migration WHERE version = (SELECT max(version) FROM redrive.schema_migration)"
    )
    await owner.execute("UPDATE redrive.schema_migration SET checksum = 'another' WHERE version = 7")
    found = findings(await made(database_url, [MIGRATIONS]))
    assert [finding.fix.split(",")[0] for finding in found] == ["redrive migrate", "Install the release that made it"]
    await owner.execute("INSERT INTO redrive.schema_migration VALUES (990, 'of_the_future', '')")
    assert "A newer Redrive" in findings(await made(database_url, [MIGRATIONS]))[0].why


async def test_a_database_without_a_redrive_is_told_with_what_makes_one(postgres: EmbeddedPostgres) -> None:
    [found] = findings(await made(database_of(postgres.url, "postgres"), [MIGRATIONS, *UPKEEP]))
    assert (found.what, found.fix) == ("The database holds no Redrive.", "redrive migrate")


async def test_a_role_that_may_more_than_it_should_is_told() -> None:
    row = {
        "name": "redrive_app",
        "rolsuper": True,
        "rolbypassrls": True,
        "rolcanlogin": False,
        "rolcreaterole": False,
        "owns": 3,
        "member_of": ["redrive_engine"],
    }
    fixes = [finding.fix for finding in role_findings(row)]  # type: ignore[arg-type]
    assert fixes[:2] == ["ALTER ROLE redrive_app NOSUPERUSER;", "ALTER ROLE redrive_app NOBYPASSRLS;"]
    assert "REVOKE redrive_engine FROM redrive_app;" in fixes
    assert len(fixes) == 4


@pytest.mark.parametrize(
    ("off_s", "severity"),
    [(0, None), (5, Severity.WARNING), (-5, Severity.WARNING), (3600, Severity.PROBLEM), (-86_400, Severity.PROBLEM)],
)
async def test_a_clock_that_is_off_is_found(empty_url: str, off_s: float, severity: Severity | None) -> None:
    looking = Looking(empty_url, Limits())
    seen = await look_at_clock(looking, lambda: datetime.now(UTC) + timedelta(seconds=off_s))
    await looking.close()
    assert [finding.severity for finding in seen.findings] == ([severity] if severity else [])
    if severity:
        assert ("ahead of" if off_s > 0 else "behind") in seen.saw


async def test_a_transaction_left_open_is_found_with_whoever_left_it(live: Engine) -> None:
    forgetful = await asyncpg.connect(live.url, server_settings={"application_name": "a-report"})
    try:
        await forgetful.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM redrive.task")
        assert findings(await made(live.url, UPKEEP)) == []
        [found] = findings(await made(live.url, UPKEEP, now=await in_two_hours(live)))
        pid = forgetful.get_server_pid()
        assert found.severity is Severity.PROBLEM
        assert f"process {pid}, a-report" in found.what
        assert "2 h" in found.what
        assert f"pg_terminate_backend({pid})" in found.fix
    finally:
        await forgetful.close()
    assert findings(await made(live.url, UPKEEP, now=await in_two_hours(live))) == []


async def test_of_sessions_that_postgresql_hides_age_and_number_are_told(
    live: Engine, postgres: EmbeddedPostgres
) -> None:
    """From a login that may not see what others do."""
    superuser = await asyncpg.connect(postgres.superuser_url)
    await superuser.execute("CREATE ROLE a_stranger LOGIN PASSWORD 'a-password'")
    parts = urlsplit(live.url)
    strange_url = parts._replace(netloc=f"a_stranger:a-password@{parts.netloc.rpartition('@')[2]}").geturl()
    forgetful = await asyncpg.connect(live.url)
    try:
        await forgetful.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        examined = await made(strange_url, UPKEEP[1:2], transaction_xids=-1)
        assert any(f"process {forgetful.get_server_pid()}" in finding.what for finding in findings(examined))
        assert "sessions of other logins PostgreSQL hides" in examined["transactions"].saw
        async with asyncio.timeout(10):  # those that have just ended are seen for a moment
            while await _connections(strange_url) != await _connections(live.url):
                continue
    finally:
        await forgetful.close()
        await superuser.execute("DROP ROLE a_stranger")
        await superuser.close()


async def _connections(url: str) -> int:
    """As many as are taken by what it says."""
    saw = (await made(url, ALL[:1]))["connection"].saw
    return int(saw.split("; ")[1].split(" of ")[0])


async def test_a_replication_slot_that_nobody_reads_is_found(live: Engine, postgres: EmbeddedPostgres) -> None:
    superuser = await asyncpg.connect(postgres.superuser_url)
    await superuser.execute("SELECT pg_create_physical_replication_slot('a_copy_that_is_gone')")
    try:
        [found] = findings(await made(live.url, UPKEEP))
        assert "a_copy_that_is_gone" in found.what
    finally:
        await superuser.execute("SELECT pg_drop_replication_slot('a_copy_that_is_gone')")
        await superuser.close()


async def test_who_waits_for_a_lock_is_found_with_who_has_it(live: Engine) -> None:
    holder, waiter = [await asyncpg.connect(live.url, server_settings={"role": "redrive_engine"}) for _ in range(2)]
    try:
        await holder.execute("BEGIN; SELECT pg_advisory_xact_lock(42)")
        waiting = asyncio.create_task(waiter.execute("SELECT pg_advisory_lock(42)"))
        await live.until("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        [found] = findings(await made(live.url, [LOCKS], now=await in_two_hours(live)))
        assert found.what.startswith("1 session waits for a lock on (advisory) that process ")
        assert f"process {waiter.get_server_pid()} " in found.what
        assert f"process {holder.get_server_pid()} " in found.what
        await holder.execute("ROLLBACK")
        await waiting
    finally:
        await holder.close()
        await waiter.close()


async def test_whoever_keeps_many_waiting_is_found_once_with_how_many_and_before_what_suffers_from_it(
    live: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who read wait behind one who wants the table to itself, who waits for one who has read."""
    monkeypatch.setattr("redrive.store.examinations.looking.LOCK_TIMEOUT_S", 0.02)
    sessions = [await asyncpg.connect(live.url, server_settings={"role": "redrive_engine"}) for _ in range(6)]
    holder, first, *others = sessions
    waiting = []
    try:
        await holder.execute("BEGIN; SELECT 1 FROM redrive.worker")
        waits = "SELECT count(*) = $1 FROM pg_locks WHERE NOT granted AND relation = 'redrive.worker'::regclass"
        for n, (session, mode) in enumerate([(first, "EXCLUSIVE"), *((other, "SHARE") for other in others)], start=1):
            waiting.append(asyncio.create_task(_locked(session, mode)))
            await live.until(waits, n)
        limits = Limits(now=await in_two_hours(live))
        diagnosis = await diagnose(load_settings(database_url=live.url), live.url, limits=limits)
        examined = {one.name: one for one in diagnosis.examinations}
        [found] = examined["locks"].findings
        assert found.what.startswith(
            f"5 sessions wait for a lock on redrive.worker that process {holder.get_server_pid()} "
        )
        assert f"the first of them is process {first.get_server_pid()} " in found.what
        assert found.fix.startswith(f"SELECT pg_terminate_backend({holder.get_server_pid()});")
        names = list(examined)
        assert names.index("locks") < names.index("migrations") < names.index("workers")
        assert not examined["workers"].made
    finally:
        await holder.close()
        await asyncio.gather(*waiting)
        for session in sessions:
            await session.close()


async def _locked(session: Connection, mode: str) -> None:
    async with session.transaction():
        await session.execute(f"LOCK TABLE redrive.worker IN ACCESS {mode} MODE")


async def test_an_examination_that_cannot_be_made_is_told_and_hides_no_other(
    owner: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.store.examinations.looking.LOCK_TIMEOUT_S", 0.02)
    async with owner.transaction():
        await owner.execute("LOCK TABLE redrive.schema_migration IN ACCESS EXCLUSIVE MODE")
        examined = await made(database_url, [MIGRATIONS, *CATALOGUED])
        diagnosis = await diagnose(load_settings(database_url=database_url), database_url)
    assert {one.saw for one in diagnosis.examinations if not one.made} == {
        "Somebody has locked what was to be looked at.",
        "What was applied to the database could not be seen.",
    }
    assert [(one.name, one.made) for one in examined.values()] == [
        ("migrations", False),
        ("objects", True),
        ("isolation", True),
    ]
    assert examined["migrations"].has(Severity.PROBLEM)
    gone = await made("postgresql://nobody@127.0.0.1:9/nothing", [MIGRATIONS])
    assert not gone["migrations"].made


async def test_autovacuum_that_is_off_and_rows_that_nobody_removed_are_found(
    owner: Connection, database_url: str
) -> None:
    await owner.execute("ALTER TABLE redrive.task SET (autovacuum_enabled = off)")
    [found] = findings(await made(database_url, UPKEEP[:1]))
    assert found.fix == "ALTER TABLE redrive.task RESET (autovacuum_enabled);"
    await owner.execute(found.fix)
    await owner.execute("SET ROLE redrive_engine")
    await owner.execute("""
        INSERT INTO redrive.counter SELECT gen_random_uuid(), 'a', 0, 1 FROM generate_series(1, 50);
        UPDATE redrive.counter SET n = 2; UPDATE redrive.counter SET n = 3; SELECT pg_stat_force_next_flush();""")
    dead = {"dead_rows": 10, "now": datetime.now(UTC) + timedelta(hours=1)}
    assert [f.what.split()[0] for f in findings(await made(database_url, UPKEEP[:1], **dead))] == ["counter"]
    await owner.execute("""
        INSERT INTO redrive.worker
               SELECT gen_random_uuid(), now(), now(), 'a', 1, '1', '{http}', 5 FROM generate_series(1, 300);
        DELETE FROM redrive.worker; SELECT pg_stat_force_next_flush();""")
    assert findings(await made(database_url, UPKEEP[:1], heap_bytes=1)) == []  # nobody has looked how full it is
    await owner.execute("RESET ROLE; ANALYZE redrive.worker")
    [empty] = findings(await made(database_url, UPKEEP[:1], heap_bytes=1))
    assert re.fullmatch(r"worker takes 0 MiB for 0 rows: most of it is empty\.", empty.what)


async def test_a_full_table_whose_rows_the_server_has_forgotten_is_not_taken_for_empty(
    owner: Connection, database_url: str, postgres: EmbeddedPostgres
) -> None:
    """As after a crash or a failover."""
    await owner.execute("""
        SET ROLE redrive_engine;
        INSERT INTO redrive.worker
               SELECT gen_random_uuid(), now(), now(), 'a', 1, '1', '{http}', 5 FROM generate_series(1, 300);
        RESET ROLE; ANALYZE redrive.worker; SELECT pg_stat_force_next_flush();""")
    superuser = await asyncpg.connect(database_of(postgres.superuser_url, urlsplit(database_url).path.lstrip("/")))
    try:
        await superuser.execute("SELECT pg_stat_reset()")
    finally:
        await superuser.close()
    assert await owner.fetchval("SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'worker'") == 0
    assert findings(await made(database_url, UPKEEP[:1], heap_bytes=1)) == []


@pytest.mark.parametrize(
    ("row", "is_empty"),
    [
        ({"is_known": True, "is_standby": False}, True),
        ({"is_known": False, "is_standby": False}, False),
        ({"is_known": True, "is_standby": True}, False),
    ],
)
def test_no_table_is_called_empty_on_a_standby_or_before_anybody_has_looked(
    row: dict[str, object], is_empty: bool
) -> None:
    assert _is_mostly_empty(row | {"heap_bytes": 2**30, "live": 5}, 2**28) is is_empty  # type: ignore[arg-type]


async def test_a_server_that_is_nearly_full_is_told(empty_url: str) -> None:
    """Of connections, or of notifications that somebody does not read."""
    looking = Looking(empty_url, Limits(connections_used=0.0, connections_gone=1.1, notifications_used=0.0))
    seen = await look_at_connection(looking, pooler=False)
    await looking.close()
    assert [finding.severity for finding in seen.findings] == [Severity.WARNING] * 2
    assert "queue of notifications is 0 % full" in seen.findings[1].what


async def test_who_logs_in_with_too_many_rights_or_too_few_is_told(
    postgres: EmbeddedPostgres, owner: Connection, database_url: str
) -> None:
    """A superuser, whom row-level security does not bind; and where nothing can be written, or each word takes long."""
    name = urlsplit(database_url).path.lstrip("/")
    [found] = findings(await made(database_of(postgres.superuser_url, name), ALL[:1]))
    assert "a superuser" in found.what
    await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    found, slow = findings(await made(database_url, ALL[:1], round_trip_s=0.0))
    assert (found.severity, found.what) == (
        Severity.PROBLEM,
        "The server takes no writes: it is a standby, or read only.",
    )
    assert slow.what.startswith("A round trip to the server takes ")
