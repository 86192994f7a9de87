"""Hot queries look rows up by index, with ten thousand tasks as on the first day, when nothing was ever analysed.

The plans are those of the connections as they are opened: same role, same settings, row-level security and all.
"""

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from conftest import create_database, database_of
from redrive.core.decide import Die, Reason, RetryIn, Succeed
from redrive.core.outcome import Category, Success
from redrive.core.ports import HTTP_QUEUE, NO_EXCHANGE, Settlement
from redrive.store.db import Database, query
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.orgs import new_id
from redrive.store.paging import MAX_COUNTED
from redrive.store.retry_queue import RetryQueueFilter
from support.engine import MARGIN_S, START, UNAVAILABLE, Engine, ManualClock, open_engine

FULL = "plans_full"
EMPTY = "plans_empty"
TASKS = 10_000
MINUTE = timedelta(minutes=1)
_numbers = count()
HOT = {
    "task", "event", "attempt", "payload", "dead_letter", "idempotency", "operation", "operation_item", "pulse",
    "audit", "letter_count", "endpoint_history", "notice", "lane", "lane_gap", "alert", "endpoint_state", "tally",
    "rollup",
}  # fmt: skip
Arguments = tuple[object, ...]
ENDED_OPERATIONS = """
    INSERT INTO redrive.operation
           (org_id, id, subject, action, state, collected, actor, step_at, created_at, updated_at, finished_at)
    SELECT org_id, redrive.uuid7(), 'dead_letters', 'retry', 'completed', true, 'somebody', now(), now(), now(), now()
      FROM redrive.org, generate_series(1, 2000)"""


TOLD_NOTICES = """
    INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, text, facts, told_at)
    SELECT org_id, redrive.uuid7(), now(), 'a' || n % 5, 'info', 'org', 'A word.', '{}', now()
      FROM redrive.org, generate_series(1, 5000) n"""


ENDED_ALERTS = """
    INSERT INTO redrive.alert (org_id, id, rule, severity, subject_kind, opened_at, over_at, text, over_text, saw,
                               notice_id, over_notice_id)
    SELECT org_id, redrive.uuid7(), 'r' || n % 10, 'info', 'org', now() - n * interval '1 min', now(), 'A word.',
           'Over.', '{}', redrive.uuid7(), redrive.uuid7()
      FROM redrive.org, generate_series(1, 5000) n"""


MANY_CAUSES = """
    INSERT INTO redrive.letter_count (org_id, state, fingerprint, shard, n)
    SELECT org_id, 'open', 'f' || n, -1, n FROM redrive.org, generate_series(1, 5000) n"""


OLD_HISTORY = """
    INSERT INTO redrive.endpoint_history
    SELECT org_id, gen_random_uuid(), now() - n * interval '5 min', 1, 1, 1, 1
      FROM redrive.org, generate_series(1, 5000) n"""


BESIDES = (ENDED_OPERATIONS, TOLD_NOTICES, ENDED_ALERTS, OLD_HISTORY, MANY_CAUSES)


@dataclass(frozen=True, slots=True)
class Case:
    """A query, its arguments, and the index that must serve it where the choice matters: one of these, where few rows
    make them cost the same.
    """

    name: str
    arguments: Callable[["Facts"], Arguments]
    index: str | tuple[str, ...] | None = None
    sorts: bool = True  # False: the index gives the order, however much there is

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Facts:
    engine: Engine
    now: datetime
    task_id: UUID
    event_id: UUID
    endpoint_id: UUID


def _claim(facts: Facts) -> Arguments:
    asked = ([HTTP_QUEUE], [facts.engine.org_id], [facts.endpoint_id], [False], [400], [START], [UUID(int=0)])
    return facts.now, *asked, 400, new_id(), MARGIN_S, None


def _succeeded(facts: Facts) -> Arguments:
    tasks = [new_id() for _ in range(50)]
    none = [None] * 50
    return (
        facts.now,
        [facts.engine.org_id] * 50,
        tasks,
        [1] * 50,
        [0.1] * 50,
        none,
        none,
        none,
        none,
        none,
        [False] * 50,
        new_id(),
    )


def _redriven(facts: Facts) -> Arguments:
    return facts.now, facts.engine.org_id, [new_id()], [1.0], "a", "b", None, [False], False


