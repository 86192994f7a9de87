"""Shared commits: together when they arrive together, apart when one is bad, refused when there are too many."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from redrive.api import committer as committer_module
from redrive.api.committer import MAX_WAITING_BYTES, MAX_WAITING_EVENTS, UNSTORABLE, Committer
from redrive.api.problems import Problem
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id

from .conftest import Api


def _event(api: Api, *, event_type: str = "a", body: bytes = b"1", event_id: UUID | None = None) -> NewEvent:
    return NewEvent(api.org_id, event_id or new_id(), event_type, body)


def _committer(api: Api) -> Committer:
    return Committer(api.context.engine_db, api.context.clock)


@asynccontextmanager
async def _locked(api: Api) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """Nobody can insert events meanwhile."""
    connection = await asyncpg.connect(api.url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE redrive.event IN ACCESS EXCLUSIVE MODE")
            yield connection
    finally:
        await connection.close()


async def _transactions(api: Api) -> int:
    async with api.context.app_db.tenant(api.org_id) as session:
        rows = await session._connection.fetch("SELECT DISTINCT xmin::text FROM redrive.event")
    return len(rows)


async def test_events_that_arrive_together_share_a_commit(api: Api) -> None:
    committer = _committer(api)
    waiting = [committer.commit([_event(api)]) for _ in range(500)]
    receipts = [receipt for one in waiting for receipt in await one]
    assert {receipt.verdict for receipt in receipts} == {"accepted"}
    assert await _transactions(api) == 1
    await committer.close()


async def test_what_arrives_during_a_commit_goes_into_the_next(api: Api) -> None:
    committer = _committer(api)
    async with _locked(api):
        first = committer.commit([_event(api)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = [committer.commit([_event(api)]) for _ in range(50)]
        done, _ = await asyncio.wait([first, *rest], timeout=0.05)
        assert not done  # an answer follows its commit
    await asyncio.gather(first, *rest)
    assert await _transactions(api) == 2
    await committer.close()


async def test_a_batch_has_a_commit_of_its_own(api: Api) -> None:
    committer = _committer(api)
    single = committer.commit([_event(api)])
    batch = committer.commit([_event(api) for _ in range(10)], alone=True)
    other = committer.commit([_event(api)])
    await asyncio.gather(single, batch, other)
    assert await _transactions(api) == 3
    await committer.close()


async def test_a_commit_stays_within_its_limits(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "MAX_COMMIT_EVENTS", 10)
    committer = _committer(api)
    await asyncio.gather(*(committer.commit([_event(api)]) for _ in range(25)))
    assert await _transactions(api) == 3
    monkeypatch.setattr(committer_module, "MAX_COMMIT_BYTES", 4_000)
    await asyncio.gather(*(committer.commit([_event(api, body=b'"%b"' % (b"x" * 1_000))]) for _ in range(4)))
    assert await _transactions(api) == 5
    await committer.close()


async def test_receipts_go_to_those_who_wait_for_them(api: Api) -> None:
    committer = _committer(api)
    known = [_event(api) for _ in range(5)]
    await committer.commit(known)
    fresh = [_event(api) for _ in range(5)]
    mixed = [event for pair in zip(fresh, known, strict=True) for event in pair]
    waiting = [committer.commit([event]) for event in mixed]
    verdicts = [(await one)[0].verdict for one in waiting]
    assert verdicts == ["accepted", "duplicate"] * 5
    await committer.close()


async def test_the_same_new_id_twice_in_one_commit_is_one_event(api: Api) -> None:
    committer = _committer(api)
    event = _event(api)
    first, second, third = (committer.commit([each]) for each in (event, event, event._replace(body=b"2")))
    verdicts = [(await one)[0].verdict for one in (first, second, third)]
    assert verdicts == ["accepted", "duplicate", "conflict"]
    await committer.close()


async def test_a_row_that_the_database_refuses_fails_alone(api: Api) -> None:
    committer = _committer(api)
    waiting = [committer.commit([_event(api)]) for _ in range(3)]
    poisoned = committer.commit([_event(api, event_type="a\x00b")])
    surrogate = committer.commit([_event(api, event_type="\ud800")])
    assert [(await one)[0].verdict for one in waiting] == ["accepted"] * 3
    assert await poisoned == await surrogate == [UNSTORABLE]
    await committer.close()


async def test_a_lost_connection_is_tried_again_and_nothing_is_stored_twice(api: Api) -> None:
    committer = _committer(api)
    event = _event(api)
    async with _locked(api) as connection:
        waiting = committer.commit([event])
        async with asyncio.timeout(5):
            while not await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock' AND backend_type = 'client backend'"
            ):
                await asyncio.sleep(0.02)
    (receipt,) = await asyncio.wait_for(waiting, 10)
    assert receipt.verdict == "accepted"
    assert (await committer.commit([event]))[0].verdict == "duplicate"
    await committer.close()


async def test_a_commit_that_is_stuck_does_not_hold_up_the_next(api: Api) -> None:
    committer = _committer(api)
    stuck, other = _event(api), _event(api)
    async with api.context.engine_db.transaction() as session:  # somebody else is about to commit the same id
        await session.fetch("accept", *([column] for column in stuck), None, None)
        first = committer.commit([stuck])
        await asyncio.sleep(0.01)
        second = committer.commit([other])
        assert (await asyncio.wait_for(second, 5))[0].verdict == "accepted"
        assert not first.done()
    assert (await first)[0].verdict == "duplicate"
    await committer.close()


async def test_a_full_disk_is_told_and_recovers(own_api: Api) -> None:
    await own_api.sql(
        "CREATE FUNCTION redrive.no_space() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$"
    )
    await own_api.sql(
        "CREATE TRIGGER no_space BEFORE INSERT ON redrive.event FOR EACH STATEMENT EXECUTE FUNCTION redrive.no_space()"
    )
    given = {"event_type": "a", "payload": 1}
    refused = await own_api.owner.post("/v1/events", given)
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert "disk is full" in refused.json["detail"]
    assert (await own_api.owner.post("/v1/events/batch", [given])).status == 503
    await own_api.sql("DROP TRIGGER no_space ON redrive.event")
    assert (await own_api.owner.post("/v1/events", given)).status == 202


async def test_of_a_database_that_does_not_answer_it_is_told_what_is_not_known(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "RETRY_FOR_S", 0.2)
    monkeypatch.setattr(committer_module, "COMMIT_TIMEOUT_S", 0.2)
    async with _locked(api):
        refused = await api.owner.post("/v1/events", {"event_type": "a", "payload": 1})
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    for told in ("did not answer in time", "something holds a lock", "not known", "under the same Idempotency-Key"):
        assert told in refused.json["detail"]
    assert (await api.owner.get("/v1/events")).json["data"] == []


async def test_more_than_may_wait_is_refused_and_the_rest_is_stored(api: Api) -> None:
    committer = _committer(api)
    async with _locked(api):
        waiting = [committer.commit([_event(api)]) for _ in range(MAX_WAITING_EVENTS)]
        assert committer.is_full
        with pytest.raises(Problem) as refused:
            committer.commit([_event(api)])
        assert (refused.value.status, dict(refused.value.headers)) == (503, {"retry-after": "1"})
    receipts = [(await one)[0] for one in waiting]
    assert {receipt.verdict for receipt in receipts} == {"accepted"}
    assert (await committer.commit([_event(api)]))[0].verdict == "accepted"
    await committer.close()


async def test_bytes_that_wait_are_bounded_too(api: Api) -> None:
    committer = _committer(api)
    body = b'"%b"' % (b"x" * 1_000_000)
    async with _locked(api):
        waiting = [committer.commit([_event(api, body=body)]) for _ in range(MAX_WAITING_BYTES // len(body) + 1)]
        assert committer.is_full
        for one in waiting[1:]:
            one.cancel()  # requests that went away do not stop the others
    assert (await waiting[0])[0].verdict == "accepted"
    await committer.close()


async def test_closing_finishes_what_waits_and_takes_nothing_more(api: Api) -> None:
    committer = _committer(api)
    waiting = [committer.commit([_event(api)]) for _ in range(10)]
    await committer.close()
    assert {(await one)[0].verdict for one in waiting} == {"accepted"}
    with pytest.raises(Problem):
        committer.commit([_event(api)])


async def test_closing_does_not_wait_for_ever(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "DRAIN_S", 0.2)
    committer = _committer(api)
    async with _locked(api):
        waiting = [committer.commit([_event(api)], alone=True) for _ in range(4)]
        await asyncio.wait_for(committer.close(), 5)
    for one in waiting:
        with pytest.raises(Problem) as refused:
            await one
        assert refused.value.status == 503


async def test_two_commits_with_the_same_ids_in_other_orders_do_not_block_each_other(api: Api) -> None:
    first, second = _committer(api), _committer(api)
    ids = [uuid4() for _ in range(300)]
    forwards = first.commit([_event(api, event_id=each) for each in ids], alone=True)
    backwards = second.commit([_event(api, event_id=each) for each in reversed(ids)], alone=True)
    verdicts = [receipt.verdict for receipts in await asyncio.gather(forwards, backwards) for receipt in receipts]
    assert sorted(verdicts) == ["accepted"] * 300 + ["duplicate"] * 300
    await first.close()
    await second.close()
