"""The retry queue and the dead letters, for programs that try something themselves and hand over what failed.

    async with RetryService(app) as service:
        await service.report_failure("edi.orders", {"order": 7}, error)

Thin: each method is a few calls of the store's own functions, the same that the HTTP API uses, and answers in the same
shapes and sentences. Like app.py, it knows everyone.
"""

import asyncio
import contextlib
import math
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any
from uuid import UUID

import structlog

from redrive.api import shapes
from redrive.api.cursors import Cursors, ListPlace
from redrive.api.problems import Problem
from redrive.api.queries import BecauseIn, DeadLettersQuery, RetryQueueQuery
from redrive.app import SEAL_FILE, Stores, open_stores, open_worker, sealer_of
from redrive.core.outcome import Failure, Success
from redrive.core.policy import DEFAULT_MAX_RETRIES, MAX_RETRIES_LIMIT, retry_delay
from redrive.core.ports import Settled, Settlement
from redrive.core.presets import PRESETS
from redrive.engine.transitions import tell
from redrive.library import Redrive
from redrive.retry_service.errors import Id, NotFound, NotPossible, RetryServiceError, error_of, id_of
from redrive.retry_service.reports import failure_reported, reported_event
from redrive.settings import Settings
from redrive.store import dead_letters, orgs, reported, retry_queue
from redrive.store.audit import Act
from redrive.store.clock import Clock, DatabaseClock
from redrive.store.db import Session
from redrive.store.keys import Kind
from redrive.store.policies import terms_of
from redrive.store.retry_queue import Progress, Refusal, Unschedulable
from redrive.store.tasks import Tasks

MAX_BULK_IDS = 1_000
BULK_WAIT_S = 60.0
CONNECTIONS = 4
_POLL_S = 0.1
_ENTRY, _LETTER, _LOG = "retry-queue entry", "dead letter", "integration log"
MAX_USER_ID_CHARS = 200
_ALIASES = {"exponential": "integration"}  # what lists call the policy of that schedule
_UNKNOWN_POLICY_DELAY_S = 5.0  # as the SQL function retry_delay has it

log = structlog.get_logger("redrive.retry_service")

Shape = dict[str, Any]
Action = Callable[[Session, UUID], Awaitable[Refusal | None]]


class Entries(list[Shape]):
    """A page of entries. `pagination` is that of the API: its `cursor` leads to the next page."""

    def __init__(self, data: Iterable[Shape], pagination: Any) -> None:
        super().__init__(data)
        self.pagination: dict[str, Any] = pagination


