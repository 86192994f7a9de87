"""One org per session, held by the database itself: without a name nothing is there, with one only its own rows."""

import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from redrive.core.permissions import CHANGERS, Role
from redrive.store.keys import new_key, store_key
from redrive.store.orgs import new_id
from support.engine import Connection, Engine
from support.flows import Flow

ROLES = ["redrive_app", "redrive_engine", "redrive_janitor", "redrive_producer"]
ENGINE_ONLY = {"effect"}  # test_grants has it
TENANT_TABLES = """
  SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced,
         ARRAY (SELECT DISTINCT r.rolname::text FROM pg_policy p CROSS JOIN unnest(p.polroles) AS o(oid)
                  JOIN pg_roles r ON r.oid = o.oid WHERE p.polrelid = c.oid AND p.polcmd = '*' AND p.polpermissive
                 ORDER BY 1) AS roles,
         ARRAY (SELECT p.polcmd::text FROM pg_policy p
                 WHERE p.polrelid = c.oid AND NOT p.polpermissive ORDER BY 1) AS checked
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' AND NOT a.attisdropped
   WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind IN ('r', 'p')"""


@pytest_asyncio.fixture(loop_scope="session")
async def orgs(engine: Engine) -> tuple[UUID, UUID]:
    """Two orgs with something in every table that the store fills."""
    other = await engine.org("other")
    mine = engine.org_id
    for org_id in (mine, other):
        engine.org_id = org_id
        await engine.endpoint(org=org_id)
        await engine.accept_many(2)
        for job in await engine.claim():
            await engine.kill(job)
        await Flow.begun(engine)
        await store_key(engine.db, org_id, new_key(), name="k", role="OWNER")
    engine.org_id = mine
    return mine, other


@pytest_asyncio.fixture(loop_scope="session")
async def app(engine: Engine) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_app"})
    yield connection
    await connection.close()


async def test_every_table_with_an_org_is_under_row_level_security_for_both_roles_and_changes_are_checked(
    engine: Engine,
) -> None:
    tables = await engine.sql.fetch(TENANT_TABLES)
    known = {"org", "event", "task", "attempt", "dead_letter", "audit", "workflow", "run", "step", "effect"}
    assert known <= {row["name"] for row in tables}
    for table in tables:
        assert (table["enabled"], table["forced"]) == (True, True), table["name"]
        assert table["roles"] == ["redrive_app", "redrive_engine"], table["name"]
        assert table["checked"] == ["a", "d", "w"], table["name"]


async def test_every_view_asks_with_the_caller_s_rights(engine: Engine) -> None:
    views = await engine.sql.fetch(
        "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'redrive'::regnamespace AND relkind = 'v'"
    )
    assert views
    for view in views:
        assert "security_invoker=true" in (view["reloptions"] or []), view["relname"]


async def test_keys_and_references_of_tenant_tables_begin_with_the_org(engine: Engine) -> None:
    """So that the schema can be distributed by tenant, and no row can point into another's."""
    rows = await engine.sql.fetch(
        "SELECT c.conrelid::regclass::text AS name, a.attname AS first FROM pg_constraint c"
        "  JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]"
        " WHERE c.connamespace = 'redrive'::regnamespace AND c.contype IN ('p', 'f')"
        "   AND EXISTS (SELECT FROM pg_attribute o WHERE o.attrelid = c.conrelid AND o.attname = 'org_id')"
    )
    assert rows
    assert {row["first"] for row in rows} == {"org_id"}


async def test_without_an_org_nothing_is_there(engine: Engine, orgs: tuple[UUID, UUID], app: Connection) -> None:
    for setting in (None, ""):  # never set, and set for an earlier transaction
        if setting is not None:
            async with app.transaction():
                await app.execute(f"SET LOCAL redrive.org = '{orgs[0]}'")
            assert await app.fetchval("SELECT current_setting('redrive.org', true)") == setting
        for name in await _readable(engine):
            assert await app.fetchval(f"SELECT count(*) FROM redrive.{name}") == 0, name


async def test_with_an_org_only_its_own_rows_are_there(
    engine: Engine, orgs: tuple[UUID, UUID], app: Connection
) -> None:
    mine, other = orgs
    async with app.transaction():
        await app.execute(f"SET LOCAL redrive.org = '{mine}'")
        for name in await _readable(engine):
            seen = await app.fetch(f"SELECT org_id, count(*) AS n FROM redrive.{name} GROUP BY 1")
            there = await engine.sql.fetchval(f"SELECT count(*) FROM redrive.{name} WHERE org_id = $1", mine)
            assert {row["org_id"]: row["n"] for row in seen} == ({mine: there} if there else {}), name
            assert await app.fetchval(f"SELECT count(*) FROM redrive.{name} WHERE org_id = $1", other) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind) VALUES ($1, $2, now(), 'a', 'b', 'c')",
        "INSERT INTO redrive.org (org_id, name) VALUES ($1, $2::text)",
        "UPDATE redrive.endpoint SET org_id = $1, id = $2",
        "UPDATE redrive.run SET org_id = $1, id = $2",
        "UPDATE redrive.step SET org_id = $1, run_id = $2",
        "UPDATE redrive.workflow SET org_id = $1, id = $2",
    ],
)
async def test_nothing_can_be_written_for_another_org(orgs: tuple[UUID, UUID], app: Connection, statement: str) -> None:
    mine, other = orgs
    argument = str(new_id()) if "::text" in statement else new_id()

    async def write() -> None:
        async with app.transaction():
            await app.execute(f"SET LOCAL redrive.org = '{mine}'; SET LOCAL redrive.role = 'OWNER'")
            await app.execute(statement, other, argument)

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await write()


