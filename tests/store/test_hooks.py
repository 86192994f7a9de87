"""Addresses of relays: found by their token and by nothing else, and by an index however many there are."""

import json
from datetime import UTC
from uuid import UUID

import asyncpg
import pytest

from redrive.core.inbound import Scheme
from redrive.store.clock import DatabaseClock
from redrive.store.db import query
from redrive.store.endpoints import Endpoints, get_endpoint
from redrive.store.hooks import Verification, find_hook, new_token, repetition
from redrive.store.seal import Sealer, SealError
from support.engine import PERSON, Engine

MANY_RELAYS = """
    INSERT INTO redrive.endpoint (org_id, id, name, kind, event_types, type_patterns, secret_sealed,
                                  hook_lookup, hook_hash, hook_sealed)
    SELECT $1, redrive.uuid7(), 'relay ' || n, 'relay', '{}', '{}', '', int4send(n), sha256(int4send(n)), ''
      FROM generate_series(1, 5000) AS n"""


async def token_of(engine: Engine, endpoint_id: UUID) -> str:
    async with engine.app.tenant(engine.org_id) as session:
        row = await get_endpoint(session, endpoint_id)
    assert row is not None
    token = Endpoints(engine.sealer).hook_token(row)
    assert token is not None
    return token


async def test_a_token_leads_to_its_endpoint_its_org_and_the_database_s_time(engine: Engine) -> None:
    verify = Verification(Scheme.GITHUB, "canary")
    endpoint_id = await engine.endpoint(kind="relay", url=None, verify=verify)
    hook = await find_hook(engine.db, await token_of(engine, endpoint_id), DatabaseClock())
    assert hook is not None
    assert (hook.endpoint_id, hook.caller.org_id, hook.now.tzinfo) == (endpoint_id, engine.org_id, UTC)
    assert hook.caller.actor == f"hook:{endpoint_id}"
    assert hook.verification(engine.sealer) == verify
    assert "canary" not in repr(hook)
    with pytest.raises(SealError):
        hook.verification(Sealer(bytes(32)))


async def test_neither_another_token_nor_the_beginning_of_a_hash_leads_anywhere(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(kind="relay", url=None)
    assert await find_hook(engine.db, new_token(), engine.clock) is None
    token = await token_of(engine, endpoint_id)
    await engine.sql.execute("UPDATE redrive.endpoint SET hook_hash = sha256('another') WHERE id = $1", endpoint_id)
    assert await find_hook(engine.db, token, engine.clock) is None


async def test_the_address_of_a_deleted_relay_leads_nowhere(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(kind="relay", url=None)
    token = await token_of(engine, endpoint_id)
    await engine.delete_endpoint(endpoint_id)
    assert await find_hook(engine.db, token, engine.clock) is None


async def test_only_a_relay_has_an_address_whoever_writes(engine: Engine) -> None:
    http = await engine.endpoint("http")
    relay = await engine.endpoint("relay", kind="relay", url=None)
    async with engine.app.tenant(engine.org_id) as session:
        assert await Endpoints(engine.sealer).rotate_hook(session, http, PERSON) is None
    for statement, endpoint_id in (
        ("UPDATE redrive.endpoint SET hook_lookup = 'x', hook_hash = 'x', hook_sealed = 'x' WHERE id = $1", http),
        ("UPDATE redrive.endpoint SET verify_scheme = 'github', verify_sealed = 'x' WHERE id = $1", http),
        ("UPDATE redrive.endpoint SET hook_lookup = NULL, hook_hash = NULL, hook_sealed = NULL WHERE id = $1", relay),
        ("UPDATE redrive.endpoint SET verify_scheme = 'github' WHERE id = $1", relay),
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await engine.sql.execute(statement, endpoint_id)


async def test_a_repetition_is_told_by_its_body(engine: Engine) -> None:
    relay = await engine.endpoint(kind="relay", url=None)
    event_id = await engine.accept("webhook", b"1", endpoint_id=relay, headers='{"x": "1"}')
    assert await repetition(engine.db, engine.org_id, event_id, b"1") == ("duplicate", "queued")
    assert await repetition(engine.db, engine.org_id, event_id, b"2") == ("conflict", None)
    assert await repetition(engine.db, engine.org_id, UUID(int=7), b"1") == ("conflict", None)


async def test_a_hook_is_found_by_its_index_among_thousands(engine: Engine) -> None:
    await engine.sql.execute(MANY_RELAYS, engine.org_id)
    async with engine.db.transaction() as session:
        (said,) = await session._connection.fetch("EXPLAIN (FORMAT json) " + query("find_hook"), b"lookup", None)
    assert "endpoint_hook" in json.dumps(json.loads(said[0]))