def _failed(facts: Facts) -> Arguments:
    n, none = 50, [None] * 50
    tasks = [new_id() for _ in range(n)]
    columns = (["die"] * n, [1] * n, none, ["exhausted"] * n, ["timeout"] * n, ["f"] * n, ["e"] * n, none, [0.1] * n)
    rest = (none, none, none, none, none, [False] * n, [False] * n)
    return facts.now, [facts.engine.org_id] * n, tasks, [1] * n, *columns, *rest, none, new_id()


def _expired(facts: Facts) -> Arguments:
    n = 50
    return facts.now, facts.engine.org_id, [new_id() for _ in range(n)], [facts.now] * n, *(["x"] * n for _ in range(3))


def _late(facts: Facts) -> Arguments:
    return facts.now, [facts.engine.org_id], [facts.task_id], [1], ["failed"], [None], [None]


def _items(facts: Facts) -> Arguments:
    return facts.engine.org_id, new_id(), 0, 500


def _collected(filters: int, *chosen: object) -> Callable[[Facts], Arguments]:
    rest = [None] * (filters - len(chosen))
    return lambda facts: (facts.engine.org_id, new_id(), 5_000, 1_000_000, facts.now, *chosen, *rest)


def _reported(facts: Facts) -> Arguments:
    n = 50
    orgs, none = [facts.engine.org_id] * n, [None] * n
    return facts.now, orgs, [new_id() for _ in orgs], [1] * n, [0] * n, [9] * n, [9] * n, [1.0] * n, none, none, [0] * n


def _by_events(facts: Facts) -> Arguments:
    return facts.engine.org_id, [facts.event_id]


def _kept(facts: Facts) -> Arguments:
    n = 50
    texts, none = ["a"] * n, [None] * n
    tasks = [new_id() for _ in range(n)]
    return (
        facts.engine.org_id,
        facts.now,
        tasks,
        none,
        *[texts] * 5,
        none,
        none,
        texts,
        none,
        none,
        [3] * n,
        none,
        [0] * n,
    )


def _watched(facts: Facts) -> Arguments:
    return facts.now, [facts.engine.org_id], [900.0], [900.0]


def _troubled(facts: Facts) -> Arguments:
    return [facts.engine.org_id], 1_000, [facts.engine.org_id], [facts.endpoint_id]


def _told(facts: Facts) -> Arguments:
    return facts.now, 600.0, [facts.engine.org_id], ["endpoint_open"]


def _ended_alerts(facts: Facts) -> Arguments:
    return facts.now, [facts.engine.org_id], [new_id()], ["over"], [new_id()]


def _alerts(*filters: object) -> Callable[[Facts], Arguments]:
    return lambda facts: (facts.engine.org_id, *filters, None, None, 51)


