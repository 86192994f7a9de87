"""Leases on tasks: claim what is due, settle what was tried. The engine's only way to the database.

Called by engine.worker through core.ports.TaskStore. Every write is fenced: a lease that was lost changes nothing.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import assert_never
from uuid import UUID

import asyncpg
import msgspec
import structlog

from redrive.core.broker import RETURN_QUEUE
from redrive.core.decide import AwaitPerson, Decision, Die, RetryIn, Succeed
from redrive.core.fingerprint import fingerprint
from redrive.core.outcome import Category, Failure, Success
from redrive.core.policy import Policy, PolicyError
from redrive.core.ports import (
    NO_ENDPOINT,
    Ask,
    Claim,
    Exchange,
    Floor,
    Job,
    Owned,
    Place,
    Released,
    Settled,
    Settlement,
    Stream,
    Survey,
    Woken,
)
from redrive.core.redact import redact_url
from redrive.core.run_states import RunStatus
from redrive.observe import lines
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session, array_or_null, past_deadlocks
from redrive.store.last_errors import LastError, last_errors
from redrive.store.steps import Steps
from redrive.store.wake_floor import START, WakeFloor

_JOB_FIELDS = len(Job._fields)
_KEPT_OF_EXCHANGE = Exchange._fields.index("method")  # those before it are kept with an attempt
MAX_STREAMS = 100_000  # in one survey
MAX_EXPEDITED = 128  # streams, in one claim
MAX_WOKEN = 2_000  # wake-ups at a time
MAX_ERROR_CHARS = 4_000
MAX_STACK_CHARS = 16_000

log = structlog.get_logger("redrive.tasks")


class Tasks:
    """On connections of its own, or within one transaction: then what the database refuses ends that."""

    def __init__(self, db: Database | Session, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._wake_floor = WakeFloor()
        self._steps = Steps(clock)

    async def survey(self, queues: Sequence[str]) -> Survey:
        rows = await self._db.fetch("survey", self._clock.now(), list(queues), MAX_STREAMS)
        found = [(_stream(row), row) for row in rows if row["queue"] is not None]
        return Survey(
            now=rows[0]["now"],
            due_at={stream: row["due_at"] for stream, row in found},
            lost=frozenset(stream for stream, row in found if row["is_lost"]),
            deleted=frozenset(stream.place for stream, row in found if row["is_deleted"]),
        )

    async def claim(self, asks: Sequence[Ask], *, limit: int, worker_id: UUID, margin_s: float) -> Claim:
        if not asks:
            return Claim([], 0, {})
        claim = partial(
            self._db.fetch,
            "claim",
            self._clock.now(),
            [ask.stream.place.queue for ask in asks],
            [ask.stream.place.org_id for ask in asks],
            [ask.stream.place.id for ask in asks],
            [ask.stream.is_retry for ask in asks],
            [ask.most for ask in asks],
            [ask.floor.due_at for ask in asks],
            [ask.floor.task_id for ask in asks],
            limit,
            worker_id,
            margin_s,
            [ask.due_until for ask in asks] if any(ask.due_until for ask in asks) else None,
        )
        rows = await past_deadlocks(claim)
        jobs = [Job(*row[:_JOB_FIELDS]) for row in rows if row["state"] == "leased"]
        found = [row for row in rows if row["state"] != "barred"]
        if len(jobs) < len(found):
            lines.say_all("task_held", [_held(row) for row in found if row["state"] == "held"])
        begun = [_begun(row) for row in rows if row["begins"]]
        if begun:
            lines.say_all("run_transition", begun)
        taken = Counter([row["number"] for row in found])
        last = {row["number"]: row for row in found}
        is_full = len(found) >= limit
        return Claim(
            jobs=jobs,
            held=len(found) - len(jobs),
            ends={
                ask.stream: Floor(last[number]["due_at"], last[number]["id"]) if number in last else ask.floor
                for number, ask in enumerate(asks, start=1)
                if is_full or taken[number] >= ask.most
            },
            barred=frozenset(asks[row["number"] - 1].stream.place for row in rows if row["state"] == "barred"),
            late_s=[
                (row["now"] - row["due_at"]).total_seconds()
                for row in rows
                if row["attempts"] and row["state"] == "leased" and not row["lost"]
            ],
        )

    async def expedited(self, queues: Sequence[str]) -> list[Ask]:
        rows = await self._db.fetch("find_expedited", self._clock.now(), list(queues), MAX_EXPEDITED)
        return [
            Ask(
                Stream(Place(row["queue"], row["org_id"], row["place"]), row["is_retry"]),
                row["n"],
                Floor(row["due_at"] - timedelta(microseconds=1), NO_ENDPOINT),
                row["due_at"],
            )
            for row in rows
        ]

    async def own(self, places: Sequence[Place], worker_id: UUID, for_s: float) -> list[Owned]:
        # Deliveries to an endpoint and steps that call it are two places, but one endpoint.
        wanted = list({(place.org_id, place.id) for place in places})
        rows = await self._db.fetch(
            "own_endpoints",
            self._clock.now(),
            [org_id for org_id, _ in wanted],
            [id for _, id in wanted],
            worker_id,
            for_s,
        )
        found = {(row["org_id"], row["endpoint_id"]): row for row in rows}
        return [
            Owned(
                place,
                row["max_in_flight"],
                row["rate_per_s"],
                row["paced_until"],
                row["breaker"],
                row["breaker_since"],
                row["is_new"],
                row["now"],
            )
            for place in places
            if (row := found.get((place.org_id, place.id))) is not None
        ]

    async def disown(self, worker_id: UUID) -> None:
        await self._db.execute("disown_endpoints", worker_id)

    async def wake_lanes(self, *, from_start: bool = False) -> Woken:
        began = time.monotonic()
        after = START if from_start else self._wake_floor.begin(began)
        rows = await self._db.fetch("wake_lanes", MAX_WOKEN, self._clock.now(), after)
        seen = rows[0]
        more = bool(seen["seen"] == MAX_WOKEN)
        if seen["is_ours"]:
            looked = {"after": after, "last": seen["last"], "done_to": seen["done_to"], "more": more}
            self._wake_floor.note(began, time.monotonic(), **looked)
        return Woken([_stream(row) for row in rows if row["queue"] is not None], more)

    async def settle(self, settlements: Sequence[Settlement], worker_id: UUID | None = None) -> list[Settled]:
        """Write decisions. What a person changes at the same time may stand in the way: the server breaks one up."""
        steps = [s for s in settlements if s.job.run_id is not None]
        others = settlements if not steps else [s for s in settlements if s.job.run_id is None]
        settled = await self._settled(others, worker_id, self._settle) if others else []
        if steps:
            settled += await self._settled(steps, worker_id, self._settle_steps)
        return settled

    async def _settled(
        self,
        settlements: Sequence[Settlement],
        worker_id: UUID | None,
        settle: Callable[[Sequence[Settlement], UUID | None], Awaitable[list[Settled]]],
    ) -> list[Settled]:
        try:
            return await past_deadlocks(partial(settle, settlements, worker_id))
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
            log.error("settlement_refused", error_type=type(error).__name__, tasks=len(settlements))
            return await self._one_by_one(settlements, worker_id, settle)

    async def _settle_steps(self, settlements: Sequence[Settlement], worker_id: UUID | None) -> list[Settled]:
        """Steps of runs: what follows them is enqueued in the transaction that settles them."""
        if isinstance(self._db, Session):
            settled = await self._settle(settlements, worker_id)
            await self._steps.go_on(self._db, settled)
            return settled
        async with self._db.transaction() as session:
            settled = await Tasks(session, self._clock)._settle(settlements, worker_id)
            await self._steps.go_on(session, settled)
        return settled

    async def _one_by_one(
        self,
        settlements: Sequence[Settlement],
        worker_id: UUID | None,
        settle: Callable[[Sequence[Settlement], UUID | None], Awaitable[list[Settled]]],
    ) -> list[Settled]:
        """A result that the database refuses must not hold up the others: it is written without what came back."""
        settled: list[Settled] = []
        for settlement in settlements:
            try:
                settled += await settle([settlement], worker_id)
            except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError):
                bare = settlement._replace(exchange=Exchange(status_code=settlement.exchange.status_code))
                settled += await settle([bare], worker_id)
        return settled

    async def _settle(self, settlements: Sequence[Settlement], worker_id: UUID | None) -> list[Settled]:
        # In one order, whoever settles: after lost leases two workers may have results of the same tasks.
        settlements = sorted(settlements, key=lambda s: s.job.id.bytes)
        succeeded = [s for s in settlements if isinstance(s.decision, Succeed)]
        failed = [s for s in settlements if not isinstance(s.decision, Succeed)]
        settled: list[Settled] = []
        if succeeded:
            settled += await self._close_succeeded(succeeded, worker_id)
        if failed:
            settled += await self._close_failed(failed, worker_id)
        return settled

    async def _close_succeeded(self, succeeded: Sequence[Settlement], worker_id: UUID | None) -> list[Settled]:
        row = await self._db.fetchrow("settle_succeeded", self._clock.now(), *_success_columns(succeeded), worker_id)
        assert row is not None
        if row["n"] == len(succeeded):
            return [Settled(s, True, None) for s in succeeded]
        return await self._keep_late(succeeded)

    async def _close_failed(self, failed: Sequence[Settlement], worker_id: UUID | None) -> list[Settled]:
        untried = [s.job for s in failed if s.outcome is None and isinstance(s.decision, Die) and s.job.attempts]
        errors = await last_errors(self._db, [job.org_id for job in untried], [job.id for job in untried])
        columns = [array_or_null(column) for column in zip(*(_failure_row(s, errors) for s in failed), strict=True)]
        rows = await self._db.fetch("settle_failed", self._clock.now(), *columns, worker_id)
        closed = {(row["id"], row["fence"]): (row["due_at"], row["now"], _message(errors, row["id"])) for row in rows}
        late = [s for s in failed if (s.job.id, s.job.fence) not in closed]
        return [
            *(Settled(s, True, *closed[s.job.id, s.job.fence]) for s in failed if (s.job.id, s.job.fence) in closed),
            *(await self._keep_late(late) if late else ()),
        ]

    async def _keep_late(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Of settlements that closed nothing, or not all: record those that came too late beside the loss.

        The others were in time: settled just now, or by a call that was broken off.
        """
        rows = await self._db.fetch(
            "late_result",
            self._clock.now(),
            [s.job.org_id for s in settlements],
            [s.job.id for s in settlements],
            [s.job.fence for s in settlements],
            [_result_of(s) for s in settlements],
            [s.exchange.status_code for s in settlements],
            [s.exchange.url for s in settlements],
        )
        in_time = {(row["task_id"], row["fence"]) for row in rows}
        return [Settled(s, (s.job.id, s.job.fence) in in_time, None) for s in settlements]

    async def policies(self, keys: Sequence[tuple[UUID, UUID]]) -> dict[UUID, Policy]:
        """Policies by id, as they were when the tasks were accepted. One that cannot be read is left out, and said."""
        rows = await self._db.fetch("policies_by_id", [org for org, _ in keys], [id for _, id in keys])
        found: dict[UUID, Policy] = {}
        for row in rows:
            try:
                found[row["id"]] = Policy.from_spec(msgspec.json.decode(row["spec"]))
            except PolicyError as error:
                log.error("policy_unreadable", policy=row["name"], policy_id=str(row["id"]), error=str(error))
        return found

    async def disable_endpoint(
        self, org_id: UUID, endpoint_id: UUID, reason: str, *, tried_url: str | None = None
    ) -> bool:
        """Unless it leads elsewhere by now: what the old address answered says nothing of the new one."""
        found = await self._db.fetchrow("endpoints_by_id", [org_id], [endpoint_id])
        if found is None:
            return False
        url: str | None = found["url"]
        if tried_url is not None and url is not None and redact_url(url) != tried_url:
            return False
        row = await self._db.fetchrow("disable_endpoint", self._clock.now(), org_id, endpoint_id, reason, url, None)
        return row is not None

    async def release_held(self, limit: int) -> int:
        row = await self._db.fetchrow("release_held", None, limit, self._clock.now())
        assert row is not None
        count: int = row["n"]
        return count


