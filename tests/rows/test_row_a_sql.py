"""Row A in SQL: the names of its specification, as the role that the API reads with."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from support.engine import Connection, ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation
from support.receiver import Answer

from .conftest import Story

# Columns and checks as the specification has them; the references lead to tables of its own.
SPECIFIED = """
CREATE TEMPORARY TABLE specified (
    id                  UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    org_id              UUID NOT NULL,
    log_id              UUID NOT NULL,
    retry_count         INTEGER NOT NULL DEFAULT 0,
    max_retries         INTEGER NOT NULL DEFAULT 3,
    retry_policy        TEXT NOT NULL DEFAULT 'exponential'
                        CHECK (retry_policy IN ('immediate', 'exponential', 'manual')),
    next_retry_at       TIMESTAMPTZ,
    last_retry_at       TIMESTAMPTZ,
    status              TEXT NOT NULL DEFAULT 'pending'
                        CHECK (status IN ('pending', 'in_progress', 'succeeded', 'failed')),
    in_dlq              BOOLEAN NOT NULL DEFAULT false,
    error_message       TEXT,
    error_stack         TEXT,
    created_at          TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at          TIMESTAMPTZ NOT NULL DEFAULT now(),
    CONSTRAINT check_dlq_status CHECK (
        (in_dlq = true AND status = 'failed') OR
        (in_dlq = false)
    )
)"""
LETTER = """
INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, event_type, reason, category, fingerprint,
                                 error_message, failed_at, generation, created_at, updated_at)