ENGINE = [
    Case("claim", _claim, "task_stream", sorts=False),
    Case("survey", lambda facts: (facts.now, [HTTP_QUEUE], 1_000), "task_stream", sorts=False),
    Case("wake_lanes", lambda facts: (1_000, facts.now, 0), "task_behind"),
    Case("settle_succeeded", _succeeded, "task_pkey"),
    Case("settle_failed", _failed, "task_pkey"),
    Case("late_result", _late, "attempt_pkey"),
    Case("release_held", lambda facts: (None, 1_000, facts.now), "task_held"),
    Case("release_held", lambda facts: (facts.engine.org_id, 1_000, facts.now), "task_held"),
    Case("record_health", _reported),
    Case("list_failing", lambda facts: (facts.now, 432_000.0, 5, 100), "endpoint_failing", sorts=False),
    Case("same_webhook", lambda facts: (facts.engine.org_id, facts.event_id, b"{}"), "event_pkey"),
    Case("next_operation", lambda facts: (facts.now,), "operation_next", sorts=False),
    Case("collect_retry_queue", _collected(6), "task_retrying"),
    Case("collect_retry_queue", _collected(6), "operation_item_task"),
    Case("collect_retry_queue", _collected(6), "attempt_pkey"),
    Case("collect_dead_letters", _collected(16, "open"), "dead_letter_by_age"),
    Case("collect_dead_letters", _collected(16, "open"), "operation_item_task"),
    Case("lock_item_tasks", _items, "task_pkey"),
    Case("judge_items", _items, "operation_item_pkey"),
    Case("sweep_operation", lambda facts: (facts.engine.org_id, new_id(), 5_000), "operation_item_sent"),
    Case("expedite_many", lambda facts: (facts.now, facts.engine.org_id, [new_id()], [True]), "task_pkey"),
    Case("find_expedited", lambda facts: (facts.now, [HTTP_QUEUE], 100), "task_expedited"),
    Case("redrive_many", _redriven, "task_pkey"),
    Case("expire_pick", lambda facts: (*_swept(facts), START, UUID(int=0), 500), "task_open", sorts=False),
    Case("expire_many", _expired, "task_pkey"),
    Case("last_errors", lambda facts: ([facts.engine.org_id] * 50, [new_id() for _ in range(50)]), "attempt_pkey"),
    Case("look_for_notices", lambda facts: (facts.now, 60.0), "notice_untold"),
    Case("take_notices", lambda facts: (100,), "notice_untold", sorts=False),
    Case("mark_told", lambda facts: (facts.now, [facts.engine.org_id], [new_id()]), "notice_pkey"),
    Case(
        "queue_notices",
        lambda facts: ([facts.engine.org_id], [facts.event_id], ["http", "mail"], "notice."),
        "task_of_event",
    ),
    Case("take_calls", lambda facts: (facts.now, 3600.0, 5, 60.0, 20), "notice_uncalled"),
    *(Case("alert_numbers", _watched, index) for index in ("pulse_pkey", "notice_by_kind", "notice_more_pkey")),
    Case("alert_due", lambda facts: (facts.now, 1_000), "task_stream", sorts=False),
    *(Case("alert_endpoints", _troubled, index) for index in ("endpoint_state_shut", "endpoint_by_engine")),
    Case("firing_alerts", lambda facts: ([facts.engine.org_id],), "alert_firing"),
    Case("alerts_everywhere", lambda facts: (), "alert_firing"),
    *(Case("alerts_told", _told, index) for index in ("alert_by_rule", "alert_by_end")),
    Case("end_alerts", _ended_alerts, ("alert_pkey", "alert_firing")),
    Case("mark_many", lambda facts: (facts.engine.org_id, [new_id()], "ignored", "a", "b"), "dead_letter_pkey"),
    Case("returns", lambda facts: ([facts.engine.org_id], [facts.task_id]), "dead_letter_pkey"),
    Case("unseen_dead_events", _by_events, "task_of_event"),
    Case("unseen_dead_events", _by_events, "dead_letter_pkey"),
    *(Case("roll", lambda facts: (2_000, 500, facts.now), index) for index in ("tally_by_seq", "rollup_pkey")),
    Case("totals", lambda facts: (), "tally_by_seq"),
    Case("counters_everywhere", lambda facts: ()),
    Case("endpoints_everywhere", lambda facts: (), "endpoint_state_pkey"),
    Case("alerts_everywhere", lambda facts: (), "alert_firing"),
    Case("next_org", lambda facts: ("default",), "org_name_key", sorts=False),
    Case("top_pulse", lambda facts: (None, facts.now, 15), "rollup_pkey"),
    Case("top_waits", lambda facts: (None, facts.now, 15), "rollup_pkey"),
    Case("top_endpoints", lambda facts: (None, facts.now, 10), "endpoint_state_shut"),
    Case("top_endpoints", lambda facts: (None, facts.now, 10), "endpoint_history_by_age"),
    Case("top_groups", lambda facts: (None, 10, 1_000), "letter_count_by_size"),
    Case("top_groups", lambda facts: (None, 10, 1_000), "dead_letter_by_cause"),
    Case("top_operations", lambda facts: (None, 10), "operation_unfinished"),
    Case("top_alerts", lambda facts: (None, 10), "alert_firing"),
    Case("top_leases", lambda facts: (2_000, 1_000, 20_000), "task_stream", sorts=False),
    Case("doctor_due", lambda facts: (facts.now, 5_000, None, None), "task_stream"),
    Case("doctor_holds", lambda facts: (10_000, facts.now)),
    Case("doctor_letters", lambda facts: (1_000,), "letter_count_by_size"),
    Case("doctor_operations", lambda facts: (facts.now, 600.0), "operation_unfinished"),
    Case("doctor_untold", lambda facts: (facts.now,), "notice_untold", sorts=False),
    Case("doctor_tally", lambda facts: (facts.now,), "tally_by_seq"),
    Case("doctor_tries", lambda facts: (facts.now,), "endpoint_history_by_age"),
    *(
        Case("doctor_breakers", lambda facts: (facts.now, 10_000), index)
        for index in ("endpoint_state_shut", "audit_of_subject")
    ),
    Case("tail_acts", lambda facts: (None, facts.now, 2_000), "audit_by_age"),
    *(Case("keep_dead_messages", _kept, index) for index in ("dead_letter_pkey", "attempt_pkey", "task_pkey")),
]
JANITOR = [
    Case("sweep_pick", lambda facts: (*_swept(facts), START, UUID(int=0), 1.0, 1.0, 500), "event_by_age", sorts=False),
    Case("sweep_hold", lambda facts: (facts.engine.org_id, facts.now, [facts.event_id]), "task_of_event"),
    Case("delete_events", lambda facts: (facts.engine.org_id, [facts.event_id]), "task_of_event"),
    Case("archive_events", lambda facts: (facts.engine.org_id, [facts.event_id]), "task_of_event"),
    Case("sweep_count", lambda facts: (facts.engine.org_id, [facts.event_id]), "task_of_event"),
    Case("delete_claims", lambda facts: (facts.engine.org_id, facts.now, 1.0, 500)),
    Case("fold_pulse", lambda facts: (facts.engine.org_id, facts.now, 7200.0, 691200.0, 2_000), "pulse_pkey"),
    Case("forget_rollups", lambda facts: (facts.engine.org_id, facts.now, ["day"], [1.0], 2_000), "rollup_pkey"),
    Case("forget_history", lambda facts: (facts.now, 1.0, 5_000), "endpoint_history_by_age"),
    Case("forget_gaps", lambda facts: (facts.now, 1.0, 5_000), "lane_gap_age"),
    Case("delete_notices", lambda facts: (facts.engine.org_id, facts.now, 1.0, 500), "notice_by_age", sorts=False),
    Case("delete_alerts", lambda facts: (facts.engine.org_id, facts.now, 1.0, 500), "alert_by_end", sorts=False),
    Case("fold_letter_counts", lambda facts: (facts.engine.org_id, 2_000), "letter_count_in_shards"),
]


