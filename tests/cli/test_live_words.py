"""What people read in `redrive top` and `redrive tail`: each kind of row and of transition, whoever wrote the texts."""

from collections.abc import Mapping
from uuid import UUID

import asyncpg
import pytest

from redrive.cli.tail import _shown
from redrive.cli.top_view import lines, shape
from redrive.store.clock import DatabaseClock
from redrive.store.overview import overview
from redrive.store.pausing import PauseScope

from .world import World

AT = {"at": "2026-11-18T09:14:02.1Z"}
EVIL = "a\x1b[31m\nb"  # control characters and line ends are shown, not obeyed

HAPPENED = """
INSERT INTO redrive.alert (org_id, id, rule, severity, subject_kind, subject_name, opened_at, text, saw, notice_id)
SELECT $1, redrive.uuid7(), rule, 'error', kind, name, clock_timestamp() - interval '3 min', 'a text', '{}',
       redrive.uuid7()
  FROM (VALUES ('failure_rate', 'org', NULL), ('endpoint_open', 'endpoint', 'billing')) AS a(rule, kind, name)"""
TRIED = "INSERT INTO redrive.endpoint_history VALUES ($1, $2, clock_timestamp(), 3, 1, 48, 20)"

# In the minute that goes on, too: it may be over when it is looked at.
COUNTED = """
INSERT INTO redrive.tally (org_id, minute, created, events_delivered, events_failed)
SELECT $1, date_trunc('minute', clock_timestamp()) - back * interval '1 minute', 4, 2, 1
  FROM generate_series(0, 1) AS back"""


async def test_top_shows_what_fires_and_how_endpoints_do_in_columns(world: World) -> None:
    engine = await asyncpg.connect(world.url, server_settings={"role": "redrive_engine"})
    await engine.execute(HAPPENED, world.org_id)
    await engine.execute(TRIED, world.org_id, world.endpoint_id)
    await engine.close()
    seen = await overview(world.engine, None, DatabaseClock())
    drawn = [line.plain for line in lines(seen, width=200, height=60)]
    for shown in (
        "  failure_rate         since 3 min  default",
        "  endpoint_open        billing  since 3 min  default",
        "  closed    75.0 %  1 of 4 failed  billing  12 ms  default",
    ):
        assert shown in drawn
    assert "  closed    75.0 %  1 of 4 failed  billing" in [line.plain for line in lines(seen, width=69, height=60)]


async def test_top_names_the_minute_that_it_counts_and_says_what_is_paused(world: World) -> None:
    await world.engine._pool.execute(COUNTED, world.org_id)

    async def drawn(org: tuple[UUID, str] | None) -> tuple[str, str]:
        seen = await overview(world.engine, org, DatabaseClock())
        title, minute, *_ = [line.plain for line in lines(seen, width=100, height=60)]
        return title[: title.rindex("  ")], minute

    ours = (world.org_id, "default")
    minute = "last whole minute  4 created  2 delivered  1 dead"
    assert await drawn(ours) == ("redrive top  default", minute)
    await world.set_paused(PauseScope.ORG, True)
    assert await drawn(ours) == ("redrive top  default  the org is paused", minute)
    assert await drawn(None) == ("redrive top  all orgs", minute)
    await world.set_paused(PauseScope.INSTALLATION, True)
    assert await drawn(ours) == ("redrive top  default  the installation is paused and the org is paused", minute)
    assert await drawn(None) == ("redrive top  all orgs  the installation is paused", minute)
    assert shape(await overview(world.engine, ours, DatabaseClock()))["paused"] == ["installation", "org"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ({"what": "accepted", "event_type": "a.b", "event_id": "e", "new_status": "received"}, "accepted   a.b e"),
        ({"what": "delivered", "event_id": "e", "endpoint": "till", "attempt": 1}, "delivered  e → till"),
        ({"what": "delivered", "event_id": "e", "endpoint": "till", "attempt": 3}, "delivered  e → till  at try 3"),
        (
            {"what": "failed", "event_id": "e", "attempt": 1, "error": EVIL, "retry_in_ms": 5000},
            r"failed     e  try 1: a\x1b[31m\nb; again in 5 s",
        ),
        (
            {"what": "failed", "event_id": "e", "attempt": 1, "error": "no", "retry_in_ms": None},
            "failed     e  try 1: no; again when somebody says so",
        ),
        (
            {"what": "failed", "event_id": "e", "retry_in_ms": None},
            "failed     e  lost with its worker; again when somebody says so",
        ),
        ({"what": "dead", "event_id": "e", "reason": "exhausted", "last_error": "no"}, "dead       e  exhausted: no"),
        (
            {"what": "breaker", "endpoint": "till", "old_state": "closed", "new_state": "open", "why": "9 of 10"},
            "breaker    → till  closed → open: 9 of 10",
        ),
        ({"what": "disabled", "endpoint": "till", "why": "gone"}, "disabled   → till  gone"),
        (
            {"what": "run", "workflow": "fulfil", "run_id": "r", "old_status": None, "new_status": "PENDING"},
            "run        fulfil r  begins → PENDING",
        ),
        (
            {"what": "redriven", "event": "person_acted", "event_id": "e", "user_id": "ada", "because": "it is back"},
            "redriven   e  by ada: it is back",
        ),
        (
            {"what": "acted", "event": "person_acted", "action": "policy.put", "user_id": "ada"},
            "acted       policy.put by ada",
        ),
    ],
)
def test_tail_says_what_happened_in_a_line(line: Mapping[str, object], shown: str) -> None:
    assert _shown({**AT, **line}, names_org=True).plain.partition(" ")[2] == shown
