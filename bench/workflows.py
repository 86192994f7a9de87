"""Runs of workflows: `python -m bench.workflows [--small] [--rounds N]`.

How many steps a worker process carries out per second, of many runs of five steps each, beside as many plain tasks in
the same round: calls over HTTP, and handlers that do nothing. The same calls beside many runs that have ended. And how
long a run of five steps takes when there is nothing else to do. Run by itself; writes bench/results/workflows.json and
its part of docs/benchmarks.md, unless small.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from bench.alone import Measured, by_itself
from bench.ceilings.ingest import event_body
from bench.delivery import STOP_GRACE_S
from bench.installation import ACT, EVENT_TYPE, MAX_WAIT_S, Installation
from bench.model import Run, latency_figures
from bench.noop_app import HANDLER
from bench.postgres import BenchPostgres, cost
from bench.processes import Child, ProcessError, children, module
from bench.receiver import Receiver, receiving
from bench.wire import Pool, request_head
from redrive.core.workflow import Workflow
from redrive.store.clock import DatabaseClock
from redrive.store.endpoints import EndpointSpec
from redrive.store.events import NewEvent
from redrive.store.orgs import new_id
from redrive.store.runs import NewRun, begin_run
from redrive.store.workflows import Version, put_workflow, version_of

SCENARIO = "workflows"
STEPS = 5
BEGUN_TOGETHER = 100  # runs in one transaction
TIMEOUT_S = 600.0
POLL_S = 0.05
IDLE_PAUSE_S = 0.02
IDLE_WARM_UP = 10

# From the first try to the last one's settlement, by the database's clock.
SPAN = """SELECT extract(epoch FROM max(ended_at) - min(started_at))::float8 AS seconds, count(*) AS n
            FROM redrive.attempt WHERE result = 'succeeded'"""
OPEN = "SELECT coalesce(sum(n), 0)::bigint AS n FROM redrive.counter WHERE name IN ('task.waiting', 'task.leased')"
# Runs like one that has ended, with all that belongs to them.
ENDED = """
    WITH one AS (SELECT * FROM redrive.run WHERE status = 'SUCCESS' LIMIT 1),
    made AS MATERIALIZED (SELECT redrive.uuid7() AS run_id FROM generate_series(1, $1::int)),
    parts AS MATERIALIZED (
      SELECT m.run_id, redrive.uuid7() AS event_id, redrive.uuid7() AS task_id, s AS of
        FROM made m, one JOIN redrive.step s ON s.org_id = one.org_id AND s.run_id = one.id),
    runs AS (
      INSERT INTO redrive.run (org_id, id, workflow_id, workflow, version, steps, status, input, created_at, created_by,
                               updated_at, started_at, finished_at)
      SELECT o.org_id, m.run_id, o.workflow_id, o.workflow, o.version, o.steps, o.status, o.input, o.created_at,
             o.created_by, o.updated_at, o.started_at, o.finished_at FROM one o, made m),
    events AS (
      INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
      SELECT e.org_id, p.event_id, e.event_type, 1, e.occurred_at, e.received_at, e.body
        FROM parts p JOIN redrive.task t ON t.org_id = (p.of).org_id AND t.id = (p.of).task_id
        JOIN redrive.event e ON e.org_id = t.org_id AND e.id = t.event_id),
    steps AS (
      INSERT INTO redrive.step (org_id, run_id, index, name, task_id, idempotency_key, url, output, done_at)
      SELECT (p.of).org_id, p.run_id, (p.of).index, (p.of).name, p.task_id, p.run_id || ':' || (p.of).index, (p.of).url,
             (p.of).output, (p.of).done_at FROM parts p),
    tasks AS (
      INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, due_at, received_at,
                                begun_at, updated_at, attempts, fence, run_id, step)
      SELECT t.org_id, p.task_id, p.event_id, t.policy_id, t.kind, t.queue, t.state, t.event_type, t.due_at,
             t.received_at, t.begun_at, t.updated_at, t.attempts, t.fence, p.run_id, t.step
        FROM parts p JOIN redrive.task t ON t.org_id = (p.of).org_id AND t.id = (p.of).task_id)
    INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, worker_id, started_at, ended_at,
                                 status_code)
    SELECT a.org_id, p.task_id, a.fence, a.generation, a.number, a.result, a.worker_id, a.started_at, a.ended_at,
           a.status_code
      FROM parts p JOIN redrive.attempt a ON a.org_id = (p.of).org_id AND a.task_id = (p.of).task_id"""


@dataclass(frozen=True, slots=True)
class Scale:
    runs: int = 10_000
    ended: int = 50_000
    idle: int = 200


FULL = Scale()
SMALL = Scale(runs=300, ended=1_000, idle=20)


# -- runs ------------------------------------------------------------------------------------------------------------


async def _workflow(installation: Installation, *steps: dict[str, object]) -> Version:
    named = [{"name": f"s{index}", **step} for index, step in enumerate(steps)]
    workflow = Workflow.from_spec("five", {"steps": named})
    async with installation.app.tenant(installation.org_id) as session:
        row, _ = await put_workflow(session, workflow, ACT, DatabaseClock(), None)
    return version_of(row)


def _calls(receiver: Receiver) -> list[dict[str, object]]:
    """Each with the run's input, which is as large as the webhooks that it is compared with."""
    return [{"kind": "http", "url": receiver.url, "body": "{{ input }}"}] * STEPS