def _message(errors: Mapping[UUID, LastError], task_id: UUID) -> str | None:
    return errors[task_id].message if task_id in errors else None


def _stream(row: Record) -> Stream:
    return Stream(Place(row["queue"], row["org_id"], row["place"]), row["is_retry"])


def _result_of(settlement: Settlement) -> str:
    if settlement.outcome is None:
        return "released"
    return "succeeded" if isinstance(settlement.outcome, Success) else "failed"


def _success_columns(settlements: Sequence[Settlement]) -> list[Sequence[object] | None]:
    jobs = [s.job for s in settlements]
    return [
        [job.org_id for job in jobs],
        [job.id for job in jobs],
        [job.fence for job in jobs],
        [s.took_s for s in settlements],
        *map(array_or_null, zip(*[s.exchange[:_KEPT_OF_EXCHANGE] for s in settlements], strict=True)),
    ]


def _failure_row(s: Settlement, errors: Mapping[UUID, LastError]) -> tuple[object, ...]:
    job, exchange, failure = s.job, s.exchange, s.outcome
    assert not isinstance(failure, Success)
    verdict, delay_s, reason, category, message = _verdict(s.decision, failure)
    why = None
    if job.id in errors:
        why, (category, message) = message, errors[job.id]
    # A message that came from a broker failed in the queue that it is named after.
    place = str(job.endpoint_id or (job.event_type if job.queue == RETURN_QUEUE else job.queue))
    return (
        job.org_id,
        job.id,
        job.fence,
        verdict,
        0 if failure is None else 1,
        delay_s,
        reason,
        category,
        fingerprint(job.kind, place, category, message) if reason else None,
        _storable(message, MAX_ERROR_CHARS),
        _storable(failure.stack or f"{category}: {message}", MAX_STACK_CHARS) if failure else None,
        s.took_s,
        exchange.status_code,
        exchange.url,
        exchange.request_headers,
        exchange.response_headers,
        exchange.response_body,
        exchange.truncated,
        failure.possible_duplicate if failure else isinstance(s.decision, Released) and s.decision.possible_duplicate,
        why,
    )


