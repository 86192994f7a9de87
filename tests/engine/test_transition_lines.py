"""What became of tries is in the log: one line per transition, with the facts that C-7 names."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from redrive import Task
from redrive.observe.lines import who
from redrive.store import retry_queue
from redrive.store.pausing import PauseScope
from support.engine import MARGIN_S, PERSON, Engine, ManualClock

FACTS = {
    *("event_id", "task", "org_id", "attempt", "retry_attempts", "correlation_id", "log_level", "event"),
    *("event_type", "endpoint_id", "actor"),
}


async def lines_of(engine: Engine, *, down: bool) -> list[dict[str, Any]]:
    """What a worker says of one pass."""

    async def handle(task: Task) -> None:
        if down:
            raise ConnectionError("the ERP is down")

    with capture_logs() as lines:
        await engine.run_until_idle({"edi.orders": handle})
    return [dict(line) for line in lines if not line["event"].startswith("worker_")]


def brief(lines: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (line["event"], line.get("old_status"), line.get("new_status"), line["retry_attempts"], line["log_level"])
        for line in lines
    ]


async def test_c7_every_transition_of_an_event_that_dies_is_a_line(engine: Engine, clock: ManualClock) -> None:
    event_id = await engine.accept("edi.orders", handler="edi.orders", correlation_id="c-1")
    first = await lines_of(engine, down=True)
    assert brief(first) == [
        ("delivery_failure", None, None, 1, "warning"),
        ("retry_scheduled", None, None, 1, "info"),
        ("status_transition", "queued", "queued", 1, "info"),
    ]
    failure, scheduled, _ = first
    waits = {"next_retry_at", "retry_in_ms", "scheduling_latency_ms"}
    assert failure.keys() == FACTS | waits | {"error", "error_type"}
    assert scheduled.keys() == FACTS | waits
    assert 0 < failure["scheduling_latency_ms"] == scheduled["scheduling_latency_ms"]
    assert (failure["event_id"], failure["correlation_id"], failure["attempt"]) == (str(event_id), "c-1", 1)
    assert (failure["error"], failure["error_type"]) == ("the ERP is down", "network")
    assert (failure["next_retry_at"], failure["retry_in_ms"]) == ("2031-05-04T12:00:05Z", 5000)
    for delay_s, retries in ((5, 2), (30, 3)):
        clock.advance(delay_s)
        assert brief(await lines_of(engine, down=True)) == [
            ("retry_attempted", None, None, retries, "info"),
            ("delivery_failure", None, None, retries, "warning"),
            ("retry_scheduled", None, None, retries, "info"),
            ("status_transition", "queued", "queued", retries, "info"),
        ]
    clock.advance(300)
    last = await lines_of(engine, down=True)
    assert brief(last) == [
        ("retry_attempted", None, None, 3, "info"),
        ("event_failed", None, None, 3, "error"),
        ("status_transition", "queued", "failed", 3, "info"),
    ]
    assert (last[1]["reason"], last[1]["last_error"]) == ("exhausted", "the ERP is down")
    assert last[1]["failed_at"] == clock.now().isoformat().replace("+00:00", "Z")


async def test_c7_tries_that_succeed_are_told(engine: Engine, clock: ManualClock) -> None:
    await engine.accept("edi.orders", handler="edi.orders")
    assert brief(await lines_of(engine, down=False)) == [("status_transition", "queued", "delivered", 0, "info")]
    await engine.accept("edi.orders", handler="edi.orders")
    await lines_of(engine, down=True)
    clock.advance(5)
    assert brief(await lines_of(engine, down=False)) == [
        ("retry_attempted", None, None, 1, "info"),
        ("status_transition", "queued", "delivered", 1, "info"),
    ]


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"kind": "immediate", "max_retries": 0}, ["event_failed", "status_transition"]),
        ({"kind": "manual"}, ["delivery_failure", "status_transition"]),
    ],
)
async def test_c7_no_try_is_told_where_a_lost_one_was_the_last(
    engine: Engine, clock: ManualClock, policy: dict[str, Any], told: list[str]
) -> None:
    await engine.policy("once", **policy)
    await engine.accept("edi.orders", handler="edi.orders", policy="once")
    (job,) = await engine.claim(queues=["handler:edi.orders"])
    clock.advance(job.timeout_s + MARGIN_S + 1)
    taken_over, *lines = await lines_of(engine, down=True)
    assert taken_over["event"] == "lease_taken_over"
    assert [line["event"] for line in lines] == told
    assert not any("attempt" in line for line in lines)


async def test_c7_what_a_person_does_is_a_line_with_their_name(engine: Engine) -> None:
    event_id = await engine.accept("edi.orders", handler="edi.orders", submitted_by="user:7")
    task_id = (await engine.task_of(event_id))["id"]
    await lines_of(engine, down=True)
    with capture_logs() as lines:
        assert await engine.skip(task_id) is None
        assert await engine.redrive(task_id) is None
        assert await engine.skip(task_id) is None
        for state in ("resolved", "open", "ignored", "deleted"):
            assert await engine.mark_letter(task_id, state) is None
    assert brief([dict(line) for line in lines[:4]]) == [
        ("event_failed", None, None, 1, "error"),
        ("status_transition", "queued", "failed", 1, "info"),
        ("status_transition", "failed", "queued", 1, "info"),
        ("event_failed", None, None, 1, "error"),
    ]
    assert (lines[0]["reason"], lines[0]["last_error"]) == ("skipped", "the ERP is down")
    marked = [(line["event"], line["old_state"], line["new_state"]) for line in lines[5:]]
    states = [("open", "resolved"), ("resolved", "open"), ("open", "ignored"), ("ignored", "deleted")]
    assert marked == [("dead_letter_transition", *moved) for moved in states]
    for line in lines:
        assert (line["event_id"], line["task"], line["actor"]) == (str(event_id), str(task_id), "key:tester")
        assert line["org_id"] == str(engine.org_id)
        assert line["user_id"] == "7"  # who handed the event in


async def test_c7_the_inbox_and_what_is_held_are_told(engine: Engine) -> None:
    received = await engine.accept("nobody.asked")
    with capture_logs() as lines:
        assert await engine.acknowledge(received) == "received"
        assert await engine.delete_event(received) is None
    assert [(line["event"], line["old_status"], line["new_status"]) for line in lines] == [
        ("status_transition", "received", "delivered"),
        ("event_deleted", "delivered", None),
    ]
    endpoint = await engine.endpoint()
    await engine.pause(PauseScope.ENDPOINT, endpoint)
    held = await engine.accept("a", endpoint_id=endpoint)
    with capture_logs() as lines:
        await engine.run_until_idle()
    assert [
        (line["event"], line["event_id"], line["endpoint_id"]) for line in lines if line["event"] == "task_held"
    ] == [("task_held", held, endpoint)]


@pytest.mark.parametrize(
    ("submitted_by", "told"),
    [
        ("user:7", {"user_id": "7"}),
        ("key:7", {"key_id": "7"}),
        ("cli:ada", {"user_id": "cli:ada"}),
        (None, {}),
    ],
)
def test_c18_who_handed_an_event_in_is_a_person_or_a_key(submitted_by: str | None, told: dict[str, str]) -> None:
    assert who(submitted_by) == told | {"actor": "system"}
    assert who(submitted_by, "user:8") == told | {"actor": "user:8"}


async def test_c7_what_was_rolled_back_is_not_told(engine: Engine) -> None:
    event_id = await engine.accept("edi.orders", handler="edi.orders")
    task_id = (await engine.task_of(event_id))["id"]
    await lines_of(engine, down=True)
    with capture_logs() as lines:
        with pytest.raises(ZeroDivisionError):
            await _skip_and_break(engine, task_id)
        assert lines == []
    assert (await engine.task(task_id))["state"] == "waiting"


async def _skip_and_break(engine: Engine, task_id: Any) -> None:
    async with engine.app.tenant(engine.org_id) as session:
        assert await retry_queue.skip(session, task_id, PERSON, engine.clock) is None
        raise ZeroDivisionError
