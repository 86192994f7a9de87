"""Everybody at once: producers, workers, people, operations, pauses, removals. Nothing is lost or counted twice."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from uuid import UUID

import asyncpg

from redrive.app import open_sweeper
from redrive.core.operations import Canary, Command
from redrive.core.outcome import Success
from redrive.core.policy import Policy
from redrive.core.ports import HTTP_QUEUE, Job, Released, Try
from redrive.engine.janitor import Janitor
from redrive.engine.operations import run_operations
from redrive.engine.releaser import Releaser
from redrive.settings import Settings
from redrive.store import edits, operations, policies, reported
from redrive.store.check import check
from redrive.store.edits import Edit, EditError
from redrive.store.operation_steps import OperationSteps
from redrive.store.operations import OperationSpec
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope
from redrive.store.policies import Binding
from support.engine import PERSON, REFUSED, UNAVAILABLE, Engine, open_engine

FOR_S = 2.5
SEED = 7
SHORT = {
    "kind": "immediate",
    "delays_s": [0.05],
    "max_retries": 2,
    "timeout_s": 5,
    "retention": {"delivered_s": 1, "failed_s": 2, "dead_s": 3},
}
BULK = [
    ("retry_queue", "retry"),
    ("retry_queue", "skip"),
    ("dead_letters", "retry"),
    ("dead_letters", "retry"),
    ("dead_letters", "resolve"),
    ("dead_letters", "ignore"),
    ("dead_letters", "delete"),
    ("dead_letters", "reopen"),
]


class Fickle:
    """A destination that succeeds, fails or gives back as it likes, and remembers what it called a success."""

    queues: Sequence[str] = (HTTP_QUEUE,)

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.succeeded: Counter[UUID] = Counter()

    async def prepare(self, jobs: Sequence[Job]) -> None: ...

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        await asyncio.sleep(self._dice.random() * 0.01)
        roll = self._dice.random()
        if roll < 0.05:
            return Released("no room")
        if roll < 0.55:
            return Try(UNAVAILABLE if roll < 0.45 else REFUSED)
        self.succeeded[job.id] += 1
        return Try(Success(200))

    async def aclose(self) -> None: ...


class Crowd:
    """What people and programs do, each act again and again."""

    def __init__(self, engine: Engine, endpoints: list[UUID], dice: random.Random) -> None:
        self._engine, self._endpoints, self._dice = engine, endpoints, dice
        self._events: list[UUID] = []
        self.problems: Counter[str] = Counter()
        self.acts: list[Callable[[], Awaitable[object]]] = [
            *(self.produce, self.repeat, self.repeat, self.remove_repeated, self.remove_repeated),
            *(self.report, self.remove_reported, self.mark_failed, self.acknowledge, self.remove),
            *(self.hurry, self.skip, self.redrive, self.redrive, self.mark, self.edit),
            *(self.pause, self.disable, self.replace_endpoint, self.change_policy),
            *(self.operate, self.operate, self.sweep, self.check),
        ]

    async def forever(self, act: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await act()
            except (asyncpg.PostgresError, AssertionError) as error:
                self.problems[f"{act.__name__}: {type(error).__name__}: {error}"] += 1
            await asyncio.sleep(self._dice.random() * 0.02)

    def _some(self, things: Sequence[UUID]) -> UUID:
        return self._dice.choice(things) if things else new_id()

    async def _tasks(self, where: str) -> list[UUID]:
        rows = await self._engine.sql.fetch(f"SELECT id FROM redrive.task WHERE {where} ORDER BY random() LIMIT 50")
        return [row["id"] for row in rows]

    async def produce(self) -> None:
        types, names = ("a.x", "b.y", "for nobody"), (None, "short")
        events = [self._engine.new_event(self._dice.choice(types), policy=self._dice.choice(names)) for _ in range(20)]
        events[0] = events[0]._replace(endpoint_id=self._endpoints[0])
        receipts = await self._engine.accept_all(events)
        assert {receipt.verdict for receipt in receipts} == {"accepted"}
        self._events += [event.id for event in events]

    async def repeat(self) -> None:
        """The same few ids over and over, while others remove them."""
        event = self._engine.new_event("for nobody", id=UUID(int=self._dice.randrange(1, 3)))
        (receipt,) = await self._engine.accept_all([event])
        assert receipt.verdict in ("accepted", "duplicate"), receipt

    async def remove_repeated(self) -> None:
        await self._engine.delete_event(UUID(int=self._dice.randrange(1, 3)))

    async def report(self) -> None:
        event_id = UUID(int=self._dice.randrange(5, 8))
        event = self._engine.new_event("a.x", id=event_id, endpoint_id=self._endpoints[0], policy="short")
        added = await reported.add_failed(self._engine.db, event, UNAVAILABLE, self._engine.clock, roll=0.5)
        assert added.task_id is not None

    async def remove_reported(self) -> None:
        await self._engine.delete_event(UUID(int=self._dice.randrange(5, 8)))

    async def mark_failed(self) -> None:
        task_id = self._some(await self._tasks("state = 'waiting' AND attempts > 0"))
        async with self._engine.app.tenant(self._engine.org_id) as session:
            await reported.mark_failed(session, task_id, UNAVAILABLE, PERSON, self._engine.clock)

    async def acknowledge(self) -> None:
        await self._engine.acknowledge(self._some(self._events))

    async def remove(self) -> None:
        await self._engine.delete_event(self._some(self._events[-200:]))

    async def hurry(self) -> None:
        await self._engine.retry_now(self._some(await self._tasks("open AND attempts > 0")))

    async def skip(self) -> None:
        await self._engine.skip(self._some(await self._tasks("open AND attempts > 0")))

    async def redrive(self) -> None:
        await self._engine.redrive(self._some(await self._tasks("state = 'dead'")), at_once=True)

    async def mark(self) -> None:
        state = self._dice.choice(("resolved", "ignored", "deleted", "open"))
        await self._engine.mark_letter(self._some(await self._tasks("state = 'dead'")), state)

    async def edit(self) -> None:
        task_id = self._some(await self._tasks("state = 'dead'"))
        policy = self._dice.choice((None, SHORT))
        edit = Edit(body=b'{"edited":1}', discard=self._dice.random() < 0.2)
        try:
            async with self._engine.app.tenant(self._engine.org_id) as session:
                await edits.replay(
                    session, task_id, PERSON, self._engine.clock, edit=edit, policy=policy, roll=0.5, at_once=True
                )
        except EditError:
            return  # it was edited as often as it may be

    async def pause(self) -> None:
        scope, endpoint_id = self._dice.choice(list(PauseScope)), self._some(self._endpoints)
        await self._engine.pause(scope, endpoint_id)
        await asyncio.sleep(self._dice.random() * 0.2)
        await self._engine.resume(scope, endpoint_id)

    async def disable(self) -> None:
        endpoint_id = self._some(self._endpoints[:2])
        await self._engine.change_endpoint(endpoint_id, disabled=True)
        await asyncio.sleep(self._dice.random() * 0.2)
        await self._engine.change_endpoint(endpoint_id, disabled=False)

    async def replace_endpoint(self) -> None:
        await asyncio.sleep(0.5)
        gone = self._endpoints[2]
        self._endpoints[2] = await self._engine.endpoint(f"e{new_id()}", event_types=("b.*",), policy="short")
        await self._engine.delete_endpoint(gone)

    async def change_policy(self) -> None:
        binding = Binding(("b.*",), is_default=self._dice.random() < 0.5)
        async with self._engine.app.tenant(self._engine.org_id) as session:
            await policies.put_policy(session, "bound", Policy.from_spec(SHORT), PERSON, binding)
        await asyncio.sleep(0.1)
        async with self._engine.app.tenant(self._engine.org_id) as session:
            await policies.delete_policy(session, "bound", PERSON)

    async def operate(self) -> None:
        subject, action = self._dice.choice(BULK)
        is_redrive = (subject, action) == ("dead_letters", "retry")
        ids = await self._tasks("state = 'dead'" if subject == "dead_letters" else "open AND attempts > 0")
        by_ids = bool(ids) and self._dice.random() < 0.5
        spec = OperationSpec(
            subject,
            action,
            ids=ids if by_ids else None,
            filter=None if by_ids else {"event_type": "a.x"},
            at_once=True,
            patch={"patched": 1} if is_redrive and self._dice.random() < 0.5 else None,
            canary=Canary((10, 50), 0.9) if self._dice.random() < 0.3 else None,
            rate_per_s=self._dice.choice((None, 100.0)),
        )
        async with self._engine.app.tenant(self._engine.org_id) as session:
            row = await operations.create(session, spec, PERSON, self._engine.clock)
        await asyncio.sleep(self._dice.random() * 0.3)
        for command in self._dice.choice(((), (Command.PAUSE, Command.RESUME), (Command.CANCEL,))):
            async with self._engine.app.tenant(self._engine.org_id) as session:
                await operations.tell(session, row["id"], command, PERSON, self._engine.clock)

    async def sweep(self) -> None:
        janitor = Janitor(
            lambda: open_sweeper(Settings(), self._engine.url, PERSON), every_s=0, dice=lambda: 0.5, rest=0
        )
        await janitor.sweep(rested_s=0)

    async def check(self) -> None:
        report = await check(self._engine.url, grace_s=86_400)
        assert report.clean, report.violations


async def _lift_everything(engine: Engine) -> None:
    for scope in (PauseScope.INSTALLATION, PauseScope.ORG):
        await engine.resume(scope)
    for row in await engine.sql.fetch("SELECT id FROM redrive.endpoint WHERE deleted_at IS NULL"):
        await engine.resume(PauseScope.ENDPOINT, row["id"])
        await engine.change_endpoint(row["id"], disabled=False)


async def test_whatever_everybody_does_at_once_the_books_are_right(database_url: str) -> None:
    dice = random.Random(SEED)
    fickle = Fickle(dice)
    async with open_engine(database_url) as engine, AsyncExitStack() as stack:
        await engine.policy("short", **SHORT)
        endpoints = [await engine.endpoint(f"e{n}", event_types=("a.*",), policy="short") for n in range(3)]
        for _ in range(2):
            worker = await stack.enter_async_context(engine.worker(more=[fickle], poll_s=0.1))
            await stack.enter_async_context(engine.running(worker))
        runners = [
            asyncio.create_task(Releaser(engine.tasks, every_s=0.2).run()),
            *(asyncio.create_task(run_operations(OperationSteps(engine.db, engine.clock))) for _ in range(2)),
        ]
        crowd = Crowd(engine, endpoints, dice)
        people = [asyncio.create_task(crowd.forever(act)) for act in crowd.acts]
        ended, _ = await asyncio.wait([*people, *runners], timeout=FOR_S, return_when=asyncio.FIRST_COMPLETED)
        assert not ended
        for each in people:
            each.cancel()
        await asyncio.gather(*people, return_exceptions=True)

        await _lift_everything(engine)
        # All that a policy of minutes does not put off comes to its end, and so do operations, but for the paused.
        await engine.until(
            "SELECT NOT EXISTS (SELECT FROM redrive.task WHERE open AND due_at < now() + interval '3 s')", within_s=30
        )
        await engine.until("SELECT NOT EXISTS (SELECT FROM redrive.operation WHERE active)", within_s=30)
        for each in runners:
            each.cancel()
        await asyncio.gather(*runners, return_exceptions=True)
        assert crowd.problems == {}
        report = await check(engine.url, grace_s=10)
        assert report.clean, report.violations
        assert {task_id: n for task_id, n in fickle.succeeded.items() if n > 1} == {}
        assert len(fickle.succeeded) > 100
