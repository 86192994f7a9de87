"""Edit and replay: the next tries send what a person wrote, the event stays as it was, and everything is recorded."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.core.ports import Job
from redrive.store import edits, policies
from redrive.store.edits import MAX_EDITS, Edit, EditError, apply_patch, body_of_generation, list_edits, replay_patched
from redrive.store.policies import OVERRIDE_NAME
from redrive.store.retry_queue import Refusal
from support.engine import PERSON, Engine, ManualClock, claim_arguments

BODY = b'{"invoice": 7,  "amount": 12.50}'
EDITED = b'{"invoice":7,   "amount": 12.5000000000000000001}'


async def a_dead_task(engine: Engine, body: bytes = BODY, **fields: Any) -> UUID:
    await engine.accept(body=body, **fields)
    job = await engine.claim_one()
    await engine.kill(job)
    return job.id


async def replay(engine: Engine, task_id: UUID, **options: Any) -> Refusal | None:
    arguments: dict[str, Any] = {"roll": 0.5, "at_once": True, **options}
    async with engine.app.tenant(engine.org_id) as session:
        return await edits.replay(session, task_id, PERSON, engine.clock, **arguments)


async def next_job(engine: Engine, task_id: UUID, **options: Any) -> Job:
    """What a worker gets of the replayed task."""
    assert await replay(engine, task_id, **options) is None
    return await engine.claim_one()


async def edits_of(engine: Engine, task_id: UUID) -> list[dict[str, Any]]:
    async with engine.app.tenant(engine.org_id) as session:
        return [dict(row) for row in await list_edits(session, task_id)]


async def test_the_next_try_sends_the_edited_bytes_and_the_event_keeps_its_own(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    job = await next_job(engine, task_id, edit=Edit(body=EDITED, headers={"x-tenant": "a"}))
    assert (job.body, job.edited_headers, job.generation) == (EDITED, '{"x-tenant":"a"}', 1)
    assert (job.headers, job.content_type) == (None, "application/json")
    event = await engine.sql.fetchrow("SELECT * FROM redrive.event WHERE id = $1", job.event_id)
    assert event is not None
    assert event["body"] == BODY


async def test_without_an_edit_a_claim_hands_out_the_event_as_it_is(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    job = await next_job(engine, task_id)
    assert (job.body, job.edited_headers) == (BODY, None)
    assert await edits_of(engine, task_id) == []


@pytest.mark.parametrize(
    ("content_type", "sent_as"),
    [("text/xml", "application/json"), ("application/vnd.erp+json", "application/vnd.erp+json")],
)
async def test_an_edited_payload_is_sent_as_json(engine: Engine, content_type: str, sent_as: str) -> None:
    """And the event's own headers go with it, as before."""
    await engine.endpoint()
    task_id = await a_dead_task(engine, b"<a/>", content_type=content_type, headers='{"ce-id": "1"}')
    plain = await next_job(engine, task_id)
    assert (plain.content_type, plain.headers) == (content_type, '{"ce-id": "1"}')
    await engine.kill(plain)
    job = await next_job(engine, task_id, edit=Edit(body=b"{}"))
    assert (job.content_type, job.headers, job.edited_headers) == (sent_as, '{"ce-id": "1"}', None)


