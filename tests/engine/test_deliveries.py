"""A worker delivers over HTTP: signed, on schedule to the microsecond, and dead when the policy says so."""

import json
from datetime import timedelta
from email.utils import format_datetime
from uuid import UUID

import pytest
from standardwebhooks.webhooks import Webhook

from redrive.store.edits import Edit, replay
from redrive.store.endpoints import Endpoints, EndpointSpec
from support.engine import PERSON, Engine, ManualClock, until
from support.receiver import HANG, RESET, Answer, open_receiver

MAX_RETRY_AFTER_S = 3600.0


async def test_a_delivery_carries_the_stored_bytes_and_a_signature_that_others_verify(live: Engine) -> None:
    body = b'{"b": 1, "a": [1.0, "\xc3\xa9"]}'
    async with open_receiver() as receiver:
        async with live.app.tenant(live.org_id) as session:
            spec = EndpointSpec("hook", receiver.url, headers=(("x-tenant", "7"),))
            _, secret = await Endpoints(live.sealer).create(session, spec, PERSON)
        event_id = await live.accept("invoice.paid", body)
        await live.run_until_idle()
        (request,) = receiver.requests
    assert request.body == body
    assert request.headers["webhook-id"] == str(event_id)
    assert request.headers["redrive-event-type"] == "invoice.paid"
    assert request.headers["redrive-attempt"] == "1"
    assert request.headers["user-agent"] == "Redrive/test"
    assert request.headers["x-tenant"] == "7"
    Webhook(secret).verify(body.decode(), dict(request.headers))  # raises where it does not hold


async def test_a_replay_delivers_the_edited_bytes_signed_with_headers_of_its_own_under_the_same_id(
    live: Engine,
) -> None:
    edited = b'{"fixed":  1.0}'
    async with open_receiver() as receiver:
        async with live.app.tenant(live.org_id) as session:
            spec = EndpointSpec("hook", receiver.url, headers=(("X-Tenant", "7"), ("x-kept", "yes")))
            _, secret = await Endpoints(live.sealer).create(session, spec, PERSON)
        own = '{"x-kept": "no", "X-New": "none", "x-event": "e"}'
        event_id = await live.accept("invoice.paid", b'{"broken": 1}', headers=own)
        receiver.script(422)
        await live.run_until_idle()
        task = await live.task_of(event_id)
        async with live.app.tenant(live.org_id) as session:
            edit = Edit(edited, {"x-tenant": "8", "x-new": "one"})
            assert await replay(session, task["id"], PERSON, live.clock, edit=edit, roll=0.5, at_once=True) is None
        await live.run_until_idle()
        first, second = receiver.requests
    assert (second.body, second.headers["webhook-id"]) == (edited, first.headers["webhook-id"])
    names = ("x-tenant", "x-kept", "x-new", "x-event")
    assert [first.headers[name] for name in names] == ["7", "yes", "none", "e"]
    assert [second.headers[name] for name in names] == ["8", "yes", "one", "e"]
    Webhook(secret).verify(edited.decode(), dict(second.headers))  # raises where it does not hold
    letter = await live.letter(task["id"])
    assert letter is not None
    assert (letter["state"], letter["replay_outcome"]) == ("resolved", "succeeded")
    shown = (await live.attempts(task["id"]))[1]["request_headers"]
    assert {name.lower() for name in json.loads(shown)} == {*names, "content-type"}


async def test_the_integration_policy_retries_after_5_30_and_300_seconds_and_then_gives_up(
    engine: Engine, clock: ManualClock
) -> None:
    async with open_receiver() as receiver:
        receiver.usual = 503
        await engine.endpoint(url=receiver.url)
        event_id = await engine.accept()
        for tries, delay_s in enumerate((5, 30, 300), 1):
            await engine.run_until_idle()
            task = await engine.task_of(event_id)
            assert (task["state"], task["attempts"]) == ("waiting", tries)
            assert task["due_at"] == task["last_failed_at"] + timedelta(seconds=delay_s)
            clock.advance(delay_s - 0.000001)
            await engine.run_until_idle()
            assert len(receiver.requests) == tries  # not a microsecond early
            clock.advance(0.000001)
        await engine.run_until_idle()
        assert [request.headers["redrive-attempt"] for request in receiver.requests] == ["1", "2", "3", "4"]
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "exhausted", 4)
    assert await engine.letter(task["id"]) is not None


async def test_a_retry_that_succeeds_leaves_the_queue(engine: Engine, clock: ManualClock) -> None:
    async with open_receiver() as receiver:
        receiver.script(500, Answer(200, b"thanks"))
        await engine.endpoint(url=receiver.url)
        event_id = await engine.accept()
        await engine.run_until_idle()
        clock.advance(5)
        await engine.run_until_idle()
    task = await engine.task_of(event_id)
    first, second = await engine.attempts(task["id"])
    assert (task["state"], first["result"], second["result"]) == ("succeeded", "failed", "succeeded")
    assert (first["status_code"], second["status_code"], second["response_body"]) == (500, 200, b"thanks")


@pytest.mark.parametrize(
    ("asked", "expected_s"),
    [
        ("60", 60.0),
        ("2", 5.0),  # a floor, no more: the policy's own delay is longer
        ("999999", MAX_RETRY_AFTER_S),
        ("-5", 5.0),
        ("soon", 5.0),
        ("in two minutes", 5.0),
    ],
)
async def test_retry_after_is_a_floor_for_the_next_delay(
    engine: Engine, clock: ManualClock, asked: str, expected_s: float
) -> None:
    task = await _failed_once(engine, Answer(429, headers={"retry-after": asked}))
    assert (await engine.task(task))["due_at"] == clock.now() + timedelta(seconds=expected_s)


