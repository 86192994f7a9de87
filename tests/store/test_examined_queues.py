"""What `redrive doctor` sees of work: what nobody does, what is held, what fails, what stands still."""

import re
import shlex
from datetime import timedelta
from functools import partial

from redrive.core.findings import Severity
from redrive.store.examinations.looking import Limits, Looking
from redrive.store.examinations.queue import QUEUE
from redrive.store.pausing import PauseScope
from support.engine import PERSON, Engine, Shared

from .examined import findings, in_two_hours, made


async def test_work_that_nobody_does_is_found_by_queue_and_with_what_to_start(live: Engine) -> None:
    await live.endpoint()
    await live.accept()
    await live.sql.execute("SELECT redrive.enqueue('edi.orders', '{}')")
    later = await in_two_hours(live)
    (nobody,) = findings(await made(live.url, QUEUE[:2], now=later))
    assert "No worker is at work" in nobody.what
    await live.sql.execute(
        "INSERT INTO redrive.worker VALUES ($1, $2, $2, 'a', 1, '1', '{http}', 5),"
        " ($3, $2, $2 - interval '1 hour', 'b', 2, '1', '{handler:edi.orders}', 5)",
        *(live.org_id, later, await live.endpoint("other")),
    )
    found = findings(await made(live.url, QUEUE[:2], now=later))
    said = [finding.what for finding in found]
    assert any("No worker serves the queue 'handler:edi.orders'" in what for what in said)
    assert any("Nothing was heard of the worker b (process 2)" in what for what in said)
    late = (
        "Work is due since 2 h (queue 'http', org 'default', endpoint 'hook'), and in 1 stream since more than 5 min."
    )
    assert late in said  # more workers like those at work would not help the other queue
    assert len(said) == 3
    stopped = Looking(live.url, Limits(now=later), nobody_runs=True)
    seen = [await each.look(stopped) for each in QUEUE[:2]]
    await stopped.close()
    assert [list(each.findings) for each in seen] == [[], []]


async def test_where_all_workers_fell_silent_nothing_is_delivered_also_before_work_is_late(live: Engine) -> None:
    a_worker = (
        "INSERT INTO redrive.worker VALUES ($1, $2, $2::timestamptz - make_interval(secs => $3), 'a', 1, '1', '{}', 5)"
    )
    now = await in_two_hours(live)
    for worker_id, silent_s in ((live.org_id, 61), (await live.endpoint(), 3600)):
        await live.sql.execute(a_worker, worker_id, now, silent_s)
    gravest, *others = findings(await made(live.url, QUEUE[:1], now=now))
    assert (gravest.severity, gravest.what) == (
        Severity.PROBLEM,
        "No worker is at work: the last was heard of 61 s ago.",
    )
    assert gravest.why == "Nothing is delivered."
    assert [other.severity for other in others] == [Severity.WARNING] * 2
    await live.sql.execute("UPDATE redrive.worker SET seen_at = $2 WHERE id = $1", live.org_id, now)
    assert [each.severity for each in findings(await made(live.url, QUEUE[:1], now=now))] == [Severity.WARNING]


async def test_work_that_waits_behind_what_busy_workers_try_is_late_all_the_same(live: Engine) -> None:
    await live.endpoint()
    await live.accept_many(3)
    await live.sql.execute("UPDATE redrive.task SET due_at = due_at - interval '2 hours'")
    assert len(await live.claim(2)) == 2
    a_worker = "INSERT INTO redrive.worker VALUES ($1, now(), now(), 'a', 1, '1', '{http}', 2)"
    await live.sql.execute(a_worker, live.org_id)
    examined = await made(live.url, QUEUE[1:2])
    assert examined["due"].saw == "The oldest due task has waited 2 h."
    (late,) = findings(examined)
    assert late.what.startswith("Work is due since 2 h (queue 'http', org 'default', endpoint 'hook')")
    await live.claim()
    assert (await made(live.url, QUEUE[1:2]))["due"].saw == "Nothing is due."


async def test_what_waits_for_its_endpoints_limit_is_late_by_that_unless_nobody_is_at_work(live: Engine) -> None:
    await live.endpoint(rate_per_s=5)
    await live.accept()
    later = await in_two_hours(live)
    (found,) = findings(examined := await made(live.url, QUEUE[:2], now=later))
    assert found.what == "No worker is at work, and work is due since 2 h (queues: http)."
    assert examined["due"].saw == (
        "The oldest due task has waited 2 h. It waits for its endpoint: a breaker, a limit, or a hub."
    )
    a_worker = "INSERT INTO redrive.worker VALUES ($1, $2, $2, 'a', 1, '1', '{http}', 5)"
    await live.sql.execute(a_worker, live.org_id, later)
    assert findings(await made(live.url, QUEUE[:2], now=later)) == []


