"""What `redrive top` is told, where there is more than it looks at."""

from datetime import timedelta
from uuid import UUID

import pytest

from redrive.store import overview as top
from redrive.store.overview import overview
from support.engine import Engine


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