async def test_a_date_in_retry_after_counts_from_the_receiver_s_own_clock(engine: Engine, clock: ManualClock) -> None:
    theirs = clock.now() - timedelta(days=1)
    headers = {
        "date": format_datetime(theirs, usegmt=True),
        "retry-after": format_datetime(theirs + timedelta(seconds=90), usegmt=True),
    }
    task = await _failed_once(engine, Answer(503, headers=headers))
    assert (await engine.task(task))["due_at"] == clock.now() + timedelta(seconds=90)


@pytest.mark.parametrize("status", [301, 400, 404, 410, 422])
async def test_what_cannot_succeed_is_dead_after_one_try(engine: Engine, status: int) -> None:
    task = await engine.task(await _failed_once(engine, status))
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "permanent", 1)
    letter = await engine.letter(task["id"])
    assert letter is not None
    assert letter["category"] == "client_error"


async def test_a_manual_policy_waits_for_a_person_and_goes_on_when_asked(engine: Engine, clock: ManualClock) -> None:
    async with open_receiver() as receiver:
        receiver.script(503)
        await engine.endpoint(url=receiver.url, policy="manual")
        event_id = await engine.accept()
        await engine.run_until_idle()
        clock.advance(10**8)
        await engine.run_until_idle()
        assert len(receiver.requests) == 1
        await engine.retry_now((await engine.task_of(event_id))["id"])
        await engine.run_until_idle()
    assert (await engine.task_of(event_id))["state"] == "succeeded"


async def test_a_task_older_than_its_policy_allows_dies_without_another_try(engine: Engine, clock: ManualClock) -> None:
    await engine.policy("short", kind="list", delays_s=[40], max_retries=None, max_age_s=100)
    async with open_receiver() as receiver:
        receiver.usual = 503
        await engine.endpoint(url=receiver.url, policy="short")
        event_id = await engine.accept()
        received = clock.now()
        for expected_s in (40, 80, 100):  # the last one is cut: it falls due when the task expires
            await engine.run_until_idle()
            due = (await engine.task_of(event_id))["due_at"]
            assert abs(due - received - timedelta(seconds=expected_s)) < timedelta(seconds=1)
            clock.advance((received - clock.now()).total_seconds() + expected_s)
        await engine.run_until_idle()
        assert len(receiver.requests) == 3
    task = await engine.task_of(event_id)
    assert (task["state"], task["reason"], task["attempts"]) == ("dead", "expired", 3)
    letter = await engine.letter(task["id"])
    assert letter is not None
    assert letter["error_message"] == "HTTP 503 Service Unavailable"


async def test_a_receiver_that_hangs_or_resets_is_a_possible_duplicate(engine: Engine) -> None:
    async with open_receiver() as receiver:
        receiver.script(HANG, path="/hang")
        receiver.script(RESET, path="/reset")
        await engine.endpoint("hang", receiver.url_of("/hang"), event_types=("hang",), timeout_s=0.2)
        await engine.endpoint("reset", receiver.url_of("/reset"), event_types=("reset",))
        events = [await engine.accept("hang"), await engine.accept("reset")]
        await engine.run_until_idle()
    attempts = [(await engine.attempts((await engine.task_of(event))["id"]))[0] for event in events]
    assert [(a["result"], a["category"], a["possible_duplicate"]) for a in attempts] == [
        ("failed", "timeout", True),
        ("failed", "network", True),
    ]


async def test_nothing_is_sent_to_an_address_that_is_not_allowed(engine: Engine) -> None:
    await engine.endpoint(url="http://192.168.7.7/hook")
    event_id = await engine.accept()
    await engine.run_until_idle()
    task = await engine.task_of(event_id)
    letter = await engine.letter(task["id"])
    assert letter is not None
    assert (task["reason"], letter["category"]) == ("permanent", "configuration")


async def test_gone_disables_the_endpoint_and_what_comes_later_is_held(engine: Engine, clock: ManualClock) -> None:
    async with open_receiver() as receiver:
        receiver.usual = 410
        endpoint_id = await engine.endpoint(url=receiver.url)
        await engine.accept()
        await engine.run_until_idle()
        later = await engine.accept()
        await engine.run_until_idle()
        assert len(receiver.requests) == 1
    assert (await engine.task_of(later))["state"] == "held"
    row = await engine.sql.fetchrow(
        "SELECT disabled_at, disabled_reason FROM redrive.endpoint WHERE id = $1", endpoint_id
    )
    assert row is not None
    assert tuple(row) == (clock.now(), "It answered 410 Gone.")
    audit = await engine.sql.fetch("SELECT actor, action, subject_id FROM redrive.audit WHERE actor = 'engine'")
    assert [tuple(entry) for entry in audit] == [("engine", "endpoint.disable", endpoint_id)]


async def test_an_edit_of_an_endpoint_reaches_a_worker_that_runs(live: Engine) -> None:
    async with open_receiver() as receiver, live.worker() as worker, live.running(worker):
        endpoint_id = await live.endpoint(url=receiver.url_of("/old"))
        await live.accept()
        await receiver.wait_for(1)
        await live.change_endpoint(endpoint_id, url=receiver.url_of("/new"))

        async def arrived() -> bool:
            await live.accept()
            worker.wake()
            return bool(receiver.of_path("/new"))

        await until(arrived)


async def _failed_once(engine: Engine, answer: Answer | int) -> UUID:
    """The id of a task that was tried once, against this answer."""
    async with open_receiver() as receiver:
        receiver.script(answer)
        await engine.endpoint(url=receiver.url)
        event_id = await engine.accept()
        await engine.run_until_idle()
        assert len(receiver.requests) == 1
    task_id: UUID = (await engine.task_of(event_id))["id"]
    return task_id
