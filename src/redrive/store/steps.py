"""Going on with runs: what follows when a step has ended, in the transaction that settles it.

Called by store.tasks with what it has just settled. A step's input is rendered here, from the run's input and the
outputs before it, and stored as the body of the event that its task carries out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from redrive.core.decide import Die
from redrive.core.fingerprint import fingerprint
from redrive.core.lifecycle import DeadLetterState
from redrive.core.outcome import Category, Success
from redrive.core.ports import HTTP_STEP_QUEUE, STEP_HANDLER_PREFIX, STEP_QUEUE, Job, Settled
from redrive.core.run_states import RunStatus, step_key
from redrive.core.steps import MAX_OUTPUT_BYTES, Rendered, RunScope, render_step
from redrive.core.workflow import StepKind, StepSpec
from redrive.store.clock import Clock, time_of
from redrive.store.db import Record, Session
from redrive.store.edits import engine_edit
from redrive.store.events import MAX_PAYLOAD_BYTES
from redrive.store.last_errors import LastError, last_errors
from redrive.store.snapshots import keep_payloads
from redrive.store.transitions import tell_of, tell_run
from redrive.store.workflows import Version, Versions

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
ORDERING_KEY = "ordering-key"  # of an event to be emitted: kept with the headers of the step's own
MAX_CONTENT_BYTES = 8 * 1024 * 1024  # of runs that are gone on with together: inputs and outputs
ATTEMPTS = "workflow.step_attempts"
RETRIES = "workflow.step_retries"

_TOO_LARGE = f"was larger than {MAX_OUTPUT_BYTES} bytes, and was not kept"


class Next(NamedTuple):
    """A step that a run has come to. The fields are the columns of enqueue_steps."""

    org_id: UUID
    run_id: UUID
    step: int
    name: str
    queue: str
    event_type: str
    endpoint_id: UUID | None
    policy: str | None
    policy_id: UUID | None
    external_system: str | None
    body: bytes
    headers: str | None
    url: str | None
    problem: str | None
    due_in_s: float


def queue_of(step: StepSpec) -> str:
    """What a worker must be able to do. Calls over HTTP, which may hang, do not stand in the way of the others."""
    match step.kind:
        case StepKind.HTTP:
            return HTTP_STEP_QUEUE
        case StepKind.HANDLER:
            return f"{STEP_HANDLER_PREFIX}{step.handler}"
        case _:
            return STEP_QUEUE


def scope_of(version: Version, run: Record | Mapping[str, object], outputs: Mapping[str, bytes | None]) -> RunScope:
    """What the templates of a run's next step see. An output that is None was not kept."""
    run_id, correlation_id, given = run["id"], run["correlation_id"], run["input"]
    assert isinstance(given, bytes)
    return RunScope(
        run_id=str(run_id),
        workflow=version.workflow.name,
        version=version.number,
        correlation_id=None if correlation_id is None else str(correlation_id),
        input=msgspec.json.decode(given),
        outputs={name: msgspec.json.decode(output) for name, output in outputs.items() if output is not None},
        absent={name: _TOO_LARGE for name, output in outputs.items() if output is None},
    )


def overrides_of(run: Record) -> dict[int, UUID]:
    """By their indexes: the steps that a person replayed under another policy, and which."""
    given: str | None = run["overrides"]
    return {} if given is None else msgspec.json.decode(given, type=dict[int, UUID])


def kept_outputs(ended: Iterable[tuple[str, bytes | None, bool]]) -> dict[str, bytes | None]:
    """By the names of the steps. None: it was too large to be kept."""
    return {name: None if is_cut else output or b"null" for name, output, is_cut in ended}


def next_step(version: Version, run_id: UUID, index: int, scope: RunScope, key: str, now: datetime) -> Next:
    """A step made ready: its input rendered. What cannot be rendered is said in it, for its dead letter to tell."""
    step = version.workflow.steps[index]
    rendered: Rendered = render_step(step, index, scope, key, now, max_bytes=MAX_PAYLOAD_BYTES)
    binding = version.bindings[index]
    headers = rendered.headers
    if rendered.ordering_key is not None:
        headers = {ORDERING_KEY: rendered.ordering_key}
    return Next(
        version.org_id,
        run_id,
        index,
        step.name,
        queue_of(step),
        f"{version.workflow.name}.{step.name}",
        binding.endpoint_id if step.kind is StepKind.HTTP else None,
        step.policy if isinstance(step.policy, str) else None,
        binding.policy_id,
        step.external_system,
        rendered.body,
        msgspec.json.encode(headers).decode() if headers else None,
        rendered.url,
        rendered.problem,
        rendered.due_in_s,
    )


