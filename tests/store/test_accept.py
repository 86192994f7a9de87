"""Accepting: every event is stored once, with its bytes, and fans out to exactly the endpoints that asked for it."""

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.core.trace import as_headers
from redrive.store.db import Database
from redrive.store.events import NewEvent, Receipt, get_event
from redrive.store.events import accept as accept_events
from redrive.store.orgs import new_id
from support.engine import Engine, ManualClock

STRANGE_BYTES = b'{"z":1,"a":1.0,"a":2,"big":12345678901234567890123,"nul":"\\u0000"}\x00\xff'


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("*", ["a", "invoice.paid", "%"], []),
        ("invoice.*", ["invoice.paid", "invoice.", "invoice.a.b"], ["invoice", "invoices.paid", "xinvoice.paid"]),
        ("invoice.paid", ["invoice.paid"], ["invoice.paid.late", "Invoice.paid", "invoice-paid"]),
        ("a_b", ["a_b"], ["axb", "ab"]),
        ("a%b", ["a%b"], ["ab", "axxb"]),
        ("a\\b", ["a\\b"], ["ab", "a\\\\b"]),
        ("a\\%*", ["a\\%c"], ["a%c", "a\\c"]),
    ],
)
async def test_only_the_star_of_a_pattern_stands_for_anything(
    engine: Engine, pattern: str, taken: list[str], left: list[str]
) -> None:
    await engine.endpoint(event_types=(pattern,))
    matched = {t: len(await engine.tasks_of(await engine.accept(t))) for t in taken + left}
    assert matched == {**dict.fromkeys(taken, 1), **dict.fromkeys(left, 0)}


async def test_an_event_becomes_one_task_per_endpoint_that_asked_for_its_type(engine: Engine) -> None:
    wanted = {
        await engine.endpoint("all"),
        await engine.endpoint("some", event_types=("order.*", "invoice.*")),  # two patterns, one task
        await engine.endpoint("twice", event_types=("*", "invoice.paid")),
        await engine.endpoint("off", disabled=True),
    }
    await engine.endpoint("orders", event_types=("order.*",))
    await engine.delete_endpoint(await engine.endpoint("gone"))
    event_id = await engine.accept("invoice.paid")
    tasks = await engine.tasks_of(event_id)
    assert {task["endpoint_id"] for task in tasks} == wanted
    assert len(tasks) == 4
    event = await engine.event(event_id)
    assert (event["status"], event["open_tasks"]) == ("queued", 4)


async def test_an_event_for_nobody_waits_in_the_inbox(engine: Engine) -> None:
    event_id = await engine.accept()
    assert (await engine.event(event_id))["status"] == "received"
    assert await engine.tasks_of(event_id) == []


async def test_an_event_for_one_endpoint_goes_there_alone_whatever_its_type(engine: Engine) -> None:
    await engine.endpoint("all")
    target = await engine.endpoint("orders", event_types=("order.*",))
    task = await engine.task_of(await engine.accept("invoice.paid", endpoint_id=target))
    assert task["endpoint_id"] == target


async def test_an_event_for_a_disabled_endpoint_is_accepted_and_held(engine: Engine) -> None:
    target = await engine.endpoint(disabled=True)
    event_id = await engine.accept(endpoint_id=target)
    assert await engine.claim() == []
    assert (await engine.task_of(event_id))["state"] == "held"


async def test_what_cannot_be_accepted_is_told_apart_and_leaves_nothing_behind(engine: Engine) -> None:
    gone = await engine.endpoint("gone")
    await engine.delete_endpoint(gone)
    other_org = await engine.org("other")
    foreign = await engine.endpoint("foreign", org=other_org)
    events = [
        engine.new_event(endpoint_id=new_id()),
        engine.new_event(endpoint_id=gone),
        engine.new_event(endpoint_id=foreign),
        engine.new_event(policy="no such policy"),
        engine.new_event(org_id=new_id()),
        engine.new_event(),
    ]
    receipts = await engine.accept_all(events)
    refused = ["no_endpoint"] * 3 + ["no_policy", "no_org"]
    assert receipts == [*(Receipt(verdict, None) for verdict in refused), Receipt("accepted", "received")]
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.event") == 1


async def test_the_bytes_are_stored_as_they_came(engine: Engine) -> None:
    event_id = await engine.accept(body=STRANGE_BYTES)
    async with engine.app.tenant(engine.org_id) as session:
        row = await get_event(session, event_id)
    assert row is not None
    assert row["body"] == STRANGE_BYTES


async def test_the_same_event_again_is_a_duplicate_and_another_under_its_id_a_conflict(engine: Engine) -> None:
    await engine.endpoint()
    first = engine.new_event("a", b"1")
    assert await engine.accept_all([first]) == [Receipt("accepted", "queued")]
    assert await engine.accept_all([first]) == [Receipt("duplicate", "queued")]
    for other in (first._replace(body=b"2"), first._replace(event_type="b")):
        assert (await engine.accept_all([other]))[0].verdict == "conflict"
    assert len(await engine.tasks_of(first.id)) == 1


