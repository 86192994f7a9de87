"""What runs of workflows ask the database is looked up by index, with thousands of runs as on the first day.

Four thousand runs of three steps, most of them done, of one frequent and one rare workflow. What a function does
inside, no plan shows: it is called, and the server's own count of scans tells.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from conftest import create_database, database_of
from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.ports import NO_EXCHANGE, Job, Place, Settlement, Stream
from redrive.store.db import Session, query
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.orgs import new_id
from redrive.store.paging import MAX_COUNTED
from redrive.store.runs import MAX_EXECUTIONS_SHOWN, NewRun, begin_run
from redrive.store.tasks import Tasks
from support.engine import PERSON, START, Engine, ManualClock, claim_arguments, open_engine
from support.flows import QUEUE, Flow, put_workflow

from .test_plans import _literal, _nodes

NAME = "run_plans"
RUNS, STEPS, RARE = 4_000, 3, 20
LIMIT = 51
HOT = {"run", "step", "effect", "task", "event", "dead_letter", "attempt", "edit"}
NO_PLACE = UUID(int=0)
WRITES = """SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables
             WHERE relname IN ('task', 'run', 'step') AND n_tup_upd > 0"""
SCANS = "SELECT relname, seq_scan, idx_scan FROM pg_stat_xact_user_tables WHERE relname = ANY ($1::text[])"
Arguments = tuple[object, ...]
_numbers = count()

# $1 org, $2 policy, $3 workflow. The oldest runs are those of the rare workflow, and of the rare status: a list by age
# finds them last.
_RUN = "md5($1::uuid::text || n)::uuid"
_TASK = "md5($1::uuid::text || n || ':' || i)::uuid"
_GRID = (
    f"(SELECT n, i, timestamptz '2031-01-01' + n * interval '1 s' AS at FROM generate_series(1, {RUNS}) n,"
    f" generate_series(0, {STEPS - 1}) i) g"
)
FILL = (
    f"""INSERT INTO redrive.run (org_id, id, workflow_id, workflow, version, steps, status, input, created_at,
                                 created_by, updated_at, finished_at, retention_s)
        SELECT $1::uuid, {_RUN}, $3::uuid, CASE WHEN n <= {RARE} THEN 'rare' ELSE 'flow' END, 1, {STEPS},
               CASE WHEN n <= {RARE} THEN 'FAILED' ELSE 'SUCCESS' END, '1', at, 'me', at, at, 1e8
          FROM {_GRID} WHERE i = 0 AND $2::uuid IS NOT NULL""",
    f"""INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
        SELECT $1::uuid, {_TASK}, 'flow.s', 1, at, at, '1' FROM {_GRID} WHERE $2::uuid <> $3::uuid""",
    f"""INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, due_at, received_at,
                                  begun_at, updated_at, run_id, step)
        SELECT $1::uuid, {_TASK}, {_TASK}, $2::uuid, 'step', '{QUEUE}', 'succeeded', 'flow.s', 'infinity', at, at, at,
               {_RUN}, i FROM {_GRID} WHERE $3::uuid IS NOT NULL""",
    f"""INSERT INTO redrive.step (org_id, run_id, index, name, task_id, idempotency_key, output, done_at)
        SELECT $1::uuid, {_RUN}, i, 's' || i, {_TASK}, n || ':' || i, '1', at
          FROM {_GRID} WHERE $2::uuid <> $3::uuid""",
    f"""INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, event_type, reason, category,
                                         fingerprint, error_message, failed_at, generation, created_at, updated_at)
        SELECT $1::uuid, {_TASK}, 'resolved', 'step', {_TASK}, 'flow.s', 'exhausted', 'timeout', 'f', 'e', at, 1, at, at
          FROM {_GRID} WHERE i = 0 AND $2::uuid <> $3::uuid""",
    """INSERT INTO redrive.effect (org_id, run_id, key, result, at)
       SELECT $1::uuid, redrive.uuid7(), n::text, '1', now() FROM generate_series(1, 5000) n
        WHERE $2::uuid <> $3::uuid""",
)


@dataclass(frozen=True, slots=True)
class Facts:
    engine: Engine
    run_id: UUID
    task_id: UUID


@dataclass(frozen=True, slots=True)
class Case:
    """A query, its arguments, the index that must serve it, and whether that gives the order, too."""

    name: str
    arguments: Callable[[Facts], Arguments]
    index: str | tuple[str, ...]  # one of these, where few rows make them cost the same
    sorts: bool = True

    def __str__(self) -> str:
        return self.name


def _ended(facts: Facts) -> Arguments:
    n = 50
    orgs, runs, tasks = [facts.engine.org_id] * n, [new_id() for _ in range(n)], [new_id() for _ in range(n)]
    return START, orgs, runs, [0] * n, tasks, ["x"] * n, [False] * n


def _tasks(facts: Facts) -> Arguments:
    return [facts.engine.org_id] * 50, [new_id() for _ in range(50)]


def _runs(facts: Facts) -> Arguments:
    return START, [facts.engine.org_id] * 50, [new_id() for _ in range(50)]


def _run(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.run_id


def _shown(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.run_id, 16_384


def _task(facts: Facts) -> Arguments:
    return facts.engine.org_id, facts.task_id


def _list(**chosen: object) -> Callable[[Facts], Arguments]:
    filters = [chosen.get(name) for name in ("workflow", "status", "since", "until")]
    after = (START, UUID(int=0)) if "after" in chosen else (None, None)
    return lambda facts: (facts.engine.org_id, *filters, *after, LIMIT)


def _count(**chosen: object) -> Callable[[Facts], Arguments]:
    return lambda facts: (*_list(**chosen)(facts)[:5], MAX_COUNTED + 1)


ENGINE = [
    Case("end_steps", _ended, "step_pkey"),
    Case("run_contents", _tasks, "run_pkey"),
    Case("run_contents", _tasks, "step_pkey"),
    Case("end_steps", _ended, "run_pkey"),
    Case("end_steps", _ended, "task_pkey"),
    Case("step_terms", _tasks, "task_pkey"),
    Case("step_terms", _tasks, "run_pkey"),
    Case("step_terms", _tasks, "step_pkey"),
    Case("cancelled_steps", _tasks, "task_pkey"),
    Case("finish_runs", lambda facts: (*_runs(facts), ["SUCCESS"] * 50), "run_pkey"),
    Case("finish_runs", lambda facts: (*_runs(facts), ["PARTIAL"] * 50), "task_of_run"),
    Case("sweep_runs", lambda facts: (facts.engine.org_id, START, 100), "run_that_goes", sorts=False),
    Case("close_parked", _runs, "task_of_run"),
    Case("resume_step", lambda facts: (*_task(facts), START, None, None, None, "{}", 0.0, None), "dead_letter_pkey"),
    Case("get_effect", lambda facts: (facts.engine.org_id, "7"), "effect_pkey"),
]
APP = [
    Case("list_runs", _list(), "run_by_age", sorts=False),
    Case("list_runs", _list(after=True), "run_by_age", sorts=False),
    Case("list_runs", _list(since=START, until=START + timedelta(days=1)), "run_by_age", sorts=False),
    Case("list_runs", _list(workflow="rare"), "run_by_workflow", sorts=False),
    Case("list_runs", _list(workflow="flow"), ("run_by_workflow", "run_by_age"), sorts=False),
    Case("list_runs", _list(status="FAILED"), "run_by_status", sorts=False),
    Case("list_runs", _list(status="FAILED", after=True), "run_by_status", sorts=False),
    Case("list_runs", _list(workflow="flow", status="FAILED"), "run_by_workflow_and_status", sorts=False),
    Case("list_runs", _list(workflow="rare", status="SUCCESS"), "run_by_workflow_and_status", sorts=False),
    Case("count_runs", _count(workflow="rare"), ("run_by_workflow", "run_by_workflow_and_status")),
    Case("count_runs", _count(workflow="flow", status="FAILED"), "run_by_workflow_and_status"),
    Case("get_run", _run, "run_pkey"),
    Case("get_step_input", lambda facts: (facts.engine.org_id, facts.run_id, 0), "step_pkey"),
    Case("get_run_steps", _shown, "step_pkey", sorts=False),
    Case("get_run_steps", _shown, "task_pkey"),
    Case("get_run_steps", _shown, "dead_letter_pkey"),
    Case("get_run_steps", _shown, "attempt_pkey"),
    Case("list_executions", lambda facts: (*_run(facts), MAX_EXECUTIONS_SHOWN), "task_of_run"),
    Case("lock_run_tasks", _run, "task_of_run"),
    Case("lock_run_tasks", _run, "dead_letter_pkey"),
    Case("lock_run", _run, "run_pkey"),
    Case("done_outputs", lambda facts: (*_run(facts), 2), "step_pkey"),
    Case("get_step_of_task", _task, "task_pkey"),
    Case("get_step_key", lambda facts: (*_run(facts), 1), "step_pkey"),
    Case("reset_steps", lambda facts: (*_run(facts), [1, 2]), "step_pkey"),
    Case("renew_keys", lambda facts: (*_run(facts), 0, 2), "step_pkey"),
    Case("renew_step", lambda facts: (*_run(facts), 1, None, "{}"), "step_pkey"),
    Case("park_letters", lambda facts: (facts.engine.org_id, [facts.task_id], START, "me", None), "dead_letter_pkey"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def facts(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Facts]:
    await create_database(postgres, NAME, template_database)
    async with open_engine(database_of(postgres.url, NAME), ManualClock()) as engine:
        version = await put_workflow(engine, steps=STEPS)
        owner = await asyncpg.connect(database_of(postgres.superuser_url, NAME))
        await owner.execute("SET session_replication_role = replica")
        policy_id = await owner.fetchval("SELECT id FROM redrive.policy WHERE name = 'workflow'")
        for statement in FILL:
            await owner.execute(statement, engine.org_id, policy_id, version.id)
        await owner.execute("ANALYZE")
        row = await owner.fetchrow("SELECT run_id, id FROM redrive.task LIMIT 1")
        assert row is not None
        yield Facts(engine, row["run_id"], row["id"])
        await owner.close()


@pytest.mark.parametrize("case", ENGINE, ids=str)
async def test_what_goes_on_with_runs_uses_its_index(facts: Facts, case: Case) -> None:
    async with facts.engine.db.transaction() as session:
        _judge(case, await _plan(session, case, facts))


@pytest.mark.parametrize("case", APP, ids=str)
async def test_what_people_see_of_runs_uses_its_index(facts: Facts, case: Case) -> None:
    async with facts.engine.app.tenant(facts.engine.org_id) as session:
        _judge(case, await _plan(session, case, facts))


@pytest.mark.parametrize("case", [case for case in APP if case.name == "list_runs"], ids=str)
async def test_a_page_of_runs_reads_no_more_runs_than_it_shows(facts: Facts, case: Case) -> None:
    async with facts.engine.app.tenant(facts.engine.org_id) as session:
        plan = await _plan(session, case, facts, "ANALYZE, FORMAT JSON")
    for node in (node for node in plan if node.get("Relation Name") == "run"):
        assert node["Actual Rows"] <= LIMIT
        assert node.get("Rows Removed by Filter", 0) == 0


async def test_a_run_begins_and_goes_on_without_a_scan(facts: Facts) -> None:
    """Triggers and all, by the server's own count of what a transaction did."""
    engine = facts.engine
    version = await put_workflow(engine, steps=STEPS)
    async with engine.db.transaction() as session:
        run = NewRun(new_id(), b"{}")
        assert await begin_run(session, version, run, PERSON, engine.clock) == "accepted"
        tasks = Tasks(session, engine.clock)
        for _ in range(STEPS):
            (job,) = await engine.claim(queues=(QUEUE,), store=tasks)
            done = Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1, b"{}")
            (settled,) = await tasks.settle([done])
            assert settled.held_lease
        read = await session._connection.fetch(SCANS, list(HOT))
        assert await session._connection.fetchval("SELECT status FROM redrive.run WHERE id = $1", run.id) == "SUCCESS"
    assert {row["relname"]: row["seq_scan"] for row in read if row["seq_scan"]} == {}
    assert {"run", "step", "task", "event"} <= {row["relname"] for row in read if row["idx_scan"]}