async def time_for(session: Session, step: StepSpec, clock: Clock) -> datetime:
    """The time by which a step is made ready. Only what waits until a time needs to know."""
    return NO_TIME if step.until is None else await time_of(session, clock)


async def enqueue(session: Session, steps: Sequence[Next], clock: Clock) -> None:
    """Their runs are locked. Twice enqueued is once executed."""
    if steps:
        await session.execute("enqueue_steps", *map(list, zip(*steps, strict=True)), clock.now())


class Steps:
    """What the engine's settlements of steps lead to."""

    def __init__(self, clock: Clock, versions: Versions | None = None) -> None:
        self._clock = clock
        self._versions = versions or Versions()

    async def go_on(self, session: Session, settled: Sequence[Settled]) -> None:
        """`session`: the transaction in which these were settled."""
        ours = [result for result in settled if result.held_lease]
        succeeded = [result for result in ours if isinstance(result.settlement.outcome, Success)]
        others = [result for result in ours if not isinstance(result.settlement.outcome, Success)]
        if succeeded:
            await self._advance(session, succeeded)
        if others:
            cancelled = await self._end_cancelled(session, others)
            for result in others:
                if isinstance(result.settlement.decision, Die) and result.settlement.job.id not in cancelled:
                    _tell_death(session, result.settlement.job)
            died = [result.settlement.job for result in others if isinstance(result.settlement.decision, Die)]
            await keep_payloads(session, [(job.org_id, job.id) for job in died])
        await _count(session, ours)

    async def _advance(self, session: Session, succeeded: Sequence[Settled]) -> None:
        jobs = [result.settlement.job for result in succeeded]
        rows = await session.fetch(
            "end_steps",
            self._clock.now(),
            [job.org_id for job in jobs],
            [job.run_id for job in jobs],
            [job.step for job in jobs],
            [job.id for job in jobs],
            [result.settlement.output for result in succeeded],
            [result.settlement.output_is_cut for result in succeeded],
        )
        finished: dict[UUID, tuple[Record, RunStatus]] = {}
        onward: list[tuple[Record, int]] = []
        for row in rows:
            index = _next_index(row)
            if isinstance(index, RunStatus):
                finished[row["id"]] = (row, index)
            else:
                onward.append((row, index))
        for batch in _by_bytes(onward):
            await self._come_to(session, batch)
        if finished:
            await self._finish(session, finished)

    async def _finish(self, session: Session, finished: Mapping[UUID, tuple[Record, RunStatus]]) -> None:
        """No step follows in these, by id. One of whose steps a dead letter is open waits for people again."""
        runs = [(run["org_id"], run["id"], status) for run, status in finished.values()]
        for row in await session.fetch("finish_runs", self._clock.now(), *map(list, zip(*runs, strict=True))):
            tell_of(session, finished[row["id"]][0], RunStatus(row["status"]))
        cancelled = [(org_id, run_id) for org_id, run_id, status in runs if status is RunStatus.FAILED]
        if cancelled:
            await session.execute("close_parked", self._clock.now(), *map(list, zip(*cancelled, strict=True)))

    async def _come_to(self, session: Session, onward: Sequence[tuple[Record, int]]) -> None:
        """Make ready the steps that follow, and enqueue them."""
        keys = [(run["org_id"], run["id"]) for run, _ in onward]
        versions = await self._versions.load(session, [(run["org_id"], run["workflow_id"]) for run, _ in onward])
        rows = await session.fetch("run_contents", [org for org, _ in keys], [id for _, id in keys])
        contents = {row["id"]: row for row in rows}
        following: list[Next] = []
        for run, index in onward:
            others = dict(
                zip(run["others"] or (), zip(run["tasks"] or (), run["keys"] or (), strict=True), strict=True)
            )
            task_id, key = others.get(index, (None, step_key(str(run["id"]), index)))
            step = _made_ready(versions[run["workflow_id"]], run, contents[run["id"]], index, key)
            policy_id = overrides_of(run).get(index)
            if policy_id is not None:
                step = step._replace(policy_id=policy_id)
            if task_id is None or not await _resume(session.of(run["org_id"]), task_id, step, policy_id, self._clock):
                following.append(step)
        await enqueue(session, following, self._clock)

    async def _end_cancelled(self, session: Session, others: Sequence[Settled]) -> set[UUID]:
        """Of a run that was cancelled while its step was tried, nothing is tried again. The tasks of such runs: what
        became of those was told when they were cancelled.
        """
        jobs = [result.settlement.job for result in others]
        rows = await session.fetch("cancelled_steps", [job.org_id for job in jobs], [job.id for job in jobs])
        for row in rows:
            if row["state"] == "waiting":
                await skip_step(session.of(row["org_id"]), row, self._clock)
        return {row["id"] for row in rows}