async def test_the_same_event_under_other_terms_is_a_conflict(engine: Engine) -> None:
    terms: dict[str, Any] = {
        "endpoint_id": await engine.endpoint(),
        "policy": "manual",
        "external_system": "SAP",
        "ordering_key": "7",
    }
    terms |= {"content_type": "text/plain", "headers": '{"ce-id":"7"}'}
    others = {**terms, "endpoint_id": await engine.endpoint("other"), "policy": "immediate", "content_type": "text/xml"}
    full, bare = engine.new_event(**terms), engine.new_event()
    await engine.accept_all([full, bare])
    for name, value in terms.items():
        absent: dict[str, Any] = {name: None}
        variants = [full._replace(**absent), bare._replace(**{name: value})]
        if others[name] != value:
            variants.append(full._replace(**{name: others[name]}))
        for variant in variants:
            assert [receipt.verdict for receipt in await engine.accept_all([variant])] == ["conflict"], name
            again = full if variant.id == full.id else bare
            both = await engine.accept_all([again, variant, again])
            assert [receipt.verdict for receipt in both] == ["duplicate", "conflict", "duplicate"], name
    called = engine.new_event("invoice.paid", handler="invoice.paid")
    await engine.accept_all([called])
    assert (await engine.accept_all([called._replace(handler=None)]))[0].verdict == "conflict"


async def test_what_does_not_change_an_event_does_not_make_it_another(engine: Engine, clock: ManualClock) -> None:
    first = engine.new_event(correlation_id="a")
    await engine.accept_all([first])
    for same in (first._replace(correlation_id="b"), first._replace(occurred_at=clock.now())):
        assert (await engine.accept_all([same]))[0].verdict == "duplicate"


async def test_a_content_type_that_is_named_and_the_one_that_is_meant_anyway_are_the_same(engine: Engine) -> None:
    first = engine.new_event()
    await engine.accept_all([first])
    named = first._replace(content_type="application/json")
    assert [receipt.verdict for receipt in await engine.accept_all([named, first])] == ["duplicate", "duplicate"]