async def test_another_org_s_rows_cannot_be_changed(engine: Engine, orgs: tuple[UUID, UUID], app: Connection) -> None:
    mine, other = orgs
    async with app.transaction():
        await app.execute(f"SET LOCAL redrive.org = '{mine}'")
        for change in ("task SET updated_at = now()", "run SET cancelled_at = now()", "step SET url = 'http://a'"):
            assert await app.execute(f"UPDATE redrive.{change} WHERE org_id = $1", other) == "UPDATE 0"


async def test_nobody_but_the_owner_of_the_schema_deletes_or_disables(orgs: tuple[UUID, UUID], app: Connection) -> None:
    for statement in (
        "DELETE FROM redrive.endpoint",
        "DELETE FROM redrive.run",
        "DELETE FROM redrive.step",
        "DELETE FROM redrive.workflow",
        "TRUNCATE redrive.audit",
        "ALTER TABLE redrive.task DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE redrive.task DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
        "SELECT * FROM redrive.installation",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await app.execute(statement)


async def test_tenants_that_share_connections_each_see_their_own(engine: Engine, orgs: tuple[UUID, UUID]) -> None:
    for _ in range(5):
        for org_id in orgs:
            async with engine.app.tenant(org_id) as session:
                rows = await session.fetch("list_endpoints", org_id, None, 10)
                assert [row["org_id"] for row in rows] == [org_id]
                other = orgs[0] if org_id == orgs[1] else orgs[1]
                assert await session.fetch("list_endpoints", other, None, 10) == []


async def test_the_roles_own_nothing_and_have_no_special_power(engine: Engine) -> None:
    """But for the functions that run as the engine whoever calls them."""
    for role in ROLES:
        row = await engine.sql.fetchrow(
            "SELECT rolsuper, rolbypassrls, rolcanlogin, rolcreaterole, rolcreatedb, rolreplication"
            "  FROM pg_roles WHERE rolname = $1",
            role,
        )
        assert row is not None
        assert not any(row), role
    owned = await engine.sql.fetch(
        "SELECT relname::text AS name FROM pg_class WHERE pg_get_userbyid(relowner) = ANY ($1)"
        " UNION ALL SELECT nspname FROM pg_namespace WHERE pg_get_userbyid(nspowner) = ANY ($1)"
        " UNION ALL SELECT proname FROM pg_proc WHERE pg_get_userbyid(proowner) = ANY ($1)",
        ROLES,
    )
    assert sorted(row["name"] for row in owned) == ["accept", "hand_in", "hand_in_run", "workflow_in_force"]


async def test_functions_that_run_as_somebody_else_have_a_fixed_search_path_and_no_public_callers(
    engine: Engine,
) -> None:
    rows = await engine.sql.fetch(
        "SELECT proname, proconfig, has_function_privilege('public', oid, 'EXECUTE') AS public FROM pg_proc"
        " WHERE pronamespace = 'redrive'::regnamespace AND prosecdef"
    )
    assert {row["proname"] for row in rows} == {
        "accept",
        "hand_in",
        "hand_in_run",
        "workflow_in_force",
        "analyse_new",
        "open_transactions",
    }
    for row in rows:
        assert row["proconfig"] == ["search_path=redrive, pg_temp"]
        assert not row["public"]


async def _readable(engine: Engine) -> list[str]:
    """Tenant tables and all views, but for what only the engine reads."""
    tables = [row["name"] for row in await engine.sql.fetch(TENANT_TABLES) if row["name"] not in ENGINE_ONLY]
    views = await engine.sql.fetch(
        "SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'redrive'::regnamespace AND relkind = 'v'"
    )
    assert {"task_entry", "event_entry"} <= {row["name"] for row in views}
    return tables + [row["name"] for row in views]


@pytest.mark.parametrize("role", [*Role, ""])
async def test_only_roles_that_may_change_anything_change_a_row(
    orgs: tuple[UUID, UUID], app: Connection, role: str
) -> None:
    """The same roles as in core/permissions.py, held by the database."""
    mine, _ = orgs
    written = None
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        async with app.transaction():
            await app.execute(f"SET LOCAL redrive.org = '{mine}'; SET LOCAL redrive.role = '{role}'")
            assert await app.execute("UPDATE redrive.endpoint SET name = name") == f"UPDATE {int(role in CHANGERS)}"
            written = await app.execute(
                "INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind)"
                " VALUES ($1, $2, now(), 'a', 'b', 'c')",
                mine,
                new_id(),
            )
    assert (written is not None) == (role in CHANGERS)