async def test_what_is_for_people_is_found_where_no_process_can_send_it(live: Engine) -> None:
    """It needs no worker, so that is not what is missing."""
    await live.endpoint()
    await live.accept()
    later = await in_two_hours(live)
    await live.sql.execute("UPDATE redrive.task SET queue = 'notice.http'")
    assert findings(await made(live.url, QUEUE[:1], now=later)) == []
    for queue, missing in (("notice.mail", "REDRIVE_SMTP_URL"), ("apprise", "redrive worker")):
        await live.sql.execute("UPDATE redrive.task SET queue = $1", queue)
        (found,) = findings(await made(live.url, QUEUE[:1], now=later))
        assert missing in found.fix
    a_worker = "INSERT INTO redrive.worker VALUES ($1, $2, $2, 'a', 1, '1', '{http}', 5)"
    await live.sql.execute(a_worker, live.org_id, later)
    (unserved,) = findings(await made(live.url, QUEUE[:1], now=later))
    assert "No worker serves the queue 'apprise'" in unserved.what
    assert "redrive[notify]" in unserved.fix


async def test_what_is_held_open_or_dead_is_found_with_the_command_for_it(live: Engine) -> None:
    quiet = await live.endpoint("it's; quiet")
    broken = await live.endpoint("broken", event_types=("never",))
    await live.accept_many(3)
    for job in await live.claim(2):
        await live.kill(job)
    await live.change_endpoint(quiet, disabled=True)
    await live.claim()  # meets what is shut, and holds it
    await live.sql.execute(
        "INSERT INTO redrive.endpoint_state (org_id, endpoint_id, breaker, breaker_since)"
        " VALUES ($1, $2, 'open', clock_timestamp())",
        *(live.org_id, broken),
    )
    seen = await made(live.url, QUEUE[2:], now=await in_two_hours(live), open_letters=1, unrolled_s=9999)
    assert seen["holds"].saw == "Paused or disabled: 1; held by one at most: 1 task."
    assert seen["dead letters"].saw == "Open: 2 dead letters in 1 org."
    fixes = [finding.fix for finding in findings(seen)]
    # Names are anybody's: pasted into a shell, each stays one word.
    [enable] = [fix.partition(": ")[2] for fix in fixes if fix.startswith("When it can receive again: ")]
    assert shlex.split(enable) == ["redrive", "endpoints", "enable", "it's; quiet"]
    assert "See what it answers: redrive endpoints show broken" in fixes
    assert any(fix.startswith("redrive dead list --fingerprint ") for fix in fixes)
    assert "Workers tell them: start one (`redrive worker`)." in fixes  # of the dead letters
    assert len(fixes) == 4


async def test_a_breaker_that_does_not_close_is_found_whatever_its_last_ramp_changed(live: Engine) -> None:
    """Each ramp comes within five minutes of the one before, and begins its state anew."""
    broken = await live.endpoint("broken")
    now = await live.sql.fetchval("SELECT clock_timestamp()")
    ramp = partial(live.db.fetch, "begin_ramp")
    opened = partial(live.db.fetch, "open_breaker")
    endpoint = (live.org_id, broken)
    await opened(now - timedelta(minutes=20), *endpoint, "closed", "Too many tries failed.")
    for ago_min in (15, 10, 5):
        assert await ramp(now - timedelta(minutes=ago_min), *endpoint)
        assert await opened(now - timedelta(minutes=ago_min - 1), *endpoint, "ramping", "Too many tries failed.")
    (found,) = findings(await made(live.url, QUEUE[3:4], now=now))
    assert found.what == (
        "The breaker of 'broken' ('default') is open, and is not closed since 20 min; 0 tasks held:"
        " Too many tries failed."
    )
    assert await ramp(now, *endpoint)
    (found,) = findings(await made(live.url, QUEUE[3:4], now=now))
    assert "is ramping, and is not closed since 20 min" in found.what
    assert findings(await made(live.url, QUEUE[3:4], now=now - timedelta(minutes=16))) == []


async def test_the_biggest_cause_is_told_also_where_it_was_counted_in_many_shards(live: Engine) -> None:
    """Until the janitor folds them, each of its counts is smaller than those of others."""
    await live.sql.execute("INSERT INTO redrive.counter VALUES ($1, 'dead.open', -1, 1900)", live.org_id)
    await live.sql.execute(
        "INSERT INTO redrive.letter_count (org_id, state, fingerprint, shard, n)"
        " SELECT $1::uuid, 'open', 'big', shard, 50 FROM generate_series(0, 19) shard"
        " UNION ALL SELECT $1, 'open', 'small ' || n, -1, 60 FROM generate_series(1, 15) n",
        live.org_id,
    )
    (found,) = findings(await made(live.url, QUEUE[4:5], open_letters=1))
    assert found.what == "The org 'default' has 1900 open dead letters; 1000 of them have one cause."


