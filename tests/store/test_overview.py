"""What `redrive top` is told, where there is more than it looks at."""

from datetime import timedelta
from uuid import UUID

import pytest

from redrive.core.outcome import Category, Failure
from redrive.store import overview as top
from redrive.store.orgs import new_id
from redrive.store.overview import overview
from support.engine import Engine

# Until the janitor folds them.
IN_ALL_SHARDS = """
    INSERT INTO redrive.letter_count AS c (org_id, state, fingerprint, shard, n)
    SELECT d.org_id, d.state, d.fingerprint, shard, 100
      FROM (SELECT DISTINCT org_id, state, fingerprint FROM redrive.dead_letter WHERE error_message = $1) d,
           generate_series(0, 63) shard
    ON CONFLICT (org_id, state, fingerprint, shard) DO UPDATE SET n = c.n + excluded.n"""


async def _six_streams_in_two_queues(engine: Engine, org_id: UUID) -> None:
    for n in range(6):
        await engine.endpoint(f"hook {n}", org=org_id)
    await engine.accept(org_id=org_id)
    await engine.sql.execute(
        "UPDATE redrive.task t SET queue = 'rabbitmq' FROM redrive.endpoint e"
        " WHERE t.org_id = $1 AND e.id = t.endpoint_id AND e.name IN ('hook 0', 'hook 3', 'hook 5')",
        org_id,
    )


async def test_since_when_work_of_one_org_is_due_is_told_whatever_others_have(
    live: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, middle, after = live.org_id, await live.org("middle"), await live.org("after")
    for org_id in (before, middle, after):
        await _six_streams_in_two_queues(live, org_id)
    hour = timedelta(hours=1)
    first, last = await live.sql.fetch(
        "SELECT t.id FROM redrive.task t JOIN redrive.endpoint e ON e.id = t.endpoint_id"
        " WHERE t.org_id = $1 AND e.name IN ('hook 4', 'hook 5') ORDER BY e.name",
        middle,
    )
    # In each of the two queues it looks at one stream of those before, at its own, and at one of those behind.
    monkeypatch.setattr(top, "MAX_STREAMS_DUE", 2 * (1 + 3 + 1))
    for place, task in enumerate((first, last), start=2):
        await live.sql.execute(
            "UPDATE redrive.task SET due_at = due_at - $2::interval WHERE id = $1", *task, place * hour
        )
        seen = await overview(live.db, (middle, "middle"), live.clock)
        assert seen.oldest_due_s == pytest.approx(place * 3600, abs=60)
    for org_id in (before, after):
        seen = await overview(live.db, (org_id, "another"), live.clock)
        assert seen.oldest_due_s == pytest.approx(0, abs=60)


async def test_a_cause_that_was_counted_in_all_shards_hides_no_other(live: Engine) -> None:
    await live.endpoint()
    for n, message in enumerate(("few", "more", "most"), start=1):
        await live.accept_many(n)
        for job in await live.claim():
            await live.kill(job, failure=Failure(Category.CLIENT_ERROR, message))
    await live.sql.execute(IN_ALL_SHARDS, "most")
    for org in (None, (live.org_id, "default")):
        seen = await overview(live.db, org, live.clock)
        assert [(group["error_message"], group["n"]) for group in seen.groups] == [
            ("most", 6_403),
            ("more", 2),
            ("few", 1),
        ]


async def test_a_cause_that_was_counted_in_all_shards_is_not_hidden_by_many_bigger_counts(live: Engine) -> None:
    await live.endpoint()
    messages = [f"cause {chr(ord('a') + n // 26)}{chr(ord('a') + n % 26)}" for n in range(50)]
    await live.accept_many(51)
    for job, message in zip(await live.claim(), ["in shards", *messages], strict=True):
        await live.kill(job, failure=Failure(Category.CLIENT_ERROR, message))
    await live.sql.execute(IN_ALL_SHARDS, "in shards")
    await live.sql.execute(
        "UPDATE redrive.letter_count c SET n = 200 FROM redrive.dead_letter d"
        " WHERE d.fingerprint = c.fingerprint AND d.error_message LIKE 'cause %'"
    )
    seen = await overview(live.db, None, live.clock)
    assert (seen.groups[0]["error_message"], seen.groups[0]["n"]) == ("in shards", 6_401)
    assert [group["n"] for group in seen.groups[1:]] == [200] * 9


async def test_workers_that_are_all_busy_with_one_endpoint_show_all_they_have_in_hand(live: Engine) -> None:
    await live.endpoint()
    await live.endpoint("another", event_types=("never",))
    await live.accept_many(1_300)
    crashed, *others = workers = [new_id() for _ in range(3)]
    for worker_id in workers:
        assert len(await live.claim(400, worker_id=worker_id)) == 400
    await live.sql.executemany(
        "INSERT INTO redrive.worker VALUES ($1, now(), now() - $2 * interval '1 min', 'a', 1, '1', '{http}', 400)",
        [(crashed, 5), *((worker_id, 0) for worker_id in others)],
    )
    seen = await overview(live.db, None, live.clock)
    assert {one.worker.id: one.leases for one in seen.workers} == dict.fromkeys(workers, 400)


async def test_of_one_endpoint_no_more_is_looked_at_than_all_workers_try_at_once(
    live: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits at one must not stand before what is in flight at the next."""
    monkeypatch.setattr(top, "MAX_LEASES", 9)
    await live.endpoint("first", event_types=("much",))
    await live.endpoint("second", event_types=("one",))
    await live.accept(event_type="one")
    worker_id = new_id()
    await live.claim(1, worker_id=worker_id)
    await live.accept_many(20, event_type="much")
    await live.sql.execute("INSERT INTO redrive.worker VALUES ($1, now(), now(), 'a', 1, '1', '{http}', 4)", worker_id)
    (seen,) = (await overview(live.db, None, live.clock)).workers
    assert seen.leases == 1