async def test_a_claim_of_steps_writes_no_index_of_theirs(engine: Engine) -> None:
    """Every task is updated in its place (HOT), though it belongs to a run. The first one starts that."""
    version = await put_workflow(engine, steps=2)
    for _ in range(100):
        await Flow.begun(engine, version=version)
    stream = Stream(Place(QUEUE, engine.org_id, NO_PLACE), False)
    jobs, written = await _claimed(engine, stream)
    assert written == {"task": (100, 100), "run": (100, 0)}
    await engine.tasks.settle([Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1) for job in jobs])
    jobs, written = await _claimed(engine, stream)
    assert len(jobs) == 100
    assert written == {"task": (100, 100)}


async def _claimed(engine: Engine, stream: Stream) -> tuple[list[Job], dict[str, tuple[int, int]]]:
    """Rows written, and written in their place, by table."""
    connection = await asyncpg.connect(engine.url, server_settings={"role": "redrive_engine"})
    async with connection.transaction():
        taken = await connection.fetch(query("claim"), *claim_arguments(engine, stream))
        rows = await connection.fetch(WRITES)
    await connection.close()
    jobs = [Job(*row[: len(Job._fields)]) for row in taken]
    return jobs, {row["relname"]: (row["n_tup_upd"], row["n_tup_hot_upd"]) for row in rows}


async def _plan(session: Session, case: Case, facts: Facts, how: str = "FORMAT JSON") -> list[dict[str, Any]]:
    """Every node of the plan that the server makes for a prepared statement under this session's settings."""
    name = f"run_{next(_numbers)}"
    await session._connection.execute(f"PREPARE {name} AS {query(case.name)}")
    arguments = ", ".join(map(_literal, case.arguments(facts)))
    (explained,) = json.loads(await session._connection.fetchval(f"EXPLAIN ({how}) EXECUTE {name}({arguments})"))
    return list(_nodes(explained["Plan"]))


def _judge(case: Case, plan: list[dict[str, Any]]) -> None:
    scanned = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
    assert not scanned & HOT, f"{case.name} reads all of {scanned & HOT}"
    used = {node["Index Name"] for node in plan if "Index Name" in node}
    served = {case.index} if isinstance(case.index, str) else set(case.index)
    assert served & used, f"{case.name} uses {used}"
    assert case.sorts or not any("Sort" in node["Node Type"] for node in plan), f"{case.name} sorts"
