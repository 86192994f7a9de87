"""Secrets at rest: sealed with the installation's key, each for its own row, and never shown."""

import os
import stat
from pathlib import Path
from uuid import UUID

import pytest

from redrive.core.ports import EndpointTerms
from redrive.destinations.client import Client
from redrive.destinations.http import HttpDestination
from redrive.store.db import Record
from redrive.store.endpoints import Endpoints, EndpointSpec, EndpointTermsBook, get_endpoint
from redrive.store.orgs import new_id, prove_seal
from redrive.store.seal import Sealer, SealError
from support.engine import LOOPBACK, NOWHERE, PERSON, Engine
from support.receiver import open_receiver

CANARY = "canary-7f3a-do-not-show"


def test_what_is_sealed_opens_again_and_differs_each_time() -> None:
    sealer = Sealer(os.urandom(32))
    sealed = [sealer.seal(b"secret", "row 1") for _ in range(100)]
    assert len(set(sealed)) == 100
    assert {sealer.unseal(value, "row 1") for value in sealed} == {b"secret"}
    assert not any(b"secret" in value for value in sealed)


def test_what_was_moved_changed_or_sealed_by_another_key_does_not_open() -> None:
    sealer = Sealer.from_passphrase("one")
    sealed = sealer.seal(b"secret", "row 1")
    flipped = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for key, value, owner in (
        (sealer, sealed, "row 2"),
        (sealer, flipped, "row 1"),
        (sealer, sealed[:20], "row 1"),
        (sealer, sealed[:4], "row 1"),
        (sealer, b"", "row 1"),
        (Sealer.from_passphrase("two"), sealed, "row 1"),
    ):
        with pytest.raises(SealError, match="REDRIVE_SECRET_KEY"):
            key.unseal(value, owner)


def test_a_key_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(b"short")


def test_a_key_file_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    sealed = Sealer.from_file(path).seal(b"secret", "row")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Sealer.from_file(path).unseal(sealed, "row") == b"secret"


async def test_a_process_with_another_key_is_refused_at_the_start(engine: Engine) -> None:
    await engine.db.execute("prove_seal", engine.sealer.proof())
    await prove_seal(engine.db, engine.sealer)
    with pytest.raises(SealError, match=r"sealed with another key\. Set REDRIVE_SECRET_KEY to the one it was first"):
        await prove_seal(engine.db, Sealer.from_passphrase("another"))
    await prove_seal(engine.db, engine.sealer)


async def test_an_endpoint_s_secret_and_headers_lie_sealed_and_open_for_its_own_row_only(engine: Engine) -> None:
    headers = (("authorization", f"Bearer {CANARY}"),)
    first = await _endpoint(engine, "a", headers)
    second = await _endpoint(engine, "b", headers)
    terms = await _terms(engine, first)
    assert terms.headers == headers
    assert len(terms.secrets[0]) == 32
    dump = await engine.sql.fetchval(
        "SELECT string_agg(t, '') FROM (SELECT e::text AS t FROM redrive.endpoint e UNION ALL"
        " SELECT a::text FROM redrive.audit a) rows"
    )
    assert CANARY not in dump
    assert CANARY.encode().hex() not in dump
    await engine.sql.execute(
        "UPDATE redrive.endpoint e SET secret_sealed = o.secret_sealed FROM redrive.endpoint o"
        " WHERE e.id = $1 AND o.id = $2",
        first,
        second,
    )
    moved = await _terms(engine, first)
    assert (moved.secrets, moved.headers) == ((), ())
    assert moved.problem is not None