async def _begin(installation: Installation, version: Version, n: int) -> None:
    body = event_body()
    for start in range(0, n, BEGUN_TOGETHER):
        async with installation.engine.transaction() as session:
            for _ in range(min(BEGUN_TOGETHER, n - start)):
                await begin_run(session, version, NewRun(new_id(), body), ACT, DatabaseClock())


async def _all_in_order(receiver: Receiver, runs: int) -> None:
    arrived = [job for job, _, _ in await receiver.arrivals()]
    if len(arrived) != runs * STEPS or len(set(arrived)) != len(arrived):
        raise ProcessError(f"{len(arrived)} calls for {len(set(arrived))} of {runs * STEPS} steps")
    last: dict[str, int] = {}
    for job in arrived:
        run, _, step = job.rpartition(":")
        if int(step) != last.get(run, -1) + 1:
            raise ProcessError(f"step {step} of run {run} came behind step {last.get(run)}")
        last[run] = int(step)


# -- over HTTP -------------------------------------------------------------------------------------------------------


async def called_tasks(server: BenchPostgres, receiver: Receiver, n: int) -> Run:
    async with Installation.on(server, "tasks") as installation:
        endpoint_id = await installation.add_endpoint(EndpointSpec("receiver", receiver.url, (EVENT_TYPE,)))
        body = event_body()
        sent = [NewEvent(installation.org_id, new_id(), EVENT_TYPE, body, endpoint_id=endpoint_id) for _ in range(n)]
        await receiver.reset()
        await installation.accept(sent)
        await installation.write_out()
        return await installation.delivery(n, receiver, timeout_s=TIMEOUT_S).run()


async def called_steps(server: BenchPostgres, receiver: Receiver, scale: Scale) -> tuple[Run, Run]:
    """In fresh tables, and beside many runs that have ended."""
    async with Installation.on(server, "steps") as installation:
        version = await _workflow(installation, *_calls(receiver))
        fresh = await _carried_out(installation, receiver, version, scale.runs)
        await installation.rows(ENDED, scale.ended)
        return fresh, await _carried_out(installation, receiver, version, scale.runs)


async def _carried_out(installation: Installation, receiver: Receiver, version: Version, runs: int) -> Run:
    await receiver.reset()
    await _begin(installation, version, runs)
    await installation.write_out()
    run = await installation.delivery(runs * STEPS, receiver, timeout_s=TIMEOUT_S).run()
    await _all_in_order(receiver, runs)
    return run


# -- by handlers -----------------------------------------------------------------------------------------------------


async def handled_tasks(server: BenchPostgres, n: int) -> Run:
    async with Installation.on(server, "handled_tasks") as installation:
        body = event_body()
        await installation.accept(
            [NewEvent(installation.org_id, new_id(), EVENT_TYPE, body, handler=HANDLER) for _ in range(n)]
        )
        return await _handled(installation, n)


