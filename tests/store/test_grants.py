"""What the app's role may not do even in its own org: rewrite the audit, raise a key, hand in for anyone, never end."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from redrive.api.outage import OUTAGES, reason_of
from redrive.store.audit import Act
from redrive.store.keys import list_keys, new_key, revoke_key, store_key
from support.engine import Connection, Engine


@pytest_asyncio.fixture(loop_scope="session")
async def app(engine: Engine) -> AsyncIterator[Connection]:
    """In a transaction of the org, as the API is."""
    await store_key(engine.db, engine.org_id, new_key(), name="k", role="VIEWER")
    connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_app"})
    async with connection.transaction():
        await connection.execute(f"SET LOCAL redrive.org = '{engine.org_id}'")
        yield connection
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE redrive.audit SET actor = 'nobody'",
        "DELETE FROM redrive.audit",
        "UPDATE redrive.api_key SET role = 'OWNER'",
        "UPDATE redrive.api_key SET hash = lookup",
        "UPDATE redrive.api_key SET expires_at = NULL",
        "DELETE FROM redrive.api_key",
        "SELECT seal_check FROM redrive.installation",
        "UPDATE redrive.installation SET seal_check = NULL",
        "UPDATE redrive.operation SET succeeded = total",
        "UPDATE redrive.operation_item SET state = 'succeeded'",
        "DELETE FROM redrive.operation",
        "DELETE FROM redrive.operation_item",
        "UPDATE redrive.endpoint_history SET failed = 0",
        "DELETE FROM redrive.endpoint_history",
        "UPDATE redrive.notice SET text = 'all is well'",
        "UPDATE redrive.notice SET told_at = clock_timestamp()",
        "DELETE FROM redrive.notice",
        "DELETE FROM redrive.notice_more",
        "UPDATE redrive.alert SET over_at = clock_timestamp()",
        "DELETE FROM redrive.alert",
        "SELECT * FROM redrive.alert_round",
        "UPDATE redrive.job SET succeeded_at = clock_timestamp()",
        "SELECT * FROM redrive.open_transactions(clock_timestamp(), 1)",
        "SELECT * FROM redrive.effect",
        "UPDATE redrive.effect SET result = '1'",
        "DELETE FROM redrive.run",
        "DELETE FROM redrive.step",
        "SELECT redrive.workflow_in_force('default', 'a')",
        "SELECT redrive.enqueue('a', '1')",
        "SELECT redrive.publish('a', '1')",
        "SELECT redrive.hand_in('a', NULL, '1', NULL, 'default', NULL, NULL, NULL)",
    ],
)
async def test_the_app_cannot_rewrite_history_raise_a_key_or_hand_in(app: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
        async with app.transaction():
            await app.execute(statement)


async def test_the_app_can_still_read_and_add_to_the_audit_and_revoke_a_key(engine: Engine, app: Connection) -> None:
    assert await app.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'key.create'") == 1
    async with engine.app.tenant(engine.org_id) as session:
        (key,) = (await list_keys(session, limit=10)).rows
        assert await revoke_key(session, key["id"], Act("a person"))
    await app.execute("UPDATE redrive.api_key SET last_used_at = clock_timestamp()")
    assert await app.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'key.revoke'") == 1


async def test_a_reader_does_not_wait_for_ever_and_is_told_what_to_do(engine: Engine) -> None:
    """Some slow lists must not hold every connection of the API. The engine's own statements have no such limit."""
    async with engine.app.tenant(engine.org_id) as session:
        assert await session._connection.fetchval("SHOW statement_timeout") == "15s"
    async with engine.db.transaction() as session:
        assert await session._connection.fetchval("SHOW statement_timeout") == "0"

    async def asks_too_much() -> None:
        async with engine.app.tenant(engine.org_id) as session:
            await session._connection.execute("SET LOCAL statement_timeout = '10ms'")
            await session._connection.execute("SELECT pg_sleep(10)")

    with pytest.raises(asyncpg.QueryCanceledError) as cancelled:
        await asks_too_much()
    assert isinstance(cancelled.value, OUTAGES)
    told = reason_of(cancelled.value)
    assert "nothing was stored" in told
    assert "something holds a lock" in told
    assert "Ask for less" in told
