"""What the pages of workflows ask for: counted no further than is shown, and found by index where there are many."""

import json
from collections.abc import Iterator
from typing import Any

import pytest_asyncio

from redrive.core.run_states import RunStatus
from redrive.core.workflow import Workflow
from redrive.store import runs, workflows
from redrive.store.db import query
from redrive.store.runs import MAX_RUNS_COUNTED
from redrive.store.workflows import MAX_VERSIONS_LISTED
from support.engine import PERSON, Engine, Shared

RUNS = 5_000
# $1 org, $2 workflow, $3 status, $4 how many.
BEGUN = """INSERT INTO redrive.run (org_id, id, workflow_id, workflow, version, steps, status, input, created_at,
                                    created_by, updated_at, finished_at)
           SELECT $1, redrive.uuid7(), redrive.uuid7(), $2, 1, 1, $3, 'null', now(), 'x', now(),
                  CASE WHEN $3 NOT IN ('PENDING', 'RUNNING', 'DLQ_PENDING') THEN now() END
             FROM generate_series(1, $4::int)"""


@pytest_asyncio.fixture(loop_scope="session")
async def many(engine: Engine, shared_database: Shared) -> Engine:
    """Runs of one workflow in numbers, two of another, and as many of another org."""
    other = await engine.org("other")
    for org_id, name, status, count in (
        (engine.org_id, "busy", "SUCCESS", RUNS),
        (engine.org_id, "busy", "RUNNING", 3),
        (engine.org_id, "idle", "FAILED", 2),
        (other, "idle", "FAILED", RUNS),
    ):
        await shared_database.owner.execute(BEGUN, org_id, name, status, count)
    await shared_database.owner.execute("ANALYZE redrive.run")  # what it knew was of other tests' runs
    return engine


async def test_runs_are_counted_by_workflow_and_status_up_to_a_limit(many: Engine) -> None:
    async with many.app.tenant(many.org_id) as session:
        counted = await runs.count_runs_of(session, ["busy", "idle", "never ran"])
    assert counted == {
        "busy": {"SUCCESS": MAX_RUNS_COUNTED, "RUNNING": 3},
        "idle": {"FAILED": 2},
        "never ran": {},
    }


async def test_counting_reads_no_more_runs_than_it_counts(many: Engine) -> None:
    async with many.app.tenant(many.org_id) as session:
        await session._connection.execute(f"PREPARE counting AS {query('count_runs_of')}")
        statuses = ",".join(RunStatus)
        asked = f"'{many.org_id}', '{{busy,idle}}', '{{{statuses}}}', '{MAX_RUNS_COUNTED}'"
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE counting({asked})"
        (explained,) = json.loads(await session._connection.fetchval(explain))
        await session._connection.execute("DEALLOCATE counting")
    read = [node for node in _nodes(explained["Plan"]) if node.get("Relation Name") == "run"]
    assert {node.get("Index Name") for node in read} == {"run_by_workflow_and_status"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) <= MAX_RUNS_COUNTED + 5 + 2 * len(RunStatus)
    assert not any(node.get("Rows Removed by Filter") for node in read)


async def test_versions_are_listed_newest_first_also_of_what_was_deleted(engine: Engine) -> None:
    async with engine.app.tenant(engine.org_id) as session:
        for seconds in range(1, MAX_VERSIONS_LISTED + 3):
            spec = {"steps": [{"name": "nap", "kind": "wait", "wait_s": seconds}]}
            await workflows.put_workflow(session, Workflow.from_spec("nap", spec), PERSON, engine.clock, None)
        listed = await workflows.list_versions(session, "nap")
        assert [row["version"] for row in listed] == list(range(MAX_VERSIONS_LISTED + 2, 2, -1))
        assert [row["retired_at"] is None for row in listed[:2]] == [True, False]
        assert await workflows.delete_workflow(session, "nap", PERSON)
        assert (await workflows.list_versions(session, "nap"))[0]["retired_at"] is not None
        assert await workflows.list_versions(session, "nothing") == []


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