@pytest.mark.parametrize("column", ["secret_sealed", "headers_sealed"])
@pytest.mark.parametrize("stored", [b"", b"too short", bytes(60)])
async def test_an_endpoint_that_does_not_open_kills_its_own_deliveries_and_no_others(
    engine: Engine, column: str, stored: bytes
) -> None:
    async with open_receiver() as receiver:
        broken_id = await engine.endpoint("broken", receiver.url_of("/broken"), headers=(("x-key", CANARY),))
        await engine.endpoint("sound", receiver.url_of("/sound"))
        await engine.sql.execute(f"UPDATE redrive.endpoint SET {column} = $2 WHERE id = $1", broken_id, stored)
        event_id = await engine.accept()
        await engine.run_until_idle()
        assert [request.path for request in receiver.requests] == ["/sound"]
    letter = await _letter_for(engine, event_id, broken_id)
    assert (letter["reason"], letter["category"]) == ("permanent", "configuration")
    assert "REDRIVE_SECRET_KEY" in letter["error_message"]
    assert CANARY not in str(dict(letter))


async def test_headers_that_cannot_be_sent_kill_their_own_deliveries_and_no_others(engine: Engine) -> None:
    async with open_receiver() as receiver:
        broken_id = await engine.endpoint("broken", receiver.url_of("/broken"), headers=(("x-key", f"{CANARY}\n"),))
        await engine.endpoint("sound", receiver.url_of("/sound"))
        event_id = await engine.accept()
        await engine.run_until_idle()
        assert [request.path for request in receiver.requests] == ["/sound"]
    letter = await _letter_for(engine, event_id, broken_id)
    assert (letter["reason"], letter["category"]) == ("permanent", "configuration")
    assert "'x-key'" in letter["error_message"]
    assert CANARY not in str(dict(letter))


async def test_changing_an_endpoint_keeps_its_secret_and_headers(engine: Engine) -> None:
    endpoint_id = await _endpoint(engine, "a", (("x-key", CANARY),))
    before = await _terms(engine, endpoint_id)
    await engine.change_endpoint(endpoint_id, url="http://127.0.0.1:9/other", timeout_s=3.0)
    after = await _terms(engine, endpoint_id)
    assert (after.secrets, after.headers) == (before.secrets, before.headers)
    assert after.url == "http://127.0.0.1:9/other"


async def test_a_new_secret_is_shown_once_and_is_the_one_that_signs(engine: Engine) -> None:
    async with engine.app.tenant(engine.org_id) as session:
        row, secret = await Endpoints(engine.sealer).create(session, EndpointSpec("a", NOWHERE), PERSON)
        again = await get_endpoint(session, row["id"])
    assert secret.startswith("whsec_")
    assert again is not None
    assert secret not in str(dict(again))


async def test_secrets_are_in_no_repr(engine: Engine) -> None:
    endpoint_id = await _endpoint(engine, "a", (("x-key", CANARY),))
    terms = await _terms(engine, endpoint_id)
    destination = HttpDestination(Client(rules=LOOPBACK), EndpointTermsBook(engine.db, engine.sealer), version="test")
    try:
        shown = [
            repr(terms),
            repr(destination._plan(terms)),
            repr(EndpointSpec("a", NOWHERE, headers=(("x-key", CANARY),))),
            repr(Sealer.from_passphrase(CANARY)),
            repr(engine.db),
        ]
    finally:
        await destination.aclose()
    for text in shown:
        assert CANARY not in text
        assert repr(terms.secrets[0]) not in text


async def _endpoint(engine: Engine, name: str, headers: tuple[tuple[str, str], ...]) -> UUID:
    return await engine.endpoint(f"{name}-{new_id()}", headers=headers)


async def _letter_for(engine: Engine, event_id: UUID, endpoint_id: UUID) -> Record:
    """The dead letter of an event's one delivery to this endpoint."""
    (task_id,) = [task["id"] for task in await engine.tasks_of(event_id) if task["endpoint_id"] == endpoint_id]
    letter = await engine.letter(task_id)
    assert letter is not None
    return letter


async def _terms(engine: Engine, endpoint_id: UUID) -> EndpointTerms:
    (terms,) = await EndpointTermsBook(engine.db, engine.sealer).terms([(engine.org_id, endpoint_id)])
    return terms