def _swept(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.now, facts.now


def _queue(**chosen: Any) -> Callable[[Facts], Arguments]:
    return lambda facts: (facts.engine.org_id, *RetryQueueFilter(**chosen).columns, None, None, 51, 510)


def _queue_count(**chosen: Any) -> Callable[[Facts], Arguments]:
    return lambda facts: (facts.engine.org_id, *RetryQueueFilter(**chosen).columns, MAX_COUNTED + 1)


def _events(status: str | None) -> Callable[[Facts], Arguments]:
    return lambda facts: (facts.engine.org_id, status, None, None, None, 51)


def _deliveries(status: str | None) -> Callable[[Facts], Arguments]:
    # Of an endpoint that has few of the tasks: of the others' it looks at none.
    return lambda facts: (facts.engine.org_id, new_id(), status, None, 51, 10_000 if status else 51)


def _operations(active: bool | None) -> Callable[[Facts], Arguments]:
    return lambda facts: (facts.engine.org_id, None, active, None, None, 51)


def _health(facts: Facts) -> Arguments:
    return facts.engine.org_id, [new_id(), new_id()], 400, 100, 10, 1_001, 10_000, facts.now


def _history(facts: Facts) -> Arguments:
    return facts.engine.org_id, new_id(), facts.now, None, timedelta(days=1), timedelta(minutes=5), 500


def _inbox(*after: object) -> Callable[[Facts], Arguments]:
    return lambda facts: (facts.engine.org_id, None, *(after or (None, None, None)), 51, 8_388_608)


def _by_task(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.task_id


def _lanes(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.endpoint_id, None, 51


def _lane_facts(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.endpoint_id, [facts.endpoint_id, new_id()], 1_001


def _over_time(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.now, "2 hours", 84, "hour", "endpoint", str(facts.endpoint_id)


def _by_key(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.now, "1 day", 365, "day", "event_type", 20, True


def _by_event(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.event_id


APP = [
    Case("list_retry_queue", _queue(), "task_retrying", sorts=False),
    Case(
        "list_logs", lambda facts: (facts.engine.org_id, *[None] * 10, 51, 500, None, False, None, None), "event_by_age"
    ),
    Case("list_retry_queue", _queue(status="in_progress"), "task_retrying"),
    Case("list_retry_queue", _queue(event_type="rare"), "task_retrying"),
    Case("list_retry_queue", _queue(external_system="rare"), "task_retrying"),
    Case("list_retry_queue", _queue(endpoint_id=new_id()), "task_retrying"),
    Case("list_retry_queue", _queue(event_type="rar*"), "task_retrying"),
    Case("list_retry_queue", _queue(category="timeout"), "attempt_pkey"),
    Case("list_retry_queue", _queue(q="rare"), "attempt_pkey"),
    Case("count_retry_queue", _queue_count(), "task_retrying"),
    Case("choose_from_queue", lambda facts: (facts.engine.org_id, 5_000), "task_retrying"),
    Case("count_retry_queue", _queue_count(q="rare"), "attempt_pkey"),
    Case("get_dead_letter", _by_task),
    Case("get_entry", _by_task, "task_pkey"),
    Case("get_failed_entry", _by_task, "task_pkey"),
    Case("get_log", _by_task, "task_pkey"),
    Case("list_attempts", lambda facts: (facts.engine.org_id, None, facts.task_id), "task_pkey"),
    Case("get_event", _by_event, "event_pkey"),
    Case("get_event_statuses", _by_events, "task_of_event"),
    Case("list_attempts", lambda facts: (facts.engine.org_id, facts.event_id, None), "task_of_event"),
    Case("list_events", _events(None), "event_by_age", sorts=False),
    Case("list_events", _events("received"), "event_in_inbox", sorts=False),
    Case("list_unfinished_events", _events("queued"), "task_open", sorts=False),
    Case("list_unfinished_events", _events("failed"), "task_dead", sorts=False),
    Case("list_events", _events("delivered"), "event_by_age", sorts=False),
    Case("list_inbox", _inbox(), "event_in_inbox_by_time", sorts=False),
    Case("list_inbox", _inbox(START, START, UUID(int=0)), "event_in_inbox_by_time", sorts=False),
    Case("list_inbox_failed", _inbox(), "task_dead_by_time", sorts=False),
    Case("list_inbox_failed", _inbox(START, START, UUID(int=0)), "task_dead_by_time", sorts=False),
    Case("submitters", _by_events, "event_pkey"),
    Case("ack_event", lambda facts: (facts.engine.org_id, facts.event_id, facts.now, "me")),
    Case("lock_event_tasks", _by_event, "task_of_event"),
    Case("terms_of_event", _by_event, "task_of_event"),
    Case("make_test", lambda facts: (facts.engine.org_id, facts.event_id, new_id()), "task_of_event"),
    Case("describe_event", _by_event, "event_pkey"),
    Case("delete_events", lambda facts: (facts.engine.org_id, [facts.event_id]), "task_of_event"),
    Case("count_events", lambda facts: (facts.engine.org_id, "queued"), "task_open"),
    Case("count_events", lambda facts: (facts.engine.org_id, "failed"), "task_dead"),
    Case("find_deliveries", _deliveries(None), "task_of_endpoint"),
    Case("find_deliveries", _deliveries("pending"), "task_of_endpoint"),
    Case("list_deliveries", lambda facts: (facts.engine.org_id, [facts.task_id]), "task_pkey"),
    Case("oldest_due", lambda facts: (facts.engine.org_id, facts.now, 10_000), "task_retrying"),
    Case("count_held", lambda facts: (facts.engine.org_id, new_id(), 10_000, facts.now)),
    Case("hold_causes", lambda facts: (facts.engine.org_id, [new_id()], facts.now), "task_pkey"),
    Case("endpoint_history", _history, "endpoint_history_pkey"),
    Case("waiting_lanes", _lanes, "task_waiting_lane", sorts=False),
    Case("halted_lanes", _lanes, "lane_halted_of_endpoint", sorts=False),
    Case("lift_halts", lambda facts: (facts.engine.org_id, [facts.task_id], facts.endpoint_id)),
    *(
        Case("get_lanes", _lane_facts, index)
        for index in ("lane_of_endpoint", "task_head", "task_behind", "attempt_pkey")
    ),
    Case("list_operations", _operations(None), "operation_pkey", sorts=False),
    Case("list_operations", _operations(True), "operation_unfinished", sorts=False),
    Case("count_operations", lambda facts: (*_operations(True)(facts)[:4], 100), "operation_unfinished"),
    Case("list_notices", lambda facts: (facts.engine.org_id, None, None, None, 51), "notice_by_age", sorts=False),
    Case("list_notices", lambda facts: (facts.engine.org_id, "rare", None, None, 51), "notice_by_kind", sorts=False),
    Case("list_alerts", _alerts(None, None, None), "alert_by_age", sorts=False),
    Case("list_alerts", _alerts(None, "rare", None), "alert_by_rule", sorts=False),
    Case("list_alerts", _alerts("firing", None, None), ("alert_firing", "alert_by_age")),
    Case("firing_now", lambda facts: (facts.engine.org_id,), "alert_firing"),
    *(Case("analytics_over_time", _over_time, index) for index in ("rollup_pkey", "tally_by_seq")),
    *(Case("analytics_by_key", _by_key, index) for index in ("rollup_pkey", "tally_by_seq")),
    Case("pulse", lambda facts: (facts.engine.org_id, facts.now, "2 hours", 84), "pulse_pkey"),
    Case(
        "worst_endpoints",
        lambda facts: (facts.engine.org_id, facts.now, "1 day", 2_000, 5),
        ("dead_letter_by_age", "dead_letter_by_endpoint"),
    ),
    Case("worst_endpoints", lambda facts: (facts.engine.org_id, facts.now, "1 day", 2_000, 5), "task_retrying"),
    *(
        Case("endpoint_health", _health, index)
        for index in ("task_of_endpoint", "attempt_pkey", "task_retrying", "dead_letter_by_endpoint")
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def databases(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Mapping[str, Facts]]:
    async with AsyncExitStack() as stack:
        facts: dict[str, Facts] = {}
        for name in (EMPTY, FULL):
            await create_database(postgres, name, template_database)
            clock = ManualClock()
            engine = await stack.enter_async_context(open_engine(database_of(postgres.url, name), clock))
            facts[name] = Facts(engine, clock.now(), new_id(), new_id(), new_id())
            if name == FULL:
                facts[name] = await _fill(engine, clock)
                connection = await asyncpg.connect(database_of(postgres.superuser_url, name))
                for statement in (*BESIDES, "ANALYZE"):
                    await connection.execute(statement)
                await connection.close()
        yield facts


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def janitors(databases: Mapping[str, Facts]) -> AsyncIterator[Mapping[str, Database]]:
    async with AsyncExitStack() as stack:
        opened = {}
        for name, facts in databases.items():
            opened[name] = await Database.open(facts.engine.url, role="redrive_janitor", size=1)
            stack.push_async_callback(opened[name].close)
        yield opened


@pytest.mark.parametrize("case", ENGINE, ids=str)
@pytest.mark.parametrize("name", [EMPTY, FULL])
async def test_the_engine_s_queries_use_their_index(databases: Mapping[str, Facts], name: str, case: Case) -> None:
    facts = databases[name]
    async with facts.engine.db.transaction() as session:
        plan = await _plan(session._connection, case, facts)
    _judge(case, plan, full=name == FULL)


@pytest.mark.parametrize("case", JANITOR, ids=str)
@pytest.mark.parametrize("name", [EMPTY, FULL])
async def test_the_janitor_s_queries_use_their_index(
    databases: Mapping[str, Facts], janitors: Mapping[str, Database], name: str, case: Case
) -> None:
    facts = databases[name]
    async with janitors[name].transaction() as session:
        plan = await _plan(session._connection, case, facts)
    _judge(case, plan, full=name == FULL)


@pytest.mark.parametrize("case", APP, ids=str)
@pytest.mark.parametrize("name", [EMPTY, FULL])
async def test_the_lists_of_people_use_their_index(databases: Mapping[str, Facts], name: str, case: Case) -> None:
    facts = databases[name]
    async with facts.engine.app.tenant(facts.engine.org_id) as session:
        plan = await _plan(session._connection, case, facts)
    _judge(case, plan, full=name == FULL)


async def test_the_health_of_endpoints_reads_no_more_than_its_bounds(databases: Mapping[str, Facts]) -> None:
    """One endpoint has all the tasks, and thousands of dead letters and retries; others have none."""
    facts = databases[FULL]
    endpoint_id = await facts.engine.sql.fetchval("SELECT id FROM redrive.endpoint")
    case = Case("endpoint_health", lambda f: (f.engine.org_id, [endpoint_id, new_id()], 40, 10, 2, 101, 200, f.now))
    async with facts.engine.app.tenant(facts.engine.org_id) as session:
        plan = await _plan(session._connection, case, facts, "ANALYZE, FORMAT JSON")
    read = [node for node in plan if node.get("Relation Name") in HOT]
    assert {node["Relation Name"] for node in read} == {"task", "attempt", "dead_letter"}
    for node in read:
        assert node["Actual Rows"] * node["Actual Loops"] <= 200, node
        assert node.get("Rows Removed by Filter", 0) == 0, node


async def test_the_oldest_due_task_of_all_orgs_is_found_without_reading_those_that_are_not_due(
    databases: Mapping[str, Facts],
) -> None:
    """Stream by stream; only tasks under way are passed over, of which hundreds were left behind here."""
    facts = databases[FULL]
    case = Case("oldest_due_everywhere", lambda f: (f.now, 1_000), "task_stream")
    async with facts.engine.db.transaction() as session:
        plan = await _plan(session._connection, case, facts, "ANALYZE, FORMAT JSON")
    _judge(case, plan, full=True)
    read = [node for node in plan if node.get("Relation Name") == "task"]
    assert _rows_read(read) < 1_000


@pytest.mark.parametrize(
    ("name", "tables"),
    [("counters_everywhere", {"counter"}), ("endpoints_everywhere", {"endpoint", "endpoint_state"})],
)
async def test_what_is_added_up_over_all_orgs_is_read_once_from_small_tables(
    databases: Mapping[str, Facts], name: str, tables: set[str]
) -> None:
    """Each of these tables as a whole, as there is no other way, and none that grows with what was delivered."""
    facts = databases[FULL]
    async with facts.engine.db.transaction() as session:
        plan = await _plan(session._connection, Case(name, lambda f: ()), facts, "ANALYZE, FORMAT JSON")
    read = [node for node in plan if "Relation Name" in node]
    assert {node["Relation Name"] for node in read} == tables
    assert 0 < _rows_read(read) < 500


@pytest.mark.parametrize(
    ("case", "most"),
    [
        (Case("top_leases", lambda facts: (2_000, 100, 1_000), "task_stream"), 1_300),
        # What is under way is passed over: hundreds were left behind here.
        (Case("doctor_due", lambda facts: (facts.now, 5_000, None, None), "task_stream"), 1_000),
        (Case("doctor_due", lambda facts: (facts.now, 5_000, UUID(int=9), UUID(int=8)), "task_stream"), 1_000),
        (Case("doctor_holds", lambda facts: (100, facts.now)), 100),
    ],
    ids=str,
)
async def test_a_look_at_everything_reads_the_fronts_of_its_streams(
    databases: Mapping[str, Facts], case: Case, most: int
) -> None:
    """However many tasks wait behind them."""
    facts = databases[FULL]
    async with facts.engine.db.transaction() as session:
        plan = await _plan(session._connection, case, facts, "ANALYZE, FORMAT JSON")
    read = [node for node in plan if node.get("Relation Name") == "task"]
    assert _rows_read(read) <= most


@pytest.mark.parametrize(
    "case",
    [
        Case("top_groups", lambda facts: (None, 10, 200), "letter_count_by_size"),
        Case("doctor_letters", lambda facts: (200,), "letter_count_by_size"),
    ],
    ids=str,
)
async def test_the_biggest_causes_are_found_among_so_many_counts_and_no_more(
    databases: Mapping[str, Facts], case: Case
) -> None:
    facts = databases[FULL]
    async with facts.engine.db.transaction() as session:
        plan = await _plan(session._connection, case, facts, "ANALYZE, FORMAT JSON")
    _judge(case, plan, full=True)
    read = [node for node in plan if node.get("Relation Name") == "letter_count"]
    assert {node["Index Name"]: _rows_read([node]) for node in read} == {
        "letter_count_by_size": 200,
        "letter_count_pkey": 200,
    }


@pytest.mark.parametrize("after", [None, UUID(int=2**128 - 1)])
async def test_deliveries_of_an_endpoint_that_had_all_tasks_are_not_looked_for_among_all(
    databases: Mapping[str, Facts], after: UUID | None
) -> None:
    """Since the table was analysed, others may have had thousands."""
    facts = databases[FULL]
    endpoint_id = await facts.engine.sql.fetchval("SELECT id FROM redrive.endpoint")
    case = Case("find_deliveries", lambda f: (f.engine.org_id, endpoint_id, None, after, 51, 51), "task_of_endpoint")
    async with facts.engine.app.tenant(facts.engine.org_id) as session:
        plan = await _plan(session._connection, case, facts, "ANALYZE, FORMAT JSON")
    _judge(case, plan, full=True)
    (read,) = (node for node in plan if node.get("Relation Name") == "task")
    assert read["Actual Rows"] == 51


def _judge(case: Case, plan: list[dict[str, Any]], *, full: bool) -> None:
    scanned = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
    assert not scanned & HOT, f"{case.name} reads all of {scanned & HOT}"
    if full:
        used = {node["Index Name"] for node in plan if "Index Name" in node}
        served = {case.index} if isinstance(case.index, str) else set(case.index or used)
        assert served & used or not served, f"{case.name} uses {used}"
        sorted_rows = [node["Plan Rows"] for node in plan if node["Node Type"] == "Sort"]
        assert case.sorts or all(rows <= 1000 for rows in sorted_rows), f"{case.name} sorts {sorted_rows} rows"


async def _plan(connection: Any, case: Case, facts: Facts, how: str = "FORMAT JSON") -> list[dict[str, Any]]:
    """Every node of the plan that the server makes for a prepared statement under this session's settings."""
    name = f"hot_{next(_numbers)}"
    await connection.execute(f"PREPARE {name} AS {query(case.name)}")
    literals = ", ".join(map(_literal, case.arguments(facts)))
    arguments = f"({literals})" if literals else ""
    (explained,) = json.loads(await connection.fetchval(f"EXPLAIN ({how}) EXECUTE {name}{arguments}"))
    return list(_nodes(explained["Plan"]))


def _rows_read(nodes: list[dict[str, Any]]) -> float:
    """Those that were looked at in vain, too."""
    return math.fsum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in nodes
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join("NULL" if item is None else f'"{item}"' for item in value) + "}'"
    return "'" + str(value).replace("'", "''") + "'"


async def _fill(engine: Engine, clock: ManualClock) -> Facts:
    """Every state in numbers: most have succeeded, thousands wait, thousands are dead."""
    endpoint_id = await engine.endpoint()
    for _ in range(TASKS // 1000):
        await engine.accept_many(1000)
        clock.advance(1)
    decisions = [Succeed()] * 6 + [RetryIn(MINUTE)] * 2 + [Die(Reason.EXHAUSTED, Category.SERVER_ERROR)] * 2
    for _ in range(7):
        jobs = await engine.claim(1000)
        batch = []
        for n, job in enumerate(jobs[:980]):
            decision = decisions[n % len(decisions)]
            outcome = Success(200) if isinstance(decision, Succeed) else UNAVAILABLE
            batch.append(Settlement(job, outcome, decision, NO_EXCHANGE, 0.1))
        await engine.tasks.settle(batch)
    await engine.accept_many(500, event_type="for nobody", handler="absent")
    row = await engine.sql.fetchrow("SELECT id, event_id FROM redrive.task WHERE state = 'dead' LIMIT 1")
    assert row is not None
    return Facts(engine, clock.now(), row["id"], row["event_id"], endpoint_id)
