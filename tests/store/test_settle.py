"""Settling: what was decided is written once, under the fence, together with the attempt, the event and the letter."""

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from redrive.core.decide import AwaitPerson, Decision, Die, Reason, RetryIn, Succeed
from redrive.core.fingerprint import fingerprint
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import NO_EXCHANGE, Exchange, Job, Released, Settlement
from redrive.core.redact import redact_url
from redrive.store.db import Database
from redrive.store.orgs import new_id
from redrive.store.tasks import MAX_ERROR_CHARS, MAX_STACK_CHARS, Tasks
from support.engine import REFUSED, UNAVAILABLE, Engine, ManualClock


def settlement(job: Job, decision: Decision | Released) -> Settlement:
    outcome = Success(200) if isinstance(decision, Succeed) else None if isinstance(decision, Released) else UNAVAILABLE
    return Settlement(job, outcome, decision, NO_EXCHANGE, 0.1)


async def test_a_success_closes_the_task_and_keeps_the_exchange(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    event_id = await engine.accept()
    job = await engine.claim_one()
    clock.advance(2)
    exchange = Exchange("http://x/", '{"a": "b"}', 201, '{"c": "d"}', b"\x00body\xff", truncated=True)
    settled = await engine.settle(job, Success(201), Succeed(), exchange)
    assert (settled.held_lease, settled.next_due_at) == (True, None)
    task, event = await engine.task(job.id), await engine.event(event_id)
    assert (task["state"], task["attempts"], task["worker_id"]) == ("succeeded", 1, None)
    assert (event["status"], event["open_tasks"], event["delivered_at"]) == ("delivered", 0, clock.now())
    (attempt,) = await engine.attempts(job.id)
    assert (attempt["result"], attempt["number"], attempt["status_code"]) == ("succeeded", 1, 201)
    assert (attempt["url"], attempt["request_headers"], attempt["response_headers"]) == exchange[:2] + exchange[3:4]
    assert (attempt["response_body"], attempt["truncated"]) == (b"\x00body\xff", True)
    assert attempt["ended_at"] - attempt["started_at"] == timedelta(seconds=0.25)


@pytest.mark.parametrize(
    ("decision", "state", "delay_s"),
    [(RetryIn(timedelta(seconds=7.5)), "waiting", 7.5), (AwaitPerson(), "waiting", None)],
)
async def test_a_failure_that_is_retried_waits_from_the_moment_it_ended(
    engine: Engine, clock: ManualClock, decision: Decision, state: str, delay_s: float | None
) -> None:
    await engine.endpoint()
    event_id = await engine.accept()
    job = await engine.claim_one()
    failed_at = clock.advance(3)
    settled = await engine.settle(job, UNAVAILABLE, decision)
    task = await engine.task(job.id)
    assert (task["state"], task["attempts"], task["last_failed_at"]) == (state, 1, failed_at)
    if delay_s is None:
        assert await engine.sql.fetchval("SELECT due_at = 'infinity' FROM redrive.task WHERE id = $1", job.id)
        assert settled.next_due_at is None
        clock.advance(10**8)
        assert await engine.claim() == []
    else:
        assert task["due_at"] == settled.next_due_at == failed_at + timedelta(seconds=delay_s)
    assert (await engine.event(event_id))["status"] == "queued"


async def test_what_was_given_back_is_due_at_once_and_counts_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.settle(job, None, Released("The worker was stopped.", possible_duplicate=True))
    task = await engine.task(job.id)
    assert (task["state"], task["attempts"], task["due_at"]) == ("waiting", 0, clock.now())
    assert (task["first_failed_at"], task["last_failed_at"]) == (None, None)
    (attempt,) = await engine.attempts(job.id)
    assert (attempt["result"], attempt["possible_duplicate"]) == ("released", True)
    assert attempt["error_message"] == "The worker was stopped."
    assert (await engine.claim_one()).attempts == 0


async def test_a_death_is_a_dead_letter_with_the_fingerprint_of_its_error(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint(external_system="SAP")
    event_id = await engine.accept("invoice.paid")
    died_at = clock.advance(1)
    job = await engine.claim_one()
    await engine.kill(job)
    task, event, letter = await engine.task(job.id), await engine.event(event_id), await engine.letter(job.id)
    assert (task["state"], task["reason"]) == ("dead", "permanent")
    assert (event["status"], event["failed_at"], event["dead_tasks"]) == ("failed", died_at, 1)
    assert letter is not None
    assert (letter["state"], letter["reason"], letter["category"]) == ("open", "permanent", "client_error")
    assert (letter["event_type"], letter["external_system"]) == ("invoice.paid", "SAP")
    assert letter["fingerprint"] == fingerprint("http", str(endpoint_id), "client_error", REFUSED.message)
    assert (letter["error_message"], letter["failed_at"], letter["generation"]) == (REFUSED.message, died_at, 0)
    assert letter["first_failed_at"] == letter["created_at"] == died_at


@pytest.mark.parametrize("reason", [Reason.EXPIRED, Reason.EXHAUSTED])
async def test_a_death_without_a_try_says_so_and_counts_no_try(engine: Engine, reason: Reason) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    await engine.settle(job, None, Die(reason, Category.TIMEOUT))
    assert ((await engine.task(job.id))["reason"], (await engine.task(job.id))["attempts"]) == (reason.value, 0)
    letter = await engine.letter(job.id)
    assert letter is not None
    assert letter["error_message"].startswith("No further try was made: ")


async def test_text_that_postgresql_refuses_is_stored_readably(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    failure = Failure(Category.UNKNOWN, "a\x00b\ud800c" + "x" * 5000, stack="s\x00\udfff" + "y" * 20_000)
    await engine.kill(job, failure=failure)
    (attempt,) = await engine.attempts(job.id)
    assert attempt["error_message"].startswith("a\\0b?cx")
    assert attempt["error_stack"].startswith("s\\0?y")
    assert len(attempt["error_message"]) <= MAX_ERROR_CHARS + 1  # a NUL is shown by two characters
    assert len(attempt["error_stack"]) <= MAX_STACK_CHARS + 1
    letter = await engine.letter(job.id)
    assert letter is not None
    assert letter["error_message"] == attempt["error_message"]


async def test_a_batch_mixes_every_kind_of_decision(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept_many(5)
    jobs = await engine.claim()
    decisions: list[Decision | Released] = [
        Succeed(),
        RetryIn(timedelta(seconds=5)),
        AwaitPerson(),
        Die(Reason.EXHAUSTED, Category.SERVER_ERROR),
        Released("no time"),
    ]
    settled = await engine.tasks.settle([settlement(job, d) for job, d in zip(jobs, decisions, strict=True)])
    assert [one.held_lease for one in settled] == [True] * 5
    states = [(await engine.task(job.id))["state"] for job in jobs]
    assert states == ["succeeded", "waiting", "waiting", "dead", "waiting"]


async def test_settling_again_because_the_answer_was_lost_changes_nothing_and_is_no_lost_lease(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept_many(3)
    jobs = await engine.claim()
    batch = [
        settlement(jobs[0], Succeed()),
        settlement(jobs[1], RetryIn(timedelta(seconds=5))),
        settlement(jobs[2], Die(Reason.EXHAUSTED, Category.SERVER_ERROR)),
    ]
    await engine.tasks.settle(batch)
    before = [dict(row) for row in await engine.sql.fetch("SELECT * FROM redrive.task ORDER BY id")]
    again = await engine.tasks.settle(batch)
    assert [one.held_lease for one in again] == [True] * 3
    assert [dict(row) for row in await engine.sql.fetch("SELECT * FROM redrive.task ORDER BY id")] == before
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.attempt") == 3
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.attempt WHERE late_at IS NOT NULL") == 0


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["succeeded", "succeeded"], "delivered"),
        (["succeeded", "dead"], "failed"),
        (["dead", "succeeded"], "failed"),
        (["dead", "dead"], "failed"),
        (["succeeded", "waiting"], "queued"),
        (["dead", "waiting"], "queued"),
    ],
)
async def test_an_event_ends_when_its_last_task_does(engine: Engine, states: list[str], expected: str) -> None:
    for name in "ab":
        await engine.endpoint(name)
    event_id = await engine.accept()
    for job, state in zip(await engine.claim(), states, strict=True):
        assert (await engine.event(event_id))["status"] == "queued"
        await {"succeeded": engine.succeed, "dead": engine.kill, "waiting": engine.fail}[state](job)
    event = await engine.event(event_id)
    assert event["status"] == expected
    assert (event["open_tasks"], event["dead_tasks"]) == (states.count("waiting"), states.count("dead"))
    assert (event["delivered_at"] is not None) == (expected == "delivered")
    assert (event["failed_at"] is not None) == (expected == "failed")


async def test_siblings_settled_at_once_in_opposite_order_end_their_events_right(
    empty_url: str, engine: Engine
) -> None:
    """Two workers hold one task each of the same fifty events, and settle them from both ends."""
    for name in "ab":
        await engine.endpoint(name)
    for _ in range(4):
        event_ids = await engine.accept_many(50)
        jobs = sorted(await engine.claim(100), key=lambda job: job.event_id)
        halves = [jobs[0::2], jobs[1::2][::-1]]
        db = await Database.open(empty_url, role="redrive_engine", size=2)
        try:
            tasks = Tasks(db, engine.clock)
            batches = [
                [
                    settlement(j, Succeed() if n % 2 else Die(Reason.EXHAUSTED, Category.TIMEOUT))
                    for n, j in enumerate(half)
                ]
                for half in halves
            ]
            answers = await asyncio.gather(*(tasks.settle(batch) for batch in batches))
        finally:
            await db.close()
        assert all(settled.held_lease for answer in answers for settled in answer)
        ended = await engine.counts(
            "SELECT status || ' ' || dead_tasks, count(*) FROM redrive.event_entry WHERE id = ANY ($1) GROUP BY 1",
            event_ids,
        )
        died = Counter(job.event_id for half in halves for n, job in enumerate(half) if not n % 2)
        dead = Counter(died[event_id] for event_id in event_ids)
        assert ended == {f"{'failed' if n else 'delivered'} {n}": times for n, times in dead.items()}


async def test_a_batch_broken_off_by_a_deadlock_is_settled_all_the_same(engine: Engine) -> None:
    """Somebody locks two tasks in the other order. The server refuses who waited first: the batch, half written.

    It looks once, a second after somebody began to wait: so the other begins clearly later, but not too late, and waits
    within the server.
    """
    await engine.endpoint()
    await engine.accept_many(3)
    dies = Die(Reason.EXHAUSTED, Category.TIMEOUT)
    jobs = await engine.claim()
    first, second = jobs[0].id, jobs[1].id
    batch = [settlement(job, dies if job.id in (first, second) else Succeed()) for job in jobs]
    lock_when_somebody_waits = f"""DO $$ BEGIN
      WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted) LOOP PERFORM pg_sleep(0.01); END LOOP;
      PERFORM pg_sleep(0.4);
      PERFORM FROM redrive.task WHERE id = '{first}' FOR UPDATE;
    END $$"""
    async with engine.sql.acquire() as other:
        async with other.transaction():
            await other.execute("SELECT FROM redrive.task WHERE id = $1 FOR UPDATE", second)
            settling = asyncio.create_task(engine.tasks.settle(batch))
            await other.execute(lock_when_somebody_waits)
        assert all(settled.held_lease for settled in await settling)
    statuses = await engine.counts("SELECT status, count(*) FROM redrive.event_entry GROUP BY 1")
    assert statuses == {"failed": 2, "delivered": 1}
    assert await engine.sql.fetchval("SELECT count(*) FROM redrive.attempt WHERE late_at IS NOT NULL") == 0


async def test_a_job_of_nobody_changes_nothing(engine: Engine) -> None:
    await engine.endpoint()
    await engine.accept()
    job = await engine.claim_one()
    for forged in (job._replace(id=new_id()), job._replace(fence=2), job._replace(org_id=new_id())):
        assert not (await engine.succeed(forged)).held_lease
    assert (await engine.task(job.id))["state"] == "leased"


async def test_disabling_an_endpoint_is_done_once_and_audited(engine: Engine, clock: ManualClock) -> None:
    endpoint_id = await engine.endpoint()
    assert await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "It answered 410 Gone.")
    assert not await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "again")
    row = await engine.sql.fetchrow(
        "SELECT disabled_at, disabled_reason FROM redrive.endpoint WHERE id = $1", endpoint_id
    )
    assert row is not None
    assert tuple(row) == (clock.now(), "It answered 410 Gone.")
    audit = await engine.sql.fetch("SELECT actor, because FROM redrive.audit WHERE action = 'endpoint.disable'")
    assert [tuple(entry) for entry in audit] == [("engine", "It answered 410 Gone.")]