def _by_bytes(onward: Sequence[tuple[Record, int]]) -> Iterator[list[tuple[Record, int]]]:
    """In batches whose inputs and outputs together are not too large for the memory; one that is larger is alone."""
    batch: list[tuple[Record, int]] = []
    size = 0
    for run, index in onward:
        if batch and size + run["bytes"] > MAX_CONTENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((run, index))
        size += run["bytes"]
    if batch:
        yield batch


def _made_ready(version: Version, run: Record, contents: Record, index: int, key: str) -> Next:
    outputs = kept_outputs(zip(contents["names"], contents["outputs"], contents["cuts"], strict=True))
    seen = {"id": run["id"], "correlation_id": run["correlation_id"], "input": contents["input"]}
    return next_step(version, run["id"], index, scope_of(version, seen, outputs), key, run["now"])


def _tell_death(session: Session, job: Job) -> None:
    """Its run waits for people; the line of the step itself says of what it died."""
    assert job.run_id is not None
    tell_run(
        session,
        RunStatus.RUNNING,
        RunStatus.DLQ_PENDING,
        org_id=job.org_id,
        run_id=job.run_id,
        workflow=job.event_type.rpartition(".")[0],
        correlation_id=job.correlation_id,
        created_by=job.submitted_by,
    )


async def skip_step(session: Session, task: Record, clock: Clock) -> None:
    """End a waiting or held step of a run that was cancelled. Its letter is closed, and the run has failed."""
    errors = await last_errors(session, [session.org_id], [task["id"]])
    category, message = errors.get(task["id"], LastError(Category.UNKNOWN, "The run was cancelled."))
    place = str(task["endpoint_id"] or task["queue"])
    cause = fingerprint(task["kind"], place, category, message)
    await session.execute("skip_task", session.org_id, task["id"], clock.now(), category.value, cause, message)
    await keep_payloads(session, [(session.org_id, task["id"])])


def _next_index(run: Record) -> int | RunStatus:
    """The step that follows the one that has just succeeded; or where the run ends. What has succeeded before, and was
    not asked for again, is passed over.
    """
    done = {run["index"], *(run["done"] or ())}
    following = next((index for index in range(run["index"] + 1, run["steps"]) if index not in done), None)
    if following is None or run["stop_after"] == run["index"]:
        return RunStatus.SUCCESS if len(done) == run["steps"] else RunStatus.PARTIAL
    return following if run["cancelled_at"] is None else RunStatus.FAILED


async def _resume(session: Session, task_id: UUID, step: Next, policy_id: UUID | None, clock: Clock) -> bool:
    """The run has come to a step that had died: its own task is tried again, with the input as it is now.

    `policy_id`: of the replay's override. False: its letter was deleted, so that another task is needed.
    """
    letter = await session.fetchrow("lock_dead_letter", session.org_id, task_id)
    assert letter is not None, "what died has a letter"
    if letter["state"] == DeadLetterState.DELETED:
        await session.execute("reset_steps", session.org_id, step.run_id, [step.step])
        return False
    edit = None if step.problem is not None else await engine_edit(session, letter, step.body, clock)
    given = (clock.now(), edit, step.url, step.problem, step.headers or "{}", step.due_in_s, policy_id)
    await session.execute("resume_step", session.org_id, task_id, *given)
    return True


async def _count(session: Session, settled: Sequence[Settled]) -> None:
    counts: Counter[tuple[UUID, str]] = Counter()
    for result in settled:
        job, outcome = result.settlement.job, result.settlement.outcome
        # A lost try is known when its task is taken over.
        tries = (outcome is not None) + job.lost
        if not tries:
            continue
        counts[job.org_id, ATTEMPTS] += tries
        counts[job.org_id, RETRIES] += outcome is not None and job.attempts > 0
    if counts:
        names = sorted(counts)
        amounts = [counts[name] for name in names]
        await session.execute("count_steps", [org for org, _ in names], [name for _, name in names], amounts)