class RetryService:
    """Works within one org: the app's, unless another is named. `actor` is who the audit names.

    `app` may be a database URL, too, or nothing for the embedded PostgreSQL of this machine: then without handlers.
    """

    def __init__(
        self,
        app: Redrive | str | None = None,
        *,
        org: str | None = None,
        actor: str = "retry-service",
        settings: Settings | None = None,
        clock: Clock | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._app = app if isinstance(app, Redrive) else Redrive(app)
        self._org = org or self._app.org
        self._actor = actor
        self._given_settings = settings
        self._clock = clock or DatabaseClock()
        self._dice = dice
        self._cursors = Cursors(os.urandom(32))  # good for as long as this object is
        self._stack = AsyncExitStack()
        self._opened: tuple[Stores, UUID, Settings] | None = None
        self._webhooks: bool | None = None  # found out on first use

    async def __aenter__(self) -> "RetryService":
        url = self._app.database_url()
        settings = self._given_settings or self._app.settings()
        async with AsyncExitStack() as stack:
            stores = await stack.enter_async_context(
                open_stores(url, size=CONNECTIONS, name="redrive-retry-service", pooler=settings.pooler)
            )
            org_id = await orgs.find_org(stores.engine, self._org)
            if org_id is None:
                raise NotFound(f'There is no org named "{self._org}".')
            self._stack = stack.pop_all()
        self._opened = (stores, org_id, settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = None
        await self._stack.aclose()

    # -- what failed elsewhere -------------------------------------------------------------------------------------

    async def add_to_retry_queue(
        self,
        log_id: Id,
        retry_policy: str = "exponential",
        max_retries: int = DEFAULT_MAX_RETRIES,
        user_id: Id | None = None,
        because: str | None = None,
    ) -> Shape:
        """Put the failed event of an integration log into the retry queue; its entry.

        `retry_policy` is `exponential`, `immediate`, `manual` or the name of a policy. An entry that waits goes on
        under it; a dead letter is redriven, with all its retries. What succeeded, or was not tried yet, is refused.
        """
        _check_max_retries(max_retries)
        act = self._act(user_id, because)

        async def add(session: Session, task_id: UUID) -> Refusal | None:
            terms = await terms_of(session, _ALIASES.get(retry_policy, retry_policy), max_retries)
            if terms is None:
                raise NotFound(f'There is no policy named "{retry_policy}".')
            policy_id, policy = terms
            how = (session, task_id, policy_id, policy, act, self._clock)
            refusal = await retry_queue.replan(*how, roll=self._dice())
            entry = await retry_queue.get_entry(session, task_id) if refusal is Refusal.NOT_OPEN else None
            if entry is None or entry["state"] != "dead":
                return refusal
            refusal = await dead_letters.redrive(session, task_id, act, self._clock, roll=self._dice())
            return refusal or await retry_queue.replan(*how, roll=self._dice())

        return await self._change(log_id, _LOG, add)

    async def report_failure(
        self,
        event_type: str,
        payload: Any,
        error: BaseException | str,
        *,
        handler: str | None = None,
        endpoint_id: Id | None = None,
        policy: str | None = None,
        max_retries: int | None = None,
        external_system: str | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Hand over an event that was tried once and failed; the id of its entry, and of its integration log.

        It is retried by `handler` or at `endpoint_id`; without either, by the handler named like the event type. The
        policy is the one named, else the handler's or endpoint's own, else `integration`; `max_retries` replaces its
        number of retries. It says what follows, as after a worker's try: an error that it does not retry makes a dead
        letter at once. A text instead of an exception is of class `unknown`. The same idempotency key is the same
        entry, and fails once.
        """
        stores, org_id, _ = self._open
        if handler is not None and endpoint_id is not None:
            raise ValueError("it is retried by a handler or at an endpoint, not both")
        _check_max_retries(max_retries)
        name = event_type if handler is None and endpoint_id is None else handler
        event = reported_event(
            org_id,
            event_type,
            payload,
            idempotency_key=idempotency_key,
            endpoint_id=None if endpoint_id is None else id_of(endpoint_id, "endpoint"),
            handler=name,
            policy=policy or (self._app.policy_of(name) if name else None),
            external_system=external_system,
            correlation_id=correlation_id,
        )
        added = await reported.add_failed(
            stores.engine, event, failure_reported(error), self._clock, roll=self._dice(), max_retries=max_retries
        )
        match added.verdict:
            case "no_endpoint":
                raise NotFound("There is no such endpoint.")
            case "no_policy":
                raise NotFound(f'There is no policy named "{event.policy}".')
            case "conflict":
                raise NotPossible("This idempotency key was used for another payload, name, policy or system.")
        assert added.task_id is not None
        if added.settled is not None:
            tell(added.settled, added.max_retries)
        return added.task_id

    async def mark_failed(
        self, retry_id: Id, error: BaseException | str, user_id: Id | None = None, because: str | None = None
    ) -> Shape:
        """A retry was made elsewhere, and was the last: the entry dies with this error, whatever retries were left."""
        failure, act = failure_reported(error), self._act(user_id, because)
        return await self._change(
            retry_id,
            _ENTRY,
            lambda session, task_id: reported.mark_failed(session, task_id, failure, act, self._clock),
        )

    # -- carrying out ----------------------------------------------------------------------------------------------

    async def process_retry_queue(self, limit: int | None = None) -> dict[str, int]:
        """Carry out what is due now, as a worker would, until nothing is: how many tries succeeded, how many failed.

        With the app's handlers, and webhooks where the key that endpoint secrets are sealed with is at hand. Like any
        worker's, the work is that of all orgs, first tries included.
        """
        stores, _, settings = self._open
        tally = _Tally(stores.engine, self._clock)
        if self._webhooks is None:
            self._webhooks = await _may_deliver(stores, settings)
        async with open_worker(
            settings,
            stores.engine,
            handlers=self._app.handlers,
            dice=self._dice,
            store=tally,
            webhooks=self._webhooks,
        ) as worker:
            await worker.run_until_idle(limit)
        return {"succeeded": tally.succeeded, "failed": tally.failed}

    async def manual_retry(self, retry_id: Id, user_id: Id | None = None, because: str | None = None) -> Shape:
        """Retry now. A dead letter is redriven instead: a new generation, due in its policy's first delay."""
        act = self._act(user_id, because)
        return await self._change(retry_id, _ENTRY, lambda session, task_id: self._retry(session, task_id, act))

    async def bulk_retry(
        self,
        retry_ids: Iterable[Id],
        user_id: Id | None = None,
        because: str | None = None,
        *,
        wait_s: float = BULK_WAIT_S,
    ) -> dict[str, int]:
        """Retry all of them now, side by side, and wait for the first try of each: how many succeeded and how many not.

        The tries are made here, or by workers elsewhere, whoever is first. What cannot be retried, or has not been
        tried when the time is over, has not succeeded.
        """
        wanted, act = list(dict.fromkeys(retry_ids)), self._act(user_id, because)
        if len(wanted) > MAX_BULK_IDS:
            raise ValueError(f"at most {MAX_BULK_IDS} at once, not {len(wanted)}")
        if not 0 <= wait_s < math.inf:
            raise ValueError("wait_s is a number of seconds")
        begun: list[Progress] = []
        for one in wanted:
            with contextlib.suppress(RetryServiceError):  # it has not succeeded: counted below
                begun.append(await self._begin(id_of(one, _ENTRY), act))
        succeeded = await self._tried(begun, wait_s)
        return {"succeeded": succeeded, "failed": len(wanted) - succeeded}

    async def _begin(self, task_id: UUID, act: Act) -> Progress:
        """Make it due; where it stands then. One that is being tried already is waited for like the others."""
        async with self._session() as session:
            refusal = await self._retry(session, task_id, act, at_once=True)
            if refusal is not None and refusal is not Refusal.IN_PROGRESS:
                raise await error_of(session, task_id, refusal, _ENTRY, self._clock)
            (progress,) = await retry_queue.progress_of(session, [task_id])
            return progress

    async def _tried(self, begun: Iterable[Progress], wait_s: float) -> int:
        """Wait until each has been tried once; how many have succeeded."""
        untried = {one.id: one for one in begun}
        succeeded = 0
        try:
            async with asyncio.timeout(wait_s) as limit:
                while untried:
                    await self.process_retry_queue()
                    async with self._session() as session:
                        now = await retry_queue.progress_of(session, list(untried))
                    for one in now:
                        if one.is_tried_since(untried[one.id]):
                            del untried[one.id]
                            succeeded += one.state == "succeeded"
                    if untried:
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("bulk_retry_incomplete", untried=len(untried), waited_s=wait_s)
        return succeeded

    async def _retry(self, session: Session, task_id: UUID, act: Act, *, at_once: bool = False) -> Refusal | None:
        refusal = await retry_queue.retry_now(session, task_id, act, self._clock)
        if refusal is Refusal.NOT_OPEN:
            entry = await retry_queue.get_entry(session, task_id)
            if entry is not None and entry["state"] == "dead":
                return await dead_letters.redrive(
                    session, task_id, act, self._clock, roll=self._dice(), at_once=at_once
                )
        return refusal

    # -- a person's hand -------------------------------------------------------------------------------------------

    async def schedule_retry(
        self,
        retry_id: Id,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        user_id: Id | None = None,
        because: str | None = None,
    ) -> Shape:
        """Move the next retry of an entry: to a time (UTC where it names no zone), or by a delay from now, in seconds.

        Without either, by its policy's delay. What is past is now; a policy's reach is the limit.
        """
        if at is not None and delay is not None:
            raise ValueError("a time or a delay, not both")
        if at is not None:
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        delay_s = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if delay_s is not None and not 0 <= delay_s < math.inf:
            raise ValueError("a delay is a number of seconds, 0 or more")

        act = self._act(user_id, because)

        async def move(session: Session, task_id: UUID) -> Refusal | None:
            return await retry_queue.schedule(
                session, task_id, act, self._clock, roll=self._dice(), at=at, delay_s=delay_s
            )

        try:
            return await self._change(retry_id, _ENTRY, move)
        except Unschedulable as problem:
            raise NotPossible(str(problem)) from None

    async def skip_to_dlq(self, retry_id: Id, user_id: Id | None = None, because: str | None = None) -> Shape:
        """Give an entry up: it stands among the dead letters with the reason `skipped`."""
        act = self._act(user_id, because)
        return await self._change(
            retry_id, _ENTRY, lambda session, task_id: retry_queue.skip(session, task_id, act, self._clock)
        )

    async def delete_dlq_entry(self, retry_id: Id, user_id: Id | None = None, because: str | None = None) -> None:
        """Gone from every list; its log and an entry in the audit stay."""
        act = self._act(user_id, because)
        await self._change(
            retry_id, _LETTER, lambda session, task_id: dead_letters.mark(session, task_id, "delete", act)
        )

    # -- looking ---------------------------------------------------------------------------------------------------

    async def get_retry_queue(self, org_id: Id | None = None, **filters: Any) -> Entries:
        """A page of entries as `GET /v1/retry-queue` shows them, with its filters, `limit` and `cursor`.

        `org_id` is the service's own org; it sees no other.
        """
        self._check_org(org_id)
        query = RetryQueueQuery(**filters)
        place, after = self._place("retry-queue", query)
        async with self._session() as session:
            page = await retry_queue.list_retry_queue(session, query.chosen(), limit=query.limit, after=after)
        cursor = self._cursors.write(place, page.next_key) if page.next_key else None
        data = [shapes.entry(row) for row in page.rows]
        return Entries(data, shapes.page((), limit=query.limit, cursor=cursor, total=page.total)["pagination"])

    async def get_dlq(self, org_id: Id | None = None, **filters: Any) -> Entries:
        """The same for `GET /v1/dead-letters`."""
        self._check_org(org_id)
        query = DeadLettersQuery(**filters)
        place, after = self._place("dead-letters", query)
        async with self._session() as session:
            page = await dead_letters.list_dead_letters(session, query.chosen(), limit=query.limit, after=after)
        cursor = self._cursors.write(place, page.next_key) if page.next_key else None
        data = [shapes.dead_letter(row) for row in page.rows]
        return Entries(data, shapes.page((), limit=query.limit, cursor=cursor, total=page.total)["pagination"])

    @staticmethod
    def get_retry_delay(retry_count: int, policy: str = "exponential") -> float | None:
        """Seconds before retry number `retry_count` (0, 1, 2 …), without jitter; None: never by itself.

        `policy` is `exponential`, `immediate`, `manual` or the name of a preset; any other has 5 seconds. The SQL
        function `retry_delay` says the same.
        """
        preset = PRESETS.get(_ALIASES.get(policy, policy))
        if preset is None:
            return _UNKNOWN_POLICY_DELAY_S
        delay = retry_delay(preset, max(retry_count, 0), 0.5)
        return None if delay is None else delay.total_seconds()

    # -- within ----------------------------------------------------------------------------------------------------

    @property
    def _open(self) -> tuple[Stores, UUID, Settings]:
        if self._opened is None:
            raise RuntimeError("use it within `async with RetryService(…) as service`")
        return self._opened

    def _check_org(self, org_id: Id | None) -> None:
        _, own, _ = self._open
        if org_id is not None and str(org_id) != str(own):
            raise NotFound("The service works in another org.")

    def _session(self) -> AbstractAsyncContextManager[Session]:
        stores, org_id, _ = self._open
        return stores.app.tenant(org_id)

    def _act(self, user_id: Id | None, because: str | None) -> Act:
        """Who acts: the user that the caller names, else the service's own actor."""
        actor = self._actor if user_id is None else f"{Kind.USER}:{_user(user_id)}"
        return Act(actor, BecauseIn(because=because).because, source="python")

    def _place(self, name: str, query: RetryQueueQuery | DeadLettersQuery) -> tuple[ListPlace, Any]:
        _, org_id, _ = self._open
        place = ListPlace(name, org_id, query.filters())
        try:
            return place, self._cursors.read(place, query.cursor)
        except Problem as problem:
            raise ValueError("; ".join(f"{error.loc[-1]} {error.msg}" for error in problem.errors)) from None

    async def _change(self, id: Id, noun: str, action: Action) -> Shape:
        """One action on one task in a transaction of its own; its entry afterwards."""
        task_id = id_of(id, noun)
        async with self._session() as session:
            refusal = await action(session, task_id)
            if refusal is not None:
                raise await error_of(session, task_id, refusal, noun, self._clock)
            row = await retry_queue.get_entry(session, task_id)
            assert row is not None, "it was locked in this transaction"
        return shapes.entry(row)


class _Tally(Tasks):
    """A worker's store that counts how tries ended."""

    succeeded = 0
    failed = 0

    async def settle(self, settlements: Sequence[Settlement], worker_id: UUID | None = None) -> list[Settled]:
        settled = await super().settle(settlements, worker_id)
        for result in settled:
            if result.held_lease:
                self.succeeded += isinstance(result.settlement.outcome, Success)
                self.failed += isinstance(result.settlement.outcome, Failure)
        return settled


def _user(user_id: Id) -> str:
    text = str(user_id)
    if not 1 <= len(text) <= MAX_USER_ID_CHARS or not text.isprintable():
        raise ValueError(f"user_id has 1 to {MAX_USER_ID_CHARS} printable characters")
    return text


def _check_max_retries(max_retries: int | None) -> None:
    if max_retries is not None and not 0 <= max_retries <= MAX_RETRIES_LIMIT:
        raise ValueError(f"max_retries is 0 to {MAX_RETRIES_LIMIT}")


async def _may_deliver(stores: Stores, settings: Settings) -> bool:
    """Whether the key of endpoint secrets is here. A new one must not be made: it would open nothing."""
    if settings.secret_key is None and not (settings.data_dir / SEAL_FILE).exists():
        log.warning("webhooks_left_to_workers", why="the key that endpoint secrets are sealed with is not here")
        return False
    await orgs.prove_seal(stores.engine, sealer_of(settings))
    return True