def _verdict(
    decision: Decision | Released, failure: Failure | None
) -> tuple[str, float | None, str | None, Category, str]:
    category = failure.category if failure else Category.TIMEOUT
    message = failure.message if failure else "No try was made."
    match decision:
        case RetryIn(delay=delay):
            return "retry", delay.total_seconds(), None, category, message
        case AwaitPerson():
            return "await", None, None, category, message
        case Die(reason=reason, category=category):
            if failure is None:
                message = f"No further try was made: {_WHY_NOT[reason.value]}."
            return "die", None, reason.value, category, message
        case Released(why=why, delay_s=delay_s):
            return "release", delay_s, None, category, why
        case Succeed():
            raise AssertionError("a success is settled with the others of its kind")
    assert_never(decision)


_WHY_NOT = {
    "exhausted": "its retries are used up, the last one lost with its worker",
    "expired": "it is older than its policy allows",
    "permanent": "it cannot succeed",
    "skipped": "a person skipped it",
}


def _held(row: Record) -> dict[str, object]:
    """A task that may not be tried now: its endpoint, its org or the installation is paused, or it is disabled."""
    named = {"event_id": row["event_id"], "task": row["id"], "org_id": row["org_id"], "endpoint_id": row["endpoint_id"]}
    retries = {"attempt": row["attempts"] + 1, "correlation_id": row["correlation_id"]}
    return named | retries


def _begun(row: Record) -> dict[str, object]:
    """A run whose first step was just leased."""
    return {
        "run_id": str(row["run_id"]),
        "workflow": row["event_type"].rpartition(".")[0],
        "org_id": str(row["org_id"]),
        **lines.who(row["submitted_by"]),
        "old_status": RunStatus.PENDING.value,
        "new_status": RunStatus.RUNNING.value,
        "correlation_id": row["correlation_id"],
    }


def _storable(text: str, limit: int) -> str:
    """PostgreSQL's text takes no NUL and no lone surrogate."""
    return text[:limit].replace("\x00", "\\0").encode("utf-8", "replace").decode("utf-8")
