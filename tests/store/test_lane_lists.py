"""Lanes in front of people: listed by their endpoint, told where they halt, resumed by hand."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from redrive.core.decide import Die, Reason
from redrive.core.lifecycle import TaskState
from redrive.core.operations import OperationState
from redrive.core.ports import NO_EXCHANGE, Settlement
from redrive.store import lanes, operations
from redrive.store.check import check
from redrive.store.db import query
from redrive.store.dead_letters import Order, redrive
from redrive.store.edits import Edit, replay
from redrive.store.lanes import Lane, LanesPage
from redrive.store.operation_steps import OperationSteps
from redrive.store.operations import DEAD_LETTERS, OperationSpec
from redrive.store.retry_queue import Refusal
from support.engine import PERSON, UNAVAILABLE, Engine, ManualClock


async def listed(engine: Engine, endpoint_id: UUID, limit: int = 50, after: Any = None) -> LanesPage:
    async with engine.app.tenant(engine.org_id) as session:
        return await lanes.list_lanes(session, endpoint_id, limit=limit, after=after)


async def resumed(engine: Engine, endpoint_id: UUID, lane: UUID) -> bool:
    async with engine.app.tenant(engine.org_id) as session:
        return await lanes.resume_lane(session, endpoint_id, lane, PERSON, engine.clock)


async def halted_lane(engine: Engine, endpoint_id: UUID, key: str | None = None) -> Lane:
    """A lane of an endpoint that halts, with one dead and one behind it."""
    first, _ = [await engine.accept(ordering_key=key) for _ in range(2)]
    job = next(job for job in await engine.claim() if job.event_id == first)
    await engine.kill(job, Reason.EXHAUSTED)
    page = await listed(engine, endpoint_id, limit=250)
    return next(lane for lane in page.lanes if lane.halted_by == job.id)


async def test_an_endpoint_whose_lanes_are_empty_has_none_to_show(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(ordered=True)
    assert await listed(engine, endpoint_id) == LanesPage([], None)
    await engine.accept()
    await engine.claim_one()  # alone at the head: nothing waits for it
    assert await listed(engine, endpoint_id) == LanesPage([], None)


async def test_a_lane_tells_its_head_and_how_many_wait(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    first = (await engine.accept_many(4, ordering_key="invoice 7"))[0]
    head = await engine.claim_one()
    await engine.fail(head, 30)
    (lane,) = (await listed(engine, endpoint_id)).lanes
    assert (lane.ordering_key, lane.halted_at, lane.gap, lane.waiting, lane.is_whole) == ("invoice 7", None, 0, 3, True)
    assert lane.head is not None
    assert (lane.head.id, lane.head.event_id, lane.head.state) == (head.id, first, TaskState.WAITING)
    assert (lane.head.attempts, lane.head.error_message) == (1, "HTTP 503 Service Unavailable")
    assert (lane.head.due_at - clock.now()).total_seconds() == 30


async def test_an_ordered_endpoint_is_one_lane_without_a_key(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(ordered=True)
    await engine.accept_many(3, ordering_key="unheeded")
    (lane,) = (await listed(engine, endpoint_id)).lanes
    assert (lane.lane, lane.ordering_key, lane.head, lane.waiting) == (
        endpoint_id,
        None,
        None,
        3,
    )  # no worker looked yet


async def test_what_waits_is_counted_to_a_bound(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_WAITING_COUNTED", 5)
    endpoint_id = await engine.endpoint(ordered=True)
    await engine.accept_many(5)
    (lane,) = (await listed(engine, endpoint_id)).lanes
    assert (lane.waiting, lane.is_whole) == (5, True)
    await engine.accept()
    (lane,) = (await listed(engine, endpoint_id)).lanes
    assert (lane.waiting, lane.is_whole) == (5, False)


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_halted_lanes_come_first_and_pages_lead_through_all_once(engine: Engine, limit: int) -> None:
    endpoint_id = await engine.endpoint(on_block="halt")
    halted = {(await halted_lane(engine, endpoint_id, key)).lane for key in "abc"}
    other = await engine.endpoint("other")
    for key in "defg":
        await engine.accept_many(2, ordering_key=key)
    seen: list[Lane] = []
    after: Any = None
    while True:
        page = await listed(engine, endpoint_id, limit, after)
        assert len(page.lanes) <= limit
        seen += page.lanes
        if page.next_key is None:
            break
        after = page.next_key
    assert {lane.lane for lane in seen[:3]} == halted
    assert sorted(lane.ordering_key or "" for lane in seen) == list("abcdefg")
    assert all(lane.halted_at is None for lane in seen[3:])
    assert {lane.ordering_key for lane in (await listed(engine, other)).lanes} == set("defg")  # its own lanes


async def test_a_resumed_lane_goes_on_with_the_next_and_leaves_the_letter_open(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(ordered=True, on_block="halt")
    lane = await halted_lane(engine, endpoint_id)
    assert (lane.lane, lane.gap, lane.waiting, lane.halted_event_type) == (endpoint_id, 1, 1, "invoice.paid")
    assert await engine.claim() == []
    assert await resumed(engine, endpoint_id, lane.lane)
    (job,) = await engine.claim()
    assert job.gap == 1
    assert lane.halted_by is not None
    letter = await engine.letter(lane.halted_by)
    assert letter is not None
    assert letter["state"] == "open"
    assert not await resumed(engine, endpoint_id, lane.lane)
    entries = await engine.sql.fetch("SELECT * FROM redrive.audit WHERE action = 'lane.resume'")
    assert [(entry["actor"], entry["subject_id"], entry["because"]) for entry in entries] == [
        (PERSON.actor, endpoint_id, PERSON.because)
    ]
    before = msgspec.json.decode(entries[0]["before"])
    assert (before["dead_letter_id"], before["lane"]) == (str(lane.halted_by), str(lane.lane))


async def test_a_lane_is_resumed_by_its_own_endpoint_and_org_only(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(ordered=True, on_block="halt")
    lane = await halted_lane(engine, endpoint_id)
    assert not await resumed(engine, await engine.endpoint("another", event_types=("x",)), lane.lane)
    async with engine.app.tenant(await engine.org("strangers")) as session:
        assert not await lanes.resume_lane(session, endpoint_id, lane.lane, PERSON, engine.clock)
        assert await lanes.get_lane(session, endpoint_id, lane.lane) is None
        assert await lanes.list_lanes(session, endpoint_id, limit=50) == LanesPage([], None)


async def test_a_halt_is_told_with_the_death_in_the_audit_and_as_a_notice(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint("billing", on_block="halt")
    lane = await halted_lane(engine, endpoint_id, "invoice 7")
    (entry,) = await engine.sql.fetch("SELECT * FROM redrive.audit WHERE action = 'lane.halt'")
    assert (entry["actor"], entry["subject_kind"], entry["subject_id"]) == ("engine", "endpoint", endpoint_id)
    after = msgspec.json.decode(entry["after"])
    assert after == {"lane": str(lane.lane), "ordering_key": "invoice 7", "dead_letter_id": str(lane.halted_by)}
    (notice,) = await engine.sql.fetch("SELECT * FROM redrive.notice WHERE kind = 'lane.halted'")
    assert (notice["severity"], notice["subject_id"], notice["at"]) == ("error", endpoint_id, clock.now())
    assert notice["text"] == (
        'The lane of key "invoice 7" of endpoint "billing" is halted: invoice.paid died, and nothing behind it is '
        "sent. Retry, resolve or ignore its dead letter, or resume the lane."
    )
    facts = msgspec.json.decode(notice["facts"])
    assert (facts["lane"], facts["task_id"]) == (str(lane.lane), str(lane.halted_by))
    assert (facts["endpoint"], facts["reason"]) == ("billing", "exhausted")


async def test_of_many_lanes_that_halt_at_once_some_are_told_and_the_rest_is_counted(engine: Engine) -> None:
    await engine.endpoint(on_block="halt")
    await engine.accept_all([engine.new_event(ordering_key=f"key {number}") for number in range(25)])
    died = Die(Reason.EXHAUSTED, UNAVAILABLE.category)
    jobs = await engine.claim()
    await engine.tasks.settle([Settlement(job, UNAVAILABLE, died, NO_EXCHANGE, 0.1) for job in jobs])
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.lane WHERE halted_at IS NOT NULL") == 25
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.notice WHERE kind = 'lane.halted'") == 20
    assert await engine.sql.fetchval("SELECT sum(n) FROM redrive.notice_more WHERE kind = 'lane.halted'") == 5
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'lane.halt'") == 25


async def test_a_lane_that_goes_on_is_no_notice(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    await engine.accept_many(2)
    await engine.kill(await engine.claim_one())
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.notice WHERE kind = 'lane.halted'") == 0
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.audit WHERE action = 'lane.halt'") == 0


async def test_a_place_in_a_lane_is_refused_for_what_is_in_none(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.kill(job)
    async with engine.app.tenant(engine.org_id) as session:
        for order in ("in_place", "tail"):
            how: dict[str, Any] = {"roll": 0.5, "order": order}
            assert await redrive(session, job.id, PERSON, engine.clock, **how) is Refusal.NO_LANE
            assert await replay(session, job.id, PERSON, engine.clock, **how) is Refusal.NO_LANE
        assert await redrive(session, job.id, PERSON, engine.clock, roll=0.5) is None


async def test_an_edited_replay_goes_where_the_person_says(engine: Engine) -> None:
    await engine.endpoint(ordered=True)
    events = [await engine.accept() for _ in range(3)]
    dead = await engine.claim_one()
    await engine.kill(dead)
    second = await engine.claim_one()
    async with engine.app.tenant(engine.org_id) as session:
        edit = Edit(body=b'{"n":2}')
        how: dict[str, Any] = {"edit": edit, "roll": 0.5, "at_once": True, "order": "in_place"}
        assert await replay(session, dead.id, PERSON, engine.clock, **how) is None
    await engine.succeed(second)
    (job,) = await engine.claim()
    assert (job.event_id, job.out_of_order) == (events[0], True)
    entry = await engine.sql.fetchrow("SELECT * FROM redrive.audit WHERE action = 'dead_letter.replay'")
    assert entry is not None
    assert msgspec.json.decode(entry["after"])["order"] == "in_place"


@pytest.mark.parametrize(("order", "expected"), [(None, [3, 1, 2]), ("tail", [3, 1, 2]), ("in_place", [1, 2, 3])])
@pytest.mark.parametrize("patch", [None, {"more": True}])
async def test_a_bulk_retry_puts_those_of_a_lane_where_the_person_says(
    live: Engine, order: Order | None, expected: list[int], patch: dict[str, object] | None
) -> None:
    engine = live
    await engine.endpoint("ordered", event_types=("invoice.*",), ordered=True)
    await engine.endpoint("free", event_types=("free",))
    await engine.accept("free")
    free = await engine.claim_one()
    await engine.kill(free)
    events = [await engine.accept() for _ in range(3)]
    dead = []
    for _ in range(2):
        dead.append(await engine.claim_one())
        await engine.kill(dead[-1])
    # The third is at the head now. Held back, it lets the others pass who are to come before it.
    await engine.sql.execute("UPDATE redrive.task SET behind = true WHERE event_id = $1", events[2])
    async with engine.app.tenant(engine.org_id) as session:
        ids = [free.id, *(job.id for job in dead)]
        spec = OperationSpec(DEAD_LETTERS, "retry", ids, at_once=True, order=order, patch=patch)
        row = await operations.create(session, spec, PERSON, engine.clock)
    assert row["lane_order"] == order
    steps = OperationSteps(engine.db, engine.clock)
    await steps.step_of(engine.org_id, row["id"])
    got = []
    while jobs := await engine.claim():
        for job in jobs:
            if job.id != free.id:
                got.append(events.index(job.event_id) + 1)
            await engine.succeed(job)
    assert got == expected
    await steps.step_of(engine.org_id, row["id"])
    async with engine.app.tenant(engine.org_id) as session:
        ended = await operations.get_operation(session, row["id"])
    assert ended is not None
    assert (ended["state"], ended["succeeded"], ended["failed"]) == (OperationState.COMPLETED, 3, 0)
    assert (await check(engine.url)).clean


@pytest.mark.parametrize("patch", [None, {"more": True}])
async def test_a_bulk_retry_in_steps_puts_all_of_a_halted_lane_in_their_places(
    engine: Engine, clock: ManualClock, patch: dict[str, object] | None
) -> None:
    """The first one lifts the halt. The others go in their places all the same."""
    endpoint_id = await engine.endpoint(ordered=True, on_block="halt")
    events = [await engine.accept() for _ in range(4)]
    dead = await engine.claim_one()
    await engine.kill(dead)
    for event_id in events[1:3]:
        task_id = (await engine.task_of(event_id))["id"]
        given = (clock.now(), engine.org_id, [task_id], ["unknown"], ["a cause"], ["skipped"])
        await engine.sql.fetch(query("skip_many"), *given)
    async with engine.app.tenant(engine.org_id) as session:
        chosen = {"endpoint_id": endpoint_id}
        spec = OperationSpec(DEAD_LETTERS, "retry", filter=chosen, rate_per_s=1.0, at_once=True, patch=patch)
        row = await operations.create(session, spec, PERSON, clock)
    steps = OperationSteps(engine.db, clock, dice=lambda: 0.5)
    for _ in range(5):
        await steps.step_of(engine.org_id, row["id"])
        await engine.tasks.wake_lanes()
        clock.advance(1)
    got = []
    while jobs := await engine.claim():
        (job,) = jobs
        got.append((events.index(job.event_id) + 1, job.gap, job.out_of_order))
        await engine.succeed(job)
    assert got == [(1, 0, False), (2, 0, False), (3, 0, False), (4, 0, False)]


async def test_a_bulk_retry_by_ids_decides_where_they_go_when_it_is_made(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint(ordered=True, on_block="halt")
    lane = await halted_lane(engine, endpoint_id)
    assert lane.halted_by is not None
    await engine.accept()
    async with engine.app.tenant(engine.org_id) as session:
        spec = OperationSpec(DEAD_LETTERS, "retry", [lane.halted_by], at_once=True)
        row = await operations.create(session, spec, PERSON, clock)
    place = (await engine.task(lane.halted_by))["place"]
    assert await resumed(engine, endpoint_id, lane.lane)
    await OperationSteps(engine.db, clock).step_of(engine.org_id, row["id"])
    assert (await engine.task(lane.halted_by))["place"] == place