async def handled_steps(server: BenchPostgres, runs: int) -> Run:
    async with Installation.on(server, "handled_steps") as installation:
        steps: Sequence[dict[str, object]] = [{"kind": "handler", "handler": HANDLER}] * STEPS
        await _begin(installation, await _workflow(installation, *steps), runs)
        return await _handled(installation, runs * STEPS)


async def _handled(installation: Installation, n: int) -> Run:
    await installation.write_out()
    url = installation.url + ("&" if "?" in installation.url else "?") + "role=redrive_engine"
    before = await cost(url)
    argv = module("redrive.cli.main", "worker", "--app", "bench.noop_app:app")
    async with children(STOP_GRACE_S) as started:
        started.append(await Child.start("redrive", argv, env=installation.env))
        deadline = time.monotonic() + TIMEOUT_S
        while (await installation.rows(OPEN))[0]["n"]:
            started[0].require_alive()
            if time.monotonic() > deadline:
                raise ProcessError(f"not done within {TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_S)
    (span,) = await installation.rows(SPAN)
    if span["n"] != n:
        raise ProcessError(f"{span['n']} of {n} were carried out")
    return Run.timed("redrive", n, span["seconds"], (await cost(url)).since(before, n))


# -- alone -----------------------------------------------------------------------------------------------------------


async def idle(server: BenchPostgres, receiver: Receiver, n: int) -> Run:
    """From the request that begins a run to the arrival of its first and of its last call, one run at a time."""
    async with Installation.on(server, "idle") as installation:
        await _workflow(installation, *_calls(receiver))
        await receiver.reset()
        body = b'{"input":%s}' % event_body()
        asked: list[float] = []
        async with installation.serving() as (_, base):
            url = f"{base}/v1/workflows/five/runs"
            pool = await Pool.open(url, 1)
            head = request_head(url, {"content-type": "application/json", "x-api-key": installation.key}, len(body))
            began = time.perf_counter()
            for index in range(n + IDLE_WARM_UP):
                await asyncio.sleep(IDLE_PAUSE_S)
                asked.append(time.monotonic())
                (status,) = await pool.send_all([head + b"\r\n" + body])
                if status != 202:
                    raise ProcessError(f"the API answered {status}")
                await receiver.wait_for((index + 1) * STEPS, timeout_s=MAX_WAIT_S)
            seconds = time.perf_counter() - began
        arrived = [at for _, at, _ in await receiver.arrivals()]
        first = [(arrived[i * STEPS] - at) * 1000 for i, at in enumerate(asked)]
        last = [(arrived[i * STEPS + STEPS - 1] - at) * 1000 for i, at in enumerate(asked)]
        figures = {f"first_{name}": value for name, value in latency_figures(first[IDLE_WARM_UP:]).items()}
        return Run.timed("redrive", n, seconds, latency_figures(last[IDLE_WARM_UP:]) | figures)


async def measure(server: BenchPostgres, scale: Scale, found: Measured) -> None:
    n = scale.runs * STEPS
    async with receiving() as receiver:
        await found.attempt("called tasks", called_tasks(server, receiver, n))
        fresh, beside = await called_steps(server, receiver, scale)
        found.note("called steps", fresh)
        found.note("called steps, many ended", beside)
        await found.attempt("handled tasks", handled_tasks(server, n))
        await found.attempt("handled steps", handled_steps(server, scale.runs))
        await found.attempt("idle run", idle(server, receiver, scale.idle))
    found.compare("called steps", "called tasks", ("per_s", "wal_bytes_per_job", "commits_per_job"))
    found.compare("called steps, many ended", "called steps", ("per_s",))
    found.compare("handled steps", "handled tasks", ("per_s", "wal_bytes_per_job", "commits_per_job"))


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # a line for each run
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_itself(SCENARIO, parser, lambda server, small, found: measure(server, SMALL if small else FULL, found))


if __name__ == "__main__":
    main()
