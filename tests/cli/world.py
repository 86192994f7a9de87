"""An org with an endpoint on a real database, and the few steps that bring tasks into every state.

Built on the store alone: what the engine would do is done by hand, one step at a time.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from redrive.core.decide import Decision, Die, Reason, RetryIn, Succeed
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.ports import NO_EXCHANGE, Job, Released, Settlement
from redrive.core.presets import PresetOverrides, presets
from redrive.core.workflow import Workflow
from redrive.store import dead_letters, edits, operations, pausing, retry_queue
from redrive.store.audit import Act
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.dead_messages import DeadMessages
from redrive.store.edits import Edit
from redrive.store.endpoints import Endpoints, EndpointSpec
from redrive.store.events import NewEvent, accept, accept_test
from redrive.store.operation_steps import OperationSteps
from redrive.store.operations import OperationSpec
from redrive.store.orgs import ensure_org, new_id
from redrive.store.pausing import PauseScope
from redrive.store.runs import NewRun, begin_run
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks
from redrive.store.workflows import put_workflow, version_of
from support.dead_messages import dead_message
from support.engine import Ways, claim_due

ACT = Act("test", "because of a test")
CLOCK = DatabaseClock()
SECRET_KEY = "a secret key of the tests"
BROKEN = Failure(Category.SERVER_ERROR, "the receiver answered 503", status_code=503)


@dataclass
class World:
    url: str = field(repr=False)  # has the password in it
    engine: Database
    app: Database
    org_id: UUID
    endpoint_id: UUID

    async def accept(self, event_type: str = "order.paid", *, policy: str | None = None, body: bytes = b"{}") -> UUID:
        """One event for the endpoint; its id."""
        event = NewEvent(self.org_id, new_id(), event_type, body, endpoint_id=self.endpoint_id, policy=policy)
        [receipt] = await accept(self.engine, [event], CLOCK)
        assert receipt.verdict == "accepted"
        return event.id

    async def run(self, *, steps: int = 1) -> UUID:
        """The id of a run that has just begun, whose steps nobody takes."""
        given = [{"name": f"s{n}", "kind": "handler", "handler": "nobody"} for n in range(steps)]
        workflow = Workflow.from_spec("flow", {"steps": given})
        async with self.engine.tenant(self.org_id) as session:
            row, _ = await put_workflow(session, workflow, ACT, CLOCK, None)
            run = NewRun(new_id(), b"{}")
            assert await begin_run(session, version_of(row), run, ACT, CLOCK) == "accepted"
        return run.id

    async def to_inbox(self, event_type: str = "nobody.listens") -> UUID:
        event = NewEvent(self.org_id, new_id(), event_type, b"{}")
        [receipt] = await accept(self.engine, [event], CLOCK)
        assert receipt.status == "received"
        return event.id

    async def claim(self, limit: int = 1) -> list[Job]:
        return (await claim_due(Tasks(self.engine, CLOCK), limit)).jobs

    async def claim_one(self) -> Job:
        [job] = await self.claim()
        return job

    async def settle(self, job: Job, outcome: Outcome | None, decision: Decision | Released) -> None:
        [settled] = await Tasks(self.engine, CLOCK).settle([Settlement(job, outcome, decision, NO_EXCHANGE, 0.01)])
        assert settled.held_lease

    async def succeed(self, job: Job) -> None:
        await self.settle(job, Success(200), Succeed())

    async def fail(self, job: Job, delay_s: float = 0.0) -> None:
        await self.settle(job, BROKEN, RetryIn(timedelta(seconds=delay_s)))

    async def release(self, job: Job) -> None:
        await self.settle(job, None, Released("given back"))

    async def die(self, job: Job) -> None:
        await self.settle(job, BROKEN, Die(Reason.EXHAUSTED, Category.SERVER_ERROR))

    async def leased(self) -> Job:
        """A new task under lease."""
        await self.accept()
        return await self.claim_one()

    async def succeeded(self) -> Job:
        """A new task that failed once, was given back once, and succeeded: three fences."""
        await self.fail(await self.leased())
        await self.release(await self.claim_one())
        job = await self.claim_one()
        await self.succeed(job)
        return job

    async def retrying(self) -> Job:
        """A new task that failed twice, waiting for its next try."""
        await self.fail(await self.leased())
        job = await self.claim_one()
        await self.fail(job, delay_s=300)
        return job

    async def dead(self, event_type: str = "order.paid", *, policy: str | None = None) -> UUID:
        """The task id of a new dead letter."""
        await self.accept(event_type, policy=policy)
        job = await self.claim_one()
        await self.die(job)
        return job.id

    async def dead_message(self, *, retries: int = 2) -> UUID:
        """The task id of a new dead letter that was retried, and died, in a queue of a broker."""
        assert await DeadMessages(self.engine, self.org_id, CLOCK).keep([dead_message(retries=retries)]) == [True]
        newest = DeadLetterFilter(kind="rabbitmq")
        async with self.app.tenant(self.org_id) as session:
            page = await dead_letters.list_dead_letters(session, newest, limit=1, after=None)
        task_id: UUID = page.rows[0]["id"]
        return task_id

    async def failed_test(self) -> UUID:
        """The task id of a new test delivery that failed."""
        event = NewEvent(self.org_id, new_id(), "redrive.test", b"{}", endpoint_id=self.endpoint_id)
        async with self.engine.tenant(self.org_id) as session:
            assert (await accept_test(session, event, ACT, CLOCK)).verdict == "accepted"
        job = await self.claim_one()
        await self.die(job)
        return job.id

    async def redrive(self, task_id: UUID, *, at_once: bool = False) -> None:
        async with self.app.tenant(self.org_id) as session:
            assert await dead_letters.redrive(session, task_id, ACT, CLOCK, roll=0.5, at_once=at_once) is None

    async def replay(self, task_id: UUID, body: bytes) -> None:
        async with self.app.tenant(self.org_id) as session:
            assert await edits.replay(session, task_id, ACT, CLOCK, edit=Edit(body=body), roll=0.5) is None

    async def mark(self, task_id: UUID, verb: str) -> None:
        async with self.app.tenant(self.org_id) as session:
            assert await dead_letters.mark(session, task_id, verb, ACT) is None

    async def skip(self, task_id: UUID) -> None:
        async with self.app.tenant(self.org_id) as session:
            assert await retry_queue.skip(session, task_id, ACT, CLOCK) is None

    async def bulk_skip(self, *task_ids: UUID) -> UUID:
        """The id of an operation that was carried out."""
        return await self._begun(OperationSpec("retry_queue", "skip", task_ids))

    async def bulk_ignore_slowly(self, *task_ids: UUID) -> UUID:
        """The id of an operation of which the first item was done, and the next is not for a while."""
        return await self._begun(OperationSpec("dead_letters", "ignore", task_ids, rate_per_s=0.001))

    async def _begun(self, spec: OperationSpec) -> UUID:
        async with self.app.tenant(self.org_id) as session:
            row = await operations.create(session, spec, ACT, CLOCK)
        operation_id: UUID = row["id"]
        await OperationSteps(self.engine, CLOCK).step_of(self.org_id, operation_id)
        return operation_id

    async def set_disabled(self, disabled: bool) -> None:
        async with self.app.tenant(self.org_id) as session:
            await endpoints().update(session, self.endpoint_id, {"disabled": disabled}, ACT)
        await pausing.release(self.engine, self.org_id, CLOCK)

    async def set_paused(self, scope: PauseScope, paused: bool) -> None:
        """Whoever resumes dies before anything is released."""
        change = pausing.pause if paused else pausing.resume
        async with self.engine.tenant(self.org_id) as session:
            assert await change(session, scope, ACT, CLOCK, self.endpoint_id)

    async def letter_state(self, task_id: UUID) -> str | None:
        async with self.app.tenant(self.org_id) as session:
            row = await dead_letters.get_dead_letter(session, task_id)
            return row["letter_state"] if row else None


def endpoints() -> Endpoints:
    return Endpoints(Sealer.from_passphrase(SECRET_KEY))


async def make_org(engine: Database, name: str) -> UUID:
    return await ensure_org(engine, name, presets(PresetOverrides()), overridden=frozenset())


async def world_on(ways: Ways, target: str = "http://127.0.0.1:9/hook") -> World:
    org_id = await make_org(ways.db, "default")
    async with ways.app.tenant(org_id) as session:
        row, _ = await endpoints().create(session, EndpointSpec("billing", target, event_types=("order.*",)), ACT)
    return World(ways.url, ways.db, ways.app, org_id, row["id"])