async def test_an_edit_stays_in_force_until_it_is_discarded(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.kill(await next_job(engine, task_id, edit=Edit(body=EDITED)))
    await engine.redrive(task_id, at_once=True)
    plain = await engine.claim_one()
    assert plain.body == EDITED
    await engine.kill(plain)
    back = await next_job(engine, task_id, edit=Edit(discard=True))
    assert back.body == BODY
    assert (await engine.task(task_id))["edit"] is None
    assert [row["number"] for row in await edits_of(engine, task_id)] == [1, 2]


async def test_what_an_edit_leaves_out_stays_as_it_is_in_force(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.kill(await next_job(engine, task_id, edit=Edit(body=EDITED, headers={"x-a": "1"})))
    job = await next_job(engine, task_id, edit=Edit(headers={"x-b": "2"}))
    assert (job.body, job.edited_headers) == (EDITED, '{"x-b":"2"}')
    await engine.kill(job)
    job = await next_job(engine, task_id, edit=Edit(body=b"[]"))
    assert (job.body, job.edited_headers) == (b"[]", '{"x-b":"2"}')
    await engine.kill(job)
    job = await next_job(engine, task_id, edit=Edit(headers={"x-c": "3"}, discard=True))
    assert (job.body, job.edited_headers) == (BODY, '{"x-c":"3"}')


async def test_every_edit_is_kept_with_its_author_and_what_it_changed_from_the_original(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine, b'{"amount": 1, "token": "hunter2"}')
    at = clock.advance(60)
    await engine.kill(await next_job(engine, task_id, edit=Edit(body=b'{"amount": 2, "token": "hunter3"}')))
    (edit,) = await edits_of(engine, task_id)
    assert (edit["number"], edit["generation"], edit["at"]) == (1, 1, at)
    assert (edit["by"], edit["because"]) == (PERSON.actor, PERSON.because)
    assert '"path": "/amount"' in edit["diff"]
    assert '"path": "/token"' in edit["diff"]
    everything = await engine.sql.fetch(
        "SELECT diff::text FROM redrive.edit UNION ALL SELECT audit::text FROM redrive.audit"
    )
    assert "hunter" not in str(everything)


async def test_the_body_that_a_generation_sent_can_be_told_later(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await engine.kill(await next_job(engine, task_id, edit=Edit(body=EDITED)))
    await engine.kill(await next_job(engine, task_id))
    await engine.kill(await next_job(engine, task_id, edit=Edit(discard=True)))
    async with engine.app.tenant(engine.org_id) as session:
        sent = [await body_of_generation(session, task_id, generation) for generation in range(4)]
    assert sent == [None, EDITED, EDITED, None]


async def test_a_replay_under_a_policy_of_its_own_follows_it_and_no_list_shows_it(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    own = {"kind": "list", "delays_s": [77], "max_retries": 1, "timeout_s": 3}
    replayed_at = clock.advance(1)
    assert await replay(engine, task_id, policy=own, at_once=False) is None
    task = await engine.task(task_id)
    assert (task["due_at"] - replayed_at).total_seconds() == 77
    clock.advance(77)
    job = await engine.claim_one()
    assert (job.timeout_s, job.policy_id) == (3, task["policy_id"])
    laid = (await engine.tasks.policies([(engine.org_id, job.policy_id)]))[job.policy_id]
    assert (laid.kind, laid.delays_s, laid.max_retries, laid.timeout_s) == ("list", (77.0,), 1, 3.0)
    async with engine.app.tenant(engine.org_id) as session:
        assert OVERRIDE_NAME not in {row["name"] for row in await policies.list_policies(session)}
        assert await policies.get_policy(session, OVERRIDE_NAME) is None


async def test_a_replay_can_name_a_policy_and_an_unknown_name_changes_nothing(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    with pytest.raises(EditError, match="no policy named 'nonsense'"):
        await replay(engine, task_id, policy="nonsense")
    assert (await engine.task(task_id))["state"] == "dead"
    assert await replay(engine, task_id, policy="relay") is None
    async with engine.app.tenant(engine.org_id) as session:
        relay = await policies.get_policy(session, "relay")
    assert relay is not None
    assert (await engine.task(task_id))["policy_id"] == relay["id"]


async def test_what_cannot_be_redriven_cannot_be_replayed(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    assert await replay(engine, task_id, edit=Edit(body=EDITED)) is None
    assert await replay(engine, task_id, edit=Edit(body=b"1")) is Refusal.REPLAYING
    await engine.kill(await engine.claim_one())
    await engine.mark_letter(task_id, "deleted")
    assert await replay(engine, task_id) is Refusal.UNKNOWN
    engine.org_id = await engine.org("other")
    assert await replay(engine, task_id) is Refusal.UNKNOWN


async def test_edits_of_one_letter_and_their_size_are_bounded(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    with pytest.raises(EditError, match="1048577 bytes"):
        await replay(engine, task_id, edit=Edit(body=b"x" * 1_048_577))
    for number in range(MAX_EDITS):
        await engine.kill(await next_job(engine, task_id, edit=Edit(body=b"%d" % number)))
    with pytest.raises(EditError, match=f"edited {MAX_EDITS} times"):
        await replay(engine, task_id, edit=Edit(body=b"1"))
    assert (await next_job(engine, task_id)).body == b"%d" % (MAX_EDITS - 1)


async def test_a_patch_changes_what_it_names_over_the_payload_in_force(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine, b'{"a": {"b": 1, "c": 2}, "n": 1.10}')
    for patch, expected in (
        ({"a": {"b": None}}, b'{"a":{"c":2},"n":1.10}'),
        ({"a": {"d": [True]}}, b'{"a":{"c":2,"d":[true]},"n":1.10}'),
    ):
        async with engine.app.tenant(engine.org_id) as session:
            assert await replay_patched(session, task_id, patch, PERSON, engine.clock, 0.5, True) is None
        job = await engine.claim_one()
        assert job.body == expected
        await engine.kill(job)


def test_a_patch_keeps_every_digit_of_what_it_does_not_touch() -> None:
    body = b'{"a": 0.30000000000000000004, "b": 123456789012345678901234567890, "c": 1e5, "d": "\\u00e9"}'
    patched = apply_patch(body, {"e": 1.5})
    assert patched == '{"a":0.30000000000000000004,"b":123456789012345678901234567890,"c":1e5,"d":"é","e":1.5}'.encode()


@pytest.mark.parametrize("body", [b"\xff", b"", b"{", b"[" * 5_000 + b"]" * 5_000])
def test_what_is_not_json_cannot_be_patched(body: bytes) -> None:
    with pytest.raises(EditError, match="not JSON"):
        apply_patch(body, {})


async def test_a_body_that_is_not_json_can_be_replaced(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine, b"\xff\x00")
    assert (await next_job(engine, task_id, edit=Edit(body=b"{}"))).body == b"{}"
    (edit,) = await edits_of(engine, task_id)
    assert "2 bytes that are not JSON" in edit["diff"]


async def test_a_replay_is_one_entry_in_the_audit(engine: Engine) -> None:
    await engine.endpoint()
    task_id = await a_dead_task(engine)
    await replay(engine, task_id, edit=Edit(body=EDITED), policy="relay")
    rows = await engine.sql.fetch(
        "SELECT actor, because, before ->> 'state' AS state, after FROM redrive.audit"
        " WHERE action = 'dead_letter.replay'"
    )
    assert [tuple(row) for row in rows] == [(PERSON.actor, PERSON.because, "open", '{"edit": 1, "policy": "relay"}')]


async def test_a_claim_of_an_edited_task_writes_no_index(engine: Engine) -> None:
    """Heap-only: no index entry is added for the new version of the row."""
    endpoint_id = await engine.endpoint()
    task_id = await a_dead_task(engine)
    await replay(engine, task_id, edit=Edit(body=EDITED))
    # What a person asked for now has a small index of its own, which its claim leaves.
    await engine.sql.execute("UPDATE redrive.task SET expedited = false")
    counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'redrive.task'::regclass"
    async with engine.db.transaction() as session:
        before = await session._connection.fetchrow(counted)
        rows = await session.fetch("claim", *claim_arguments(engine, engine.retries(endpoint_id)))
        after = await session._connection.fetchrow(counted)
    assert [row["id"] for row in rows] == [task_id]
    assert after["n_tup_upd"] - before["n_tup_upd"] == after["n_tup_hot_upd"] - before["n_tup_hot_upd"] == 1


@pytest.mark.parametrize("statement", ["UPDATE redrive.edit SET body = NULL", "DELETE FROM redrive.edit"])
async def test_edits_are_never_changed(engine: Engine, statement: str) -> None:
    for db in (engine.db, engine.app):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
            async with db.tenant(engine.org_id) as session:
                await session._connection.execute(statement)


async def test_the_same_terms_are_stored_once_however_many_replays_ask_for_them(engine: Engine) -> None:
    await engine.endpoint()
    terms = [{"kind": "immediate", "delays_s": [delay_s], "max_retries": 1} for delay_s in (1, 2)]
    for policy in (*terms, *terms):
        job = await next_job(engine, await a_dead_task(engine), policy=policy)
        laid = (await engine.tasks.policies([(job.org_id, job.policy_id)]))[job.policy_id]
        assert list(laid.delays_s) == policy["delays_s"]
        await engine.kill(job)
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.policy WHERE name = 'override'") == 2
