"""Row A from Python: what a program hands over, what becomes of it, and what a person does with it.

After each test the books are checked: nothing here may leave them.
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from redrive import ConfigurationError, GiveUp, NotFound, NotPossible, Redrive, RetryLater, RetryService
from redrive.core.presets import PRESETS
from redrive.store.retry_queue import Refusal
from support.engine import Engine
from support.receiver import open_receiver

from .conftest import Office

# -- adding ------------------------------------------------------------------------------------------------------------


async def test_a1_a_failed_event_is_logged_and_waits_for_its_first_retry(office: Office) -> None:
    try:
        raise ConnectionError("the ERP is down, token=canary-1")
    except ConnectionError as error:
        id = await office.add(error, external_system="ERP", correlation_id="c-1")
    entry = await office.entry(id)
    assert (entry["retry_count"], entry["max_retries"], entry["retry_policy"]) == (0, 3, "exponential")
    assert (entry["status"], entry["in_dlq"], entry["policy"]) == ("pending", False, "integration")
    assert entry["next_retry_at"] == office.in_s(5)
    assert entry["last_retry_at"] == office.clock.now()
    assert entry["error_message"].startswith("the ERP is down")
    assert "Traceback" in entry["error_stack"]
    assert "canary" not in entry["error_message"] + entry["error_stack"]
    log = await office.log(id)
    assert (log["status"], log["external_system"], log["event_type"]) == ("error", "ERP", "edi.orders")
    assert (log["correlation_id"], [one["result"] for one in log["attempts"]]) == ("c-1", ["failed"])


async def test_a2_a_retry_that_succeeds_leaves_the_queue_and_turns_the_log(office: Office) -> None:
    office.erp.down_for, office.erp.answer = 1, {"accepted": 7}
    id = await office.add()
    assert await office.process() == {"succeeded": 0, "failed": 0}  # not due yet
    assert await office.process(after_s=5) == {"succeeded": 0, "failed": 1}
    entry = await office.entry(id)
    assert (entry["retry_count"], entry["status"], entry["next_retry_at"]) == (1, "pending", office.in_s(30))
    assert await office.process(after_s=30) == {"succeeded": 1, "failed": 0}
    assert (await office.queued(), await office.dead()) == ([], [])
    log = await office.log(id)
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 2")
    assert office.erp.calls == [{"order": 7}] * 2


async def test_a3_the_last_retry_that_fails_makes_a_dead_letter(office: Office) -> None:
    office.erp.down_for = 3
    id = await office.add()
    for delay_s in (5, 30, 300):
        assert await office.process(after_s=delay_s) == {"succeeded": 0, "failed": 1}
    assert await office.queued() == []
    letter = await office.letter(id)
    assert (letter["status"], letter["in_dlq"], letter["next_retry_at"]) == ("failed", True, None)
    assert (letter["retry_count"], letter["max_retries"], letter["reason"]) == (3, 3, "exhausted")
    assert letter["error_message"] == "the ERP is down (call 3)"


async def test_a4_immediate_waits_five_seconds_each_time_and_manual_for_a_person(office: Office) -> None:
    at_once = await office.add(policy="immediate")
    by_hand = await office.add(policy="manual")
    assert (await office.entry(at_once))["next_retry_at"] == office.in_s(5)
    entry = await office.entry(by_hand)
    assert (entry["retry_policy"], entry["next_retry_at"], entry["status"]) == ("manual", None, "pending")
    office.erp.down_for = 1
    await office.process(after_s=5)
    assert (await office.entry(at_once))["next_retry_at"] == office.in_s(5)
    await office.process(after_s=86_400)
    assert await office.queued() == [by_hand]
    await office.service.manual_retry(by_hand)
    assert await office.process() == {"succeeded": 1, "failed": 0}


async def test_a6_retry_now_is_due_at_once_and_moves_on_if_it_fails(office: Office) -> None:
    office.erp.down_for = 1
    id = await office.add()
    entry = await office.service.manual_retry(id, because="the ERP is back")
    assert (entry["status"], entry["next_retry_at"]) == ("pending", office.in_s(0))
    assert await office.process() == {"succeeded": 0, "failed": 1}
    entry = await office.entry(id)
    assert (entry["retry_count"], entry["next_retry_at"]) == (1, office.in_s(30))
    assert await office.audit(id) == [("task.retry", "the tests", "the ERP is back")]


async def test_a7_skip_moves_an_entry_to_the_dead_letters(office: Office) -> None:
    id = await office.add()
    entry = await office.service.skip_to_dlq(id, because="obsolete")
    assert (entry["status"], entry["in_dlq"], entry["next_retry_at"]) == ("failed", True, None)
    assert (await office.queued(), (await office.letter(id))["reason"]) == ([], "skipped")
    assert await office.audit(id) == [("task.skip", "the tests", "obsolete")]


async def test_a10_a_dead_letter_that_is_retried_is_as_after_its_first_failure(office: Office) -> None:
    office.erp.down_for = 1
    id = await office.add()
    await office.service.skip_to_dlq(id)
    entry = await office.service.manual_retry(id)
    assert (entry["retry_count"], entry["max_retries"], entry["in_dlq"], entry["status"]) == (0, 3, False, "pending")
    assert entry["next_retry_at"] == office.in_s(5)
    await office.process(after_s=5)
    entry = await office.entry(id)
    assert (entry["retry_count"], entry["next_retry_at"], await office.dead()) == (1, office.in_s(30), [])


async def test_a11_a_deleted_dead_letter_is_gone_and_its_log_stays(office: Office) -> None:
    id = await office.add()
    await office.service.skip_to_dlq(id)
    await office.service.delete_dlq_entry(id, because="a duplicate")
    assert await office.dead() == []
    assert (await office.log(id))["status"] == "error"
    assert (await office.audit(id))[-1] == ("dead_letter.delete", "the tests", "a duplicate")
    with pytest.raises(NotFound):
        await office.service.delete_dlq_entry(id)


async def test_a14_a_handler_s_own_policy_holds_for_what_is_added_to_it(office: Office) -> None:
    id = await office.service.report_failure("order.created", {"order": 1}, TimeoutError(), handler="erp.sync")
    entry = await office.entry(id)
    assert (entry["event_type"], entry["kind"], entry["policy"]) == ("order.created", "handler", "immediate")
    assert await office.process(after_s=5) == {"succeeded": 1, "failed": 0}
    assert office.erp.calls == [{"order": 1}]


async def test_a14_webhooks_are_retried_by_the_service_too(office: Office) -> None:
    async with open_receiver() as receiver:
        endpoint_id = await office.engine.endpoint(url=receiver.url, event_types=("nothing.else",))
        id = await office.service.report_failure("edi.orders", {"order": 7}, "HTTP 503", endpoint_id=endpoint_id)
        assert (await office.entry(id))["endpoint_id"] == endpoint_id
        assert await office.process(after_s=5) == {"succeeded": 1, "failed": 0}
        assert [request.body for request in receiver.requests] == [b'{"order":7}']


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (ValueError("no such SKU"), "validation"),
        (ConfigurationError("no credentials"), "configuration"),
        (GiveUp("an order without lines"), "unknown"),
    ],
)
async def test_a13_an_error_that_the_policy_does_not_retry_is_a_dead_letter_at_once(
    office: Office, error: Exception, category: str
) -> None:
    id = await office.add(error)
    letter = await office.letter(id)
    assert (letter["reason"], letter["category"], letter["retry_count"]) == ("permanent", category, 0)
    assert await office.queued() == []


async def test_a13_a_text_is_an_error_too_and_what_looks_secret_in_it_is_hidden(office: Office) -> None:
    entry = await office.entry(await office.add("POST failed, password=canary-2"))
    assert entry["error_message"].startswith("POST failed")
    assert "canary" not in entry["error_message"]
    assert entry["error_stack"] == "unknown: POST failed, password=[redacted]"


async def test_a13_a_retry_asked_for_later_waits_that_long(office: Office) -> None:
    assert (await office.entry(await office.add(RetryLater("busy", after=600))))["next_retry_at"] == office.in_s(600)


async def test_a13_the_same_idempotency_key_is_the_same_entry_and_fails_once(office: Office) -> None:
    first = await office.add(idempotency_key="order-7")
    assert await office.add(idempotency_key="order-7") == first
    assert (await office.entry(first))["retry_count"] == 0
    assert len((await office.log(first))["attempts"]) == 1
    with pytest.raises(NotPossible):
        await office.service.report_failure("edi.orders", {"order": 8}, "down", idempotency_key="order-7")


@pytest.mark.parametrize(
    "terms",
    [
        {"handler": "a", "endpoint_id": "01890000-0000-7000-8000-000000000001"},
        {"handler": ""},
        {"external_system": "a\x00b"},
        {"correlation_id": "c" * 129},
        {"idempotency_key": "k" * 256},
        {"policy": "\n"},
    ],
    ids=lambda terms: "+".join(terms),
)
async def test_a13_what_cannot_be_stored_is_refused_and_leaves_nothing(office: Office, terms: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"printable|not both"):
        await office.add(**terms)
    assert await office.queued() == []


async def test_a13_unknown_policies_endpoints_and_too_much_payload_are_refused(office: Office) -> None:
    with pytest.raises(NotFound, match='no policy named "none such"'):
        await office.add(policy="none such")
    with pytest.raises(NotFound, match="no such endpoint"):
        await office.add(endpoint_id=uuid4())
    with pytest.raises(NotFound, match="no such endpoint"):
        await office.add(endpoint_id="not an id")
    with pytest.raises(ValueError, match="1048576 bytes"):
        await office.service.report_failure("edi.orders", b"x" * 1_048_577, "down")
    assert await office.queued() == []


# -- as the specification has it ---------------------------------------------------------------------------------------


async def test_a24_an_entry_is_added_by_its_log_with_a_policy_and_a_number_of_retries(office: Office) -> None:
    id = await office.add()
    added = await office.service.add_to_retry_queue(id, "immediate", 1)
    expected = {"log_id": id, "retry_count": 0, "max_retries": 1, "retry_policy": "immediate", "status": "pending"}
    assert {name: added[name] for name in expected} == expected
    assert added["next_retry_at"] == office.in_s(5)
    assert await office.service.add_to_retry_queue(id, "manual") == await office.entry(id)
    entry = await office.entry(id)
    assert (entry["retry_policy"], entry["max_retries"], entry["next_retry_at"]) == ("manual", 3, None)
    await office.service.add_to_retry_queue(id, "exponential", max_retries=1)
    office.erp.down_for = 9
    await office.process(after_s=5)
    letter = await office.letter(id)
    assert (letter["retry_count"], letter["max_retries"], letter["reason"]) == (1, 1, "exhausted")
    # A dead letter begins anew, with all its retries.
    added = await office.service.add_to_retry_queue(id, retry_policy="exponential", max_retries=3)
    assert (added["retry_count"], added["max_retries"], added["in_dlq"]) == (0, 3, False)
    assert added["next_retry_at"] == office.in_s(5)
    office.erp.down_for = 0
    assert await office.process(after_s=5) == {"succeeded": 1, "failed": 0}
    with pytest.raises(NotPossible):
        await office.service.add_to_retry_queue(id)


async def test_a24_a_dead_letter_can_be_added_to_wait_for_a_person(office: Office) -> None:
    id = await office.add()
    await office.service.skip_to_dlq(id)
    added = await office.service.add_to_retry_queue(id, "manual")
    assert (added["status"], added["next_retry_at"], added["max_retries"]) == ("pending", None, 3)
    assert await office.process(after_s=86_400) == {"succeeded": 0, "failed": 0}


async def test_a24_what_cannot_be_added_is_refused(office: Office) -> None:
    with pytest.raises(NotFound, match="no such integration log"):
        await office.service.add_to_retry_queue(uuid4())
    id = await office.add()
    with pytest.raises(NotFound, match='no policy named "weekly"'):
        await office.service.add_to_retry_queue(id, "weekly")
    for wrong in (-1, 1_001):
        with pytest.raises(ValueError, match="max_retries is 0 to 1000"):
            await office.service.add_to_retry_queue(id, "exponential", wrong)
        with pytest.raises(ValueError, match="max_retries is 0 to 1000"):
            await office.add(max_retries=wrong)


async def test_a24_a_failure_is_reported_with_a_number_of_retries(office: Office) -> None:
    id = await office.add(max_retries=1)
    entry = await office.entry(id)
    assert (entry["max_retries"], entry["retry_policy"], entry["next_retry_at"]) == (1, "exponential", office.in_s(5))
    office.erp.down_for = 1
    await office.process(after_s=5)
    assert (await office.letter(id))["retry_count"] == 1
    assert (await office.letter(await office.add(max_retries=0)))["reason"] == "exhausted"


async def test_a26_the_audit_names_the_user_of_every_acting_call(office: Office) -> None:
    user, service = uuid4(), office.service
    office.erp.down_for = 2
    id, other = await office.add(), await office.add()
    await service.manual_retry(id, user)
    assert await service.bulk_retry([id, other], user) == {"succeeded": 0, "failed": 2}
    await service.schedule_retry(id, delay=60, user_id=user)
    await service.add_to_retry_queue(id, "immediate", user_id=user)
    await service.skip_to_dlq(id, user)
    await service.delete_dlq_entry(id, user, "a duplicate")
    await service.mark_failed(other, "gone", user_id="maria@example.com")
    acts = await office.audit(id)
    assert [action for action, _, _ in acts] == [
        "task.retry",
        "task.retry",
        "task.schedule",
        "task.schedule",
        "task.skip",
        "dead_letter.delete",
    ]
    assert {actor for _, actor, _ in acts} == {f"user:{user}"}
    assert (await office.audit(other))[-1] == ("task.fail", "user:maria@example.com", None)
    for wrong in ("", "a\nb", "x" * 201):
        with pytest.raises(ValueError, match="user_id has 1 to 200 printable characters"):
            await service.manual_retry(other, wrong)


async def test_a24_lists_are_entries_of_the_service_s_own_org(office: Office) -> None:
    ids = {await office.add() for _ in range(3)}
    entries = await office.service.get_retry_queue(office.engine.org_id)
    assert {entry["id"] for entry in entries} == ids
    first = await office.service.get_retry_queue(limit=2)
    rest = await office.service.get_retry_queue(limit=2, cursor=first.pagination["cursor"])
    assert (len(first), len(rest), rest.pagination["has_more"]) == (2, 1, False)
    assert await office.service.get_dlq(office.engine.org_id) == []
    with pytest.raises(NotFound, match="another org"):
        await office.service.get_retry_queue(uuid4())


# -- carrying out ------------------------------------------------------------------------------------------------------


async def test_a13_process_carries_out_at_most_as_many_as_asked(office: Office) -> None:
    for _ in range(5):
        await office.add()
    office.clock.advance(5)
    assert await office.service.process_retry_queue(limit=2) == {"succeeded": 2, "failed": 0}
    assert len(await office.queued()) == 3
    assert await office.process() == {"succeeded": 3, "failed": 0}


async def test_a13_bulk_retry_tries_all_of_them_and_counts(office: Office) -> None:
    """A-8: 3 succeed, 2 fail; a dead letter among them is redriven, an unknown id has not succeeded."""
    ids = [await office.add() for _ in range(4)]
    dead = await office.add()
    await office.service.skip_to_dlq(dead)
    office.erp.down_for = 1
    counted = await office.service.bulk_retry([*ids, dead, dead, uuid4(), "not an id"], wait_s=20)
    assert counted == {"succeeded": 4, "failed": 3}
    assert len(office.erp.calls) == 5
    assert len(await office.queued()) == 1


async def test_a13_bulk_retry_does_not_wait_for_ever_for_a_handler_that_runs_nowhere(office: Office) -> None:
    id = await office.service.report_failure("nobody.has.this", None, "down")
    assert await office.service.bulk_retry([id], wait_s=0.3) == {"succeeded": 0, "failed": 1}
    assert (await office.entry(id))["status"] == "pending"
    office.clock.advance(-1)
    await office.service.skip_to_dlq(id)


async def test_a13_bulk_retry_has_a_limit(office: Office) -> None:
    with pytest.raises(ValueError, match="1000"):
        await office.service.bulk_retry([uuid4() for _ in range(1_001)])


# -- a person's hand ---------------------------------------------------------------------------------------------------


async def test_a13_schedule_moves_the_next_retry(office: Office) -> None:
    id = await office.add()
    service, now = office.service, office.clock.now()
    assert (await service.schedule_retry(id, delay=60))["next_retry_at"] == office.in_s(60)
    assert (await service.schedule_retry(id, delay=timedelta(minutes=2)))["next_retry_at"] == office.in_s(120)
    at = now + timedelta(minutes=10)
    assert (await service.schedule_retry(id, at=at))["next_retry_at"] == at
    assert (await service.schedule_retry(id, at=at.replace(tzinfo=None)))["next_retry_at"] == at
    assert (await service.schedule_retry(id, at=now - timedelta(days=1)))["next_retry_at"] == now
    assert (await service.schedule_retry(id, because="as planned"))["next_retry_at"] == office.in_s(5)
    assert (await office.audit(id))[-1] == ("task.schedule", "the tests", "as planned")
    assert await office.process(after_s=5) == {"succeeded": 1, "failed": 0}


async def test_a13_a_schedule_beyond_the_policy_s_reach_is_refused(office: Office) -> None:
    id = await office.add()
    with pytest.raises(NotPossible, match="3600 s from now at most"):
        await office.service.schedule_retry(id, delay=3601)
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="number of seconds"):
            await office.service.schedule_retry(id, delay=bad)
    with pytest.raises(ValueError, match="not both"):
        await office.service.schedule_retry(id, at=office.clock.now(), delay=1)
    by_hand = await office.add(policy="manual")
    with pytest.raises(NotPossible, match="never retries by itself"):
        await office.service.schedule_retry(by_hand)
    assert (await office.service.schedule_retry(by_hand, delay=1))["next_retry_at"] == office.in_s(1)


async def test_a13_mark_failed_kills_an_entry_with_the_error_given(office: Office) -> None:
    id = await office.add()
    entry = await office.service.mark_failed(id, TimeoutError("no answer from the ERP"), because="tried by hand")
    assert (entry["status"], entry["in_dlq"], entry["next_retry_at"]) == ("failed", True, None)
    letter = await office.letter(id)
    assert (letter["reason"], letter["category"], letter["error_message"]) == (
        "exhausted",
        "timeout",
        "no answer from the ERP",
    )
    assert [one["result"] for one in (await office.log(id))["attempts"]] == ["failed", "failed"]
    assert await office.audit(id) == [("task.fail", "the tests", "tried by hand")]


async def test_a13_an_unknown_id_is_not_found_and_so_is_one_of_another_org(office: Office, engine: Engine) -> None:
    await engine.org("another")
    id = await office.add()
    async with RetryService(Redrive(engine.url), org="another", clock=office.clock) as stranger:
        for service, wanted in ((office.service, uuid4()), (office.service, "nonsense"), (stranger, id)):
            for action in (
                service.manual_retry(wanted),
                service.skip_to_dlq(wanted),
                service.schedule_retry(wanted),
                service.mark_failed(wanted, "down"),
                service.delete_dlq_entry(wanted),
            ):
                with pytest.raises(NotFound, match="There is no such"):
                    await action
        assert await stranger.get_retry_queue() == []
        assert await stranger.get_dlq() == []
    assert await office.queued() == [id]


async def test_a13_what_is_being_tried_or_finished_cannot_be_changed(office: Office) -> None:
    id = await office.add()
    office.clock.advance(5)
    job = await office.engine.claim_one(queues=["handler:edi.orders"])
    service = office.service
    for action in (service.manual_retry(id), service.skip_to_dlq(id), service.schedule_retry(id)):
        with pytest.raises(NotPossible, match="A try is under way"):
            await action
    with pytest.raises(NotPossible, match="A try is under way"):
        await service.mark_failed(id, "down")
    await office.engine.succeed(job)
    for action in (service.manual_retry(id), service.skip_to_dlq(id), service.schedule_retry(id)):
        with pytest.raises(NotPossible, match="It is finished already"):
            await action
    with pytest.raises(NotPossible, match="It is finished already"):
        await service.mark_failed(id, "down")


async def test_a13_what_is_held_says_so(office: Office) -> None:
    endpoint_id = await office.engine.endpoint()
    id = await office.add(endpoint_id=endpoint_id)
    await office.engine.change_endpoint(endpoint_id, disabled=True)
    office.clock.advance(5)
    assert await office.engine.claim() == []
    for action in (
        office.service.manual_retry(id),
        office.service.schedule_retry(id),
        office.service.mark_failed(id, ""),
    ):
        with pytest.raises(NotPossible, match='its endpoint "hook" is disabled'):
            await action
    assert (await office.entry(id))["held"]
    assert await office.engine.skip(id) is None
    assert await office.engine.skip(id) is Refusal.NOT_OPEN


# -- looking -----------------------------------------------------------------------------------------------------------


async def test_a13_lists_take_the_filters_of_the_api_and_go_on_by_cursor(office: Office) -> None:
    ids = [await office.add(external_system="ERP" if n % 2 else "EDI") for n in range(5)]
    page = await office.service.get_retry_queue(limit=3)
    assert page.pagination["total_count"] == 5
    rest = await office.service.get_retry_queue(limit=3, cursor=page.pagination["cursor"])
    assert {row["id"] for row in [*page, *rest]} == set(ids)
    assert len(await office.service.get_retry_queue(external_system="EDI")) == 3
    for id in ids:
        await office.service.skip_to_dlq(id)
    assert (await office.service.get_dlq(external_system="ERP", limit=1)).pagination["total_count"] == 2
    assert await office.service.get_dlq(state="resolved") == []
    for bad in ({"status": "late"}, {"no_such": 1}, {"limit": 0}, {"cursor": "forged"}):
        with pytest.raises(ValueError, match=r"."):
            await office.service.get_retry_queue(**bad)


async def test_a13_the_delays_are_those_of_the_database(office: Office) -> None:
    delay = RetryService.get_retry_delay
    assert [delay(n) for n in range(5)] == [5, 30, 300, 300, 300]
    assert [delay(n, "immediate") for n in range(3)] == [5, 5, 5]
    assert delay(0, "manual") is None
    named = "SELECT extract(epoch FROM redrive.retry_delay($1::int, $2::text))::float8"
    for policy in ("exponential", "integration", "immediate", "manual", "no such policy"):
        for count in range(-1, 8):
            assert await office.engine.sql.fetchval(named, count, policy) == delay(count, policy), (policy, count)
    of_spec = "SELECT extract(epoch FROM redrive.retry_delay($1::int, $2::jsonb, 0.5))::float8"
    for name, preset in PRESETS.items():
        spec = msgspec.json.encode(preset.to_spec()).decode()
        for count in range(20):
            assert await office.engine.sql.fetchval(of_spec, count, spec) == delay(count, name), (name, count)


# -- opening -----------------------------------------------------------------------------------------------------------


async def test_a13_a_service_says_what_is_missing(engine: Engine) -> None:
    with pytest.raises(NotFound, match='no org named "nobody"'):
        async with RetryService(engine.url, org="nobody"):
            pass
    with pytest.raises(RuntimeError, match="async with"):
        await RetryService(engine.url).get_dlq()


async def test_a13_without_the_sealing_key_webhooks_are_left_to_workers(
    engine: Engine, office: Office, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("REDRIVE_DATA_DIR", str(tmp_path))
    endpoint_id = await engine.endpoint()
    hook = await office.add(endpoint_id=endpoint_id)
    order = await office.add()
    app = Redrive(engine.url)
    app.handler("edi.orders")(office.erp.take)
    office.clock.advance(5)
    async with RetryService(app, clock=office.clock) as service:
        assert await service.process_retry_queue() == {"succeeded": 1, "failed": 0}
    assert await office.queued() == [hook]
    assert office.erp.calls == [{"order": 7}], order
    assert list(tmp_path.iterdir()) == []
