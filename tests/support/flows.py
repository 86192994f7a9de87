"""Runs of workflows on an engine of the tests, step by step: begun, claimed, settled, replayed, without a worker.

flow = await Flow.begun(engine, steps=3)
await flow.succeed()
await flow.die()
assert await flow.statuses() == ("DLQ_PENDING", ["SUCCESS", "DLQ", "PENDING"])
"""

from dataclasses import dataclass
from uuid import UUID

from redrive.api.run_shapes import status_of
from redrive.core.decide import Succeed
from redrive.core.outcome import Success
from redrive.core.ports import NO_EXCHANGE, STEP_HANDLER_PREFIX, Job, Settled, Settlement
from redrive.core.workflow import Workflow
from redrive.store import replays, runs, workflows
from redrive.store.orgs import new_id
from redrive.store.replays import Mode, Replay
from redrive.store.retry_queue import Refusal
from redrive.store.runs import NewRun, RunRefusal
from redrive.store.workflows import Version, version_of
from support.engine import PERSON, Engine, ManualClock

QUEUE = f"{STEP_HANDLER_PREFIX}work"


async def put_workflow(engine: Engine, name: str = "flow", *, steps: int = 2, tells_before: bool = False) -> Version:
    """A workflow of handler steps; `tells_before`: the input of each is the output before it."""
    given = []
    for index in range(steps):
        step: dict[str, object] = {"name": f"s{index}", "kind": "handler", "handler": "work"}
        if tells_before and index:
            step["input"] = {"before": f"{{{{ steps.s{index - 1}.output }}}}"}
        given.append(step)
    workflow = Workflow.from_spec(name, {"steps": given})
    async with engine.app.tenant(engine.org_id) as session:
        row, _ = await workflows.put_workflow(session, workflow, PERSON, engine.clock, engine.sealer)
    return version_of(row, engine.sealer)


@dataclass(frozen=True, slots=True)
class Flow:
    """One run. Every act is a second after the one before where the clock is the test's own."""

    engine: Engine
    run_id: UUID
    steps: int

    @classmethod
    async def begun(
        cls, engine: Engine, *, steps: int = 2, tells_before: bool = False, version: Version | None = None
    ) -> "Flow":
        version = version or await put_workflow(engine, steps=steps, tells_before=tells_before)
        run = NewRun(new_id(), b"{}")
        async with engine.db.transaction() as session:
            assert await runs.begin_run(session, version, run, PERSON, engine.clock) == "accepted"
        return cls(engine, run.id, len(version.workflow.steps))

    def _tick(self) -> None:
        if isinstance(self.engine.clock, ManualClock):
            self.engine.clock.advance(1)

    async def claim(self) -> Job:
        self._tick()
        return await self.engine.claim_one(queues=(QUEUE,))

    async def succeed(self, job: Job | None = None, output: bytes = b"{}") -> Settled:
        job = job or await self.claim()
        self._tick()
        settlement = Settlement(job, Success(200), Succeed(), NO_EXCHANGE, 0.1, output)
        (settled,) = await self.engine.tasks.settle([settlement])
        return settled

    async def die(self, job: Job | None = None) -> Job:
        job = job or await self.claim()
        self._tick()
        await self.engine.kill(job)
        return job

    async def replay(
        self, index: int, mode: Mode = "FROM_STEP", *, new_key: bool = False
    ) -> RunRefusal | Refusal | None:
        self._tick()
        wanted = Replay(mode, new_key=new_key, at_once=True)
        async with self.engine.app.tenant(self.engine.org_id) as session:
            return await replays.replay_run(session, self.run_id, index, wanted, PERSON, self.engine.clock, roll=0.5)

    async def cancel(self) -> RunRefusal | None:
        self._tick()
        async with self.engine.app.tenant(self.engine.org_id) as session:
            return await runs.cancel_run(session, self.run_id, PERSON, self.engine.clock)

    async def statuses(self) -> tuple[str, list[str]]:
        """Of the run, and of its steps, as people see them."""
        async with self.engine.app.tenant(self.engine.org_id) as session:
            run = await runs.get_run(session, self.run_id)
            known = {row["index"]: status_of(row).value for row in await runs.get_steps(session, self.run_id)}
        assert run is not None
        return run["status"], [known.get(index, "PENDING") for index in range(self.steps)]