async def test_a_job_brings_the_event_s_content_type_and_headers(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    plain = await engine.claim_one()
    await engine.accept(content_type="text/plain", headers='{"ce-id":"7"}')
    own = await engine.claim_one()
    assert (plain.content_type, plain.headers) == ("application/json", None)
    assert (own.content_type, own.headers) == ("text/plain", '{"ce-id":"7"}')


async def test_a_caller_of_yesterday_can_still_hand_in(engine: Engine) -> None:
    """While a new version is rolled out, processes of the old one call the function with the arguments they know."""
    rows = await engine.sql.fetch(
        "SELECT verdict, status FROM redrive.accept(ARRAY[$1::uuid], ARRAY[$2::uuid], '{a}', ARRAY['{}'::bytea],"
        " NULL, NULL, NULL, NULL, NULL, NULL, NULL, $3)",
        engine.org_id,
        new_id(),
        engine.clock.now(),
    )
    assert [tuple(row) for row in rows] == [("accepted", "queued"), ("accepted", "received")]


async def test_a_batch_is_judged_event_by_event_in_its_order(engine: Engine) -> None:
    known = engine.new_event(body=b"known")
    await engine.accept_all([known])
    new = engine.new_event(body=b"new")
    batch = [
        known,
        new,
        new,
        new._replace(body=b"other"),
        known._replace(body=b"other"),
        engine.new_event(policy="none"),
    ]
    verdicts = [receipt.verdict for receipt in await engine.accept_all(batch)]
    assert verdicts == ["duplicate", "accepted", "duplicate", "conflict", "conflict", "no_policy"]
    assert await engine.sql.fetchval("SELECT body FROM redrive.event WHERE id = $1", new.id) == b"new"


async def test_one_id_in_two_orgs_is_two_events(engine: Engine) -> None:
    """Requests of several tenants share a batch: what one of them sends again must not disturb the other."""
    other = await engine.org("other")
    theirs = engine.new_event(org_id=other, body=b"theirs")
    await engine.accept_all([theirs])
    ours = engine.new_event(id=theirs.id, body=b"ours")
    assert [receipt.verdict for receipt in await engine.accept_all([ours, theirs])] == ["accepted", "duplicate"]
    stored = await engine.counts("SELECT org_id, count(*) FROM redrive.event GROUP BY 1")
    assert stored == {str(engine.org_id): 1, str(other): 1}


async def test_twenty_at_once_with_one_id_make_one_event(empty_url: str, engine: Engine) -> None:
    await engine.endpoint()
    event = engine.new_event()
    db = await Database.open(empty_url, role="redrive_engine", size=20)
    try:
        answers = await asyncio.gather(*(accept_events(db, [event], engine.clock) for _ in range(20)))
    finally:
        await db.close()
    assert sorted(receipt.verdict for (receipt,) in answers) == ["accepted"] + ["duplicate"] * 19
    assert len(await engine.tasks_of(event.id)) == 1


@pytest.mark.parametrize(
    ("event", "endpoint", "expected"),
    [("immediate", "triggers", "immediate"), (None, "triggers", "triggers"), (None, None, "integration")],
)
async def test_the_most_specific_policy_wins(
    engine: Engine, event: str | None, endpoint: str | None, expected: str
) -> None:
    await engine.endpoint(policy=endpoint)
    task = await engine.task_of(await engine.accept(policy=event))
    assert await _policy_name(engine, task["policy_id"]) == expected


async def test_a_task_keeps_the_policy_it_was_accepted_under(engine: Engine) -> None:
    await engine.endpoint(policy="ours")
    await engine.policy("ours", kind="list", delays_s=[1])
    before = (await engine.task_of(await engine.accept()))["policy_id"]
    await engine.policy("ours", kind="list", delays_s=[2])
    after = (await engine.task_of(await engine.accept()))["policy_id"]
    assert before != after
    read = await engine.tasks.policies([(engine.org_id, before), (engine.org_id, after)])
    assert (read[before].delays_s, read[after].delays_s) == ((1.0,), (2.0,))


async def test_an_endpoint_whose_policy_is_unknown_falls_back_to_the_default(engine: Engine) -> None:
    await engine.endpoint(policy="retired long ago")
    task = await engine.task_of(await engine.accept())
    assert await _policy_name(engine, task["policy_id"]) == "integration"


async def test_a_batch_of_a_thousand_for_several_orgs_is_stored_whole(engine: Engine, clock: ManualClock) -> None:
    orgs = [engine.org_id, await engine.org("second"), await engine.org("third")]
    await engine.endpoint("first", event_types=("even",))
    for org in orgs[1:]:
        await engine.endpoint("all", org=org)
    batch = [
        engine.new_event("even" if n % 2 == 0 else "odd", b"%d" % n, org_id=orgs[n % 3], correlation_id=f"c{n}")
        for n in range(1000)
    ]
    receipts = await engine.accept_all(batch)
    assert {receipt.verdict for receipt in receipts} == {"accepted"}
    assert [receipt.status for receipt in receipts[:4]] == ["queued", "queued", "queued", "received"]
    bodies = {row["id"]: row["body"] for row in await engine.sql.fetch("SELECT id, body FROM redrive.event")}
    assert bodies == {event.id: event.body for event in batch}
    tasks = await engine.counts("SELECT org_id, count(*) FROM redrive.task WHERE due_at = $1 GROUP BY 1", clock.now())
    assert tasks == {str(orgs[0]): 167, str(orgs[1]): 333, str(orgs[2]): 333}


async def test_a_handler_gets_one_task_whatever_endpoints_there_are(engine: Engine) -> None:
    await engine.endpoint()
    task = await engine.task_of(await engine.accept("edi.orders", handler="edi.orders", external_system="SAP"))
    assert (task["kind"], task["queue"], task["endpoint_id"]) == ("handler", "handler:edi.orders", None)
    assert task["external_system"] == "SAP"


async def test_the_event_s_external_system_beats_the_endpoint_s(engine: Engine) -> None:
    await engine.endpoint(external_system="SAP")
    assert (await engine.task_of(await engine.accept()))["external_system"] == "SAP"
    assert (await engine.task_of(await engine.accept(external_system="DATEV")))["external_system"] == "DATEV"


async def _policy_name(engine: Engine, policy_id: UUID) -> Any:
    return await engine.sql.fetchval("SELECT name FROM redrive.policy WHERE id = $1", policy_id)


async def test_an_event_that_is_removed_while_it_is_handed_in_again_is_accepted_again(engine: Engine) -> None:
    await engine.endpoint(event_types=("b",))
    known, other, bad = engine.new_event("a"), engine.new_event("b"), engine.new_event("a", policy="none")
    await engine.accept_all([known])
    # The last is looked at first: `known` is found, then somebody who is just handing in `other` is waited for.
    connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_engine"})
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            """INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
               VALUES ($1, $2, 'b', 0, now(), now(), '')""",
            engine.org_id,
            other.id,
        )
        waiting = asyncio.create_task(engine.accept_all([bad, other, known]))
        await engine.until("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        assert await engine.delete_event(known.id) is None
        await transaction.rollback()
    finally:
        await connection.close()
    assert await waiting == [("no_policy", None), ("accepted", "queued"), ("accepted", "received")]
    assert (await engine.event(known.id))["status"] == "received"
    assert [receipt.verdict for receipt in await engine.accept_all([known])] == ["duplicate"]


async def test_a_producer_who_repeats_a_request_from_another_span_means_the_same_event(engine: Engine) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    first = NewEvent(engine.org_id, new_id(), "a", b"1", headers=as_headers(parent))
    contexts = [parent.replace("00f067", "11f067"), None]
    repeated = [first._replace(headers=c and as_headers(c)) for c in contexts]
    other = repeated[0]._replace(body=b"2")

    async def verdicts(*events: NewEvent) -> list[str]:
        return [receipt.verdict for receipt in await accept_events(engine.db, events, engine.clock)]

    assert await verdicts(first) == ["accepted"]
    assert await verdicts(*repeated, other) == ["duplicate", "duplicate", "conflict"]
    assert await verdicts(other) == ["conflict"]
    kept = await engine.sql.fetchval("SELECT headers FROM redrive.event WHERE id = $1", first.id)
    assert kept == first.headers