async def test_a_job_that_does_not_run_or_fails_is_found_and_what_nobody_rolls_up(live: Engine) -> None:
    await live.endpoint()
    await live.accept()
    await live.sql.execute("""
        INSERT INTO redrive.job (name, every_s, since, seen_at, left_at, succeeded_at, failed_at, error)
        SELECT name, 10, now(), now(), left_at, succeeded_at, failed_at, error
          FROM (VALUES ('stale', NULL::timestamptz, now(), NULL::timestamptz, NULL), ('left', now(), now(), NULL, NULL),
                       ('failing', NULL, now() + interval '119.5 minutes', now() + interval '2 hours', 'boom'),
                       ('fine', NULL, now() + interval '119.9 minutes', NULL, NULL))
            AS j(name, left_at, succeeded_at, failed_at, error)""")
    said = [f.what for f in findings(await made(live.url, QUEUE[5:], now=await in_two_hours(live)))]
    assert any("'stale' has not run well for 2 h" in what for what in said)
    assert any("'failing' failed" in what for what in said)
    assert any("is not rolled up" in what for what in said)
    assert len(said) == 3


async def test_what_is_paused_is_found_with_how_to_let_it_go_on(live: Engine) -> None:
    endpoint_id = await live.endpoint("it's; quiet")
    await live.accept()
    for scope, of in ((PauseScope.INSTALLATION, None), (PauseScope.ORG, None), (PauseScope.ENDPOINT, endpoint_id)):
        await live.pause(scope, of)
    await live.claim()  # meets what is shut, and holds it
    found = findings(await made(live.url, QUEUE[2:4]))
    assert {finding.what.partition(" is paused since ")[0] for finding in found} == {
        "The installation",
        "The org 'default'",
        """The endpoint "it's; quiet" of 'default'""",
    }
    assert all(f" by {PERSON.actor} " in finding.what for finding in found)
    assert all(finding.what.endswith("and holds 1 task.") for finding in found)
    assert sorted(shlex.split(finding.fix) for finding in found) == [
        ["redrive", "resume"],
        ["redrive", "resume", "--endpoint", "it's; quiet"],
        ["redrive", "resume", "--installation"],
    ]


async def test_a_storm_of_failures_is_found_with_whom_to_pause(live: Engine) -> None:
    """Of tries, not of tasks: what fails again and again keeps workers from the rest."""
    till, other = await live.endpoint("it's; quiet"), await live.endpoint("other", event_types=("never",))
    await live.sql.execute(
        "INSERT INTO redrive.endpoint_history VALUES ($1, $2, clock_timestamp(), 10, 95, 0, 0),"
        " ($1, $3, clock_timestamp(), 5, 5, 0, 0), ($1, $3, clock_timestamp() - interval '1 hour', 0, 900, 0, 0)",
        *(live.org_id, till, other),
    )
    assert findings(await made(live.url, QUEUE[2:4], failed_tries=101)) == []
    (found,) = findings(await made(live.url, QUEUE[2:4]))
    assert found.what.startswith('100 of 115 tries of the last ten minutes failed, 95 of them at "it\'s; quiet"')
    pause, resume = (part.partition("redrive ")[2] for part in found.fix.rstrip(".").split("; what is held "))
    assert shlex.split(pause) == ["pause", "--endpoint", "it's; quiet"]
    assert shlex.split(resume) == ["resume", "--endpoint", "it's; quiet"]


async def test_an_operation_that_stands_still_is_found_with_what_moves_it(
    live: Engine, shared_database: Shared
) -> None:
    await shared_database.owner.execute(
        """
        INSERT INTO redrive.operation
               (org_id, id, subject, action, state, note, actor, total, dispatched, succeeded, step_at,
                created_at, updated_at)
        SELECT $1, redrive.uuid7(), 'dead_letters', action, state, note, 'somebody', 9, 2, 2, step_at, now(), now()
          FROM (VALUES ('retry', 'paused', 'Too many of them failed.', now()), ('delete', 'paused', NULL, now()),
                       ('resolve', 'running', NULL, now() - interval '1 hour'), ('ignore', 'running', NULL, now()))
            AS o(action, state, note, step_at)""",
        live.org_id,
    )
    found = {finding.what.partition(" (")[2]: finding for finding in findings(await made(live.url, QUEUE[5:]))}
    assert set(found) == {
        "retry, org 'default', 2 of 9 done) paused itself: Too many of them failed.",
        "resolve, org 'default', 2 of 9 done) has stood still for 60 min.",
    }
    by_itself = next(finding for what, finding in found.items() if what.startswith("retry"))
    assert re.fullmatch(r"redrive operations resume (\S+), or redrive operations cancel \1", by_itself.fix)