async def test_what_an_old_address_answered_does_not_disable_an_endpoint_that_leads_elsewhere(engine: Engine) -> None:
    endpoint_id = await engine.endpoint(url="http://127.0.0.1:9/old?key=1")
    old = redact_url("http://127.0.0.1:9/old?key=1")
    await engine.change_endpoint(endpoint_id, url="http://127.0.0.1:9/new")
    assert not await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "It answered 410 Gone.", tried_url=old)
    new = "http://127.0.0.1:9/new"
    assert await engine.tasks.disable_endpoint(engine.org_id, endpoint_id, "It answered 410 Gone.", tried_url=new)
    assert not await engine.tasks.disable_endpoint(engine.org_id, new_id(), "It answered 410 Gone.", tried_url=new)


async def test_a_result_that_the_database_refuses_holds_up_nobody(engine: Engine) -> None:
    """It is settled without what came back: the task must not be tried again for ever."""
    await engine.endpoint()
    await engine.accept_many(3)
    jobs = await engine.claim(3)
    spoilt = Exchange("http://127.0.0.1/\x00", None, 200, None, b"ok")
    settled = await engine.tasks.settle(
        [Settlement(job, Success(200), Succeed(), spoilt if job is jobs[1] else NO_EXCHANGE, 0.1) for job in jobs]
    )
    assert [one.held_lease for one in settled] == [True] * 3
    assert {(await engine.task(job.id))["state"] for job in jobs} == {"succeeded"}
    assert [a["status_code"] for a in await engine.attempts(jobs[1].id)] == [200]


async def test_what_a_program_calls_a_system_keeps_no_task_from_dying_however_long_it_is(
    engine: Engine, clock: ManualClock
) -> None:
    """Handed in by SQL nobody looks how long it is, and dead letters are found by it: an index takes 2 700 bytes."""
    await engine.endpoint()
    name = "".join(map(chr, random.Random(7).choices(range(0x3400, 0x9FFF), k=4_000)))  # that cannot be compressed
    await engine.accept_many(4, external_system=name)
    dies, skipped, *rest = await engine.claim()
    await engine.tasks.settle([settlement(dies, Die(Reason.EXHAUSTED, Category.SERVER_ERROR))])
    for job in (skipped, *rest):
        await engine.fail(job)
    assert await engine.skip(skipped.id) is None
    many, expired = (job.id for job in rest)
    await engine.db.fetch("skip_many", clock.now(), engine.org_id, [many], ["timeout"], ["f"], ["e"])
    await engine.db.fetch(
        "expire_many", clock.now(), engine.org_id, [expired], [clock.now()], ["f"], ["e"], ["timeout"]
    )
    for task_id in (dies.id, skipped.id, many, expired):
        letter = await engine.letter(task_id)
        assert letter is not None
        assert letter["external_system"] == name[:256]