SELECT org_id, id, 'open', kind, event_id, event_type, 'skipped', 'unknown', 'f', 'by hand', now(), 0, now(), now()
  FROM redrive.task WHERE id = $1"""


@pytest_asyncio.fixture(loop_scope="session")
async def app(redrive: Installation) -> AsyncIterator[Connection]:
    settings = {
        "role": "redrive_app",
        "search_path": "redrive",
        "redrive.org": str(redrive.org_id),
        "redrive.role": "OWNER",
    }
    connection = await asyncpg.connect(redrive.url, server_settings=settings)
    yield connection
    await connection.close()


async def test_a23_the_retry_queue_is_a_view_with_the_specified_columns_and_checks(
    redrive: Installation, clock: ManualClock, app: Connection, failing: Story, dead: Story
) -> None:
    letter = await dead()
    entry = await failing()
    await failing(policy="immediate")
    await failing(policy="manual")
    columns = (
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position"
    )
    await app.execute(SPECIFIED)
    assert await app.fetch(columns, "integration_retry_queue") == await app.fetch(columns, "specified")
    await app.execute("INSERT INTO specified SELECT * FROM integration_retry_queue")
    sql = "SELECT * FROM integration_retry_queue WHERE org_id = $1 AND in_dlq = false ORDER BY next_retry_at"
    waiting = await app.fetch(sql, redrive.org_id)
    assert [row["retry_policy"] for row in waiting] == ["exponential", "immediate", "manual"]
    first = waiting[0]
    assert str(first["id"]) == str(first["log_id"]) == entry["id"]
    assert (first["status"], first["retry_count"], first["max_retries"]) == ("pending", 0, 3)
    assert first["next_retry_at"] == clock.now() + timedelta(seconds=5)
    assert waiting[2]["next_retry_at"] is None
    (row,) = await app.fetch(
        "SELECT * FROM integration_retry_queue WHERE org_id = $1 AND in_dlq = true", redrive.org_id
    )
    assert (str(row["id"]), row["status"], row["next_retry_at"]) == (letter["id"], "failed", None)
    assert (row["retry_count"], row["error_message"]) == (3, letter["error_message"])
    # What is done with them shows there too.
    await redrive.api.post(f"/v1/dead-letters/{letter['id']}/resolve")
    await redrive.api.post(f"/v1/retry-queue/{entry['id']}/skip")
    rows = await app.fetch("SELECT id, in_dlq FROM integration_retry_queue ORDER BY in_dlq DESC")
    assert [row["in_dlq"] for row in rows] == [True, False, False]
    assert str(rows[0]["id"]) == entry["id"]


async def test_a23_calculate_next_retry_answers_a_time_that_can_be_stored(app: Connection, failing: Story) -> None:
    await failing()
    await app.execute(SPECIFIED)
    async with app.transaction():
        now = await app.fetchval("SELECT now()")
        for policy, delays in (
            ("exponential", [5, 30, 300, 300]),
            ("immediate", [5, 5]),
            ("manual", [None]),
            ("no such policy", [5]),
        ):
            for count, delay_s in enumerate(delays):
                due = await app.fetchval("SELECT calculate_next_retry($1, $2)", count, policy)
                assert due == (None if delay_s is None else now + timedelta(seconds=delay_s)), (policy, count)
        named = "SELECT calculate_next_retry(p_retry_count => 1, p_retry_policy => 'exponential')"
        assert await app.fetchval(named) == now + timedelta(seconds=30)
        await app.execute("INSERT INTO specified SELECT * FROM integration_retry_queue")
        await app.execute("UPDATE specified SET next_retry_at = calculate_next_retry(retry_count, retry_policy)")
        assert await app.fetchval("SELECT next_retry_at FROM specified") == now + timedelta(seconds=5)
        assert await app.fetchval("SELECT retry_delay(1, 'exponential'::text)") == timedelta(seconds=30)


async def test_a23_the_integration_logs_are_a_view(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, app: Connection, failing: Story
) -> None:
    entry = await failing()
    sql = "SELECT * FROM integration_logs WHERE id = $1"
    (log,) = await app.fetch(sql, UUID(entry["log_id"]))
    assert (log["status"], log["event_type"], log["external_system"]) == ("error", "invoice.paid", "erp")
    assert (log["request_body"], log["response_status"]) == ('{"order": 7}', 503)
    assert (log["error_message"], log["error_stack"], log["note"]) == (
        entry["error_message"],
        entry["error_stack"],
        None,
    )
    clock.advance(5)
    await redrive.work()
    receiver.usual = Answer(200, b'{"booked":"\xc5\x82"}')
    clock.advance(30)
    await redrive.work()
    (log,) = await app.fetch(sql, UUID(entry["log_id"]))
    assert (log["status"], log["note"]) == ("success", "Succeeded on retry attempt 2")
    assert log["response_body"] == '{"booked":"ł"}'


async def test_a23_the_views_show_an_org_only_its_own(
    redrive: Installation, app: Connection, failing: Story, dead: Story
) -> None:
    await dead()
    await failing()
    other = await redrive.other_org("other")
    (other_id,) = await redrive.stores.engine.fetch("find_org", "other")
    await other.get("/v1/stats")
    for view in ("integration_retry_queue", "integration_logs"):
        assert await app.fetchval(f"SELECT count(*) FROM {view}") == 2
        await app.execute("SELECT set_config('redrive.org', $1, false)", str(other_id["org_id"]))
        assert await app.fetchval(f"SELECT count(*) FROM {view}") == 0
        await app.execute("SELECT set_config('redrive.org', '', false)")
        assert await app.fetchval(f"SELECT count(*) FROM {view}") == 0
        await app.execute("SELECT set_config('redrive.org', $1, false)", str(redrive.org_id))


async def test_a23_the_database_refuses_an_open_dead_letter_of_a_task_that_is_not_dead(
    redrive: Installation, app: Connection, failing: Story, dead: Story
) -> None:
    letter, entry = await dead(), await failing()
    entry_id, letter_id = UUID(entry["id"]), UUID(letter["id"])
    refusal = "is open, but its task is not dead"
    with pytest.raises(asyncpg.CheckViolationError, match=refusal):
        await app.execute(LETTER, entry_id)
    # Nor may the task of an open letter come back to life without it, or a letter be opened above a living task.
    alive = "UPDATE redrive.task SET state = 'waiting', reason = NULL, generation = generation + 1 WHERE id = $1"
    with pytest.raises(asyncpg.CheckViolationError, match=refusal):
        await app.execute(alive, letter_id)
    await redrive.api.post(f"/v1/dead-letters/{letter_id}/retry")
    with pytest.raises(asyncpg.CheckViolationError, match=refusal):
        await app.execute("UPDATE redrive.dead_letter SET state = 'open' WHERE task_id = $1", letter_id)
    found: list[Any] = await app.fetch("SELECT id FROM integration_retry_queue WHERE in_dlq")
    assert found == []
