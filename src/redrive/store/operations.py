"""Operations: bulk actions as objects. Made, read, paused, resumed and cancelled here, each audited where it happens.

Called by the API and the command line. What an operation does, it does in steps: see operation_steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from redrive.core.operations import MAX_IDS, Canary, Command, OperationState, told
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.dead_letters import Order
from redrive.store.paging import Page, page_of

MAX_ACTIVE_OPERATIONS = 1_000  # per org
MAX_COUNTED = 100_000  # operations of a list; of more nobody is told how many
RETRY_QUEUE = "retry_queue"
DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """What is to be done with which tasks: `ids`, or all that a filter matches at this moment."""

    subject: str
    action: str
    ids: Sequence[UUID] | None = None
    filter: Mapping[str, object] | None = None
    at_once: bool = False
    canary: Canary | None = None
    rate_per_s: float | None = None
    patch: Mapping[str, object] | None = None  # merged into every payload that is retried
    order: Order | None = None  # where in its lane goes what is in one and is retried


class TooManyOperations(Exception):
    """The org has MAX_ACTIVE_OPERATIONS under way."""


@dataclass(frozen=True, slots=True)
class CannotBeTold:
    """A command that makes no sense in the state the operation is in."""

    state: OperationState


async def create(session: Session, spec: OperationSpec, act: Act, clock: Clock) -> Record:
    """Write it down, with its items where they are given by their ids. It moves on by steps."""
    assert (spec.ids is None) != (spec.filter is None)
    assert spec.ids is None or 1 <= len(spec.ids) <= MAX_IDS
    active = await session.fetchrow("count_active_operations", session.org_id)
    if active is not None and active["n"] >= MAX_ACTIVE_OPERATIONS:
        raise TooManyOperations
    row = await session.fetchrow(
        "create_operation",
        session.org_id,
        spec.subject,
        spec.action,
        _json(spec.filter),
        spec.at_once,
        _json(spec.canary),
        spec.rate_per_s,
        act.actor,
        act.because,
        act.correlation_id,
        act.source,
        clock.now(),
        0 if spec.ids is None else len(spec.ids),
        _json(spec.patch),
        spec.order,
    )
    assert row is not None
    operation_id: UUID = row["id"]
    if spec.ids is not None:
        await session.execute("add_operation_items", session.org_id, operation_id, list(spec.ids))
    after = {
        "subject": spec.subject,
        "action": spec.action,
        "filter": spec.filter,
        "ids": None if spec.ids is None else len(spec.ids),
        "now": spec.at_once,
        "canary": spec.canary,
        "rate_per_s": spec.rate_per_s,
        "patched": None if spec.patch is None else sorted(spec.patch),
        "order": spec.order,
    }
    await audit.record(session, act, "operation.create", "operation", operation_id, after=after)
    return row


async def get_operation(session: Session, operation_id: UUID) -> Record | None:
    return await session.fetchrow("get_operation", session.org_id, operation_id)


async def list_operations(
    session: Session,
    *,
    state: str | None = None,
    active: bool | None = None,
    by: str | None = None,
    limit: int,
    after: Sequence[object] | None,
) -> Page:
    """Newest first. `active`: those that have not ended, paused ones included, or those that have. `by`: the actor."""
    filters = (state, active, by)
    rows = await session.fetch("list_operations", session.org_id, *filters, *(after or (None,)), limit + 1)
    counted = await session.fetchrow("count_operations", session.org_id, *filters, MAX_COUNTED)
    return page_of(rows, limit, ("id",), counted["n"] if counted else 0)


async def list_items(
    session: Session, operation_id: UUID, *, state: str | None, limit: int, after: Sequence[object] | None
) -> Page:
    """What becomes of each of its tasks, in the order they are acted on."""
    rows = await session.fetch(
        "list_operation_items", session.org_id, operation_id, state, *(after or (None,)), limit + 1
    )
    return page_of(rows, limit, ("n",))


async def item_facts(session: Session, task_ids: Sequence[UUID]) -> dict[UUID, Record]:
    """What the tasks of some items are. Those that retention has removed are missing."""
    rows = await session.fetch("item_facts", session.org_id, list(task_ids)) if task_ids else []
    return {row["id"]: row for row in rows}


async def tell(
    session: Session, operation_id: UUID, command: Command, act: Act, clock: Clock
) -> Record | CannotBeTold | None:
    """Pause, resume or cancel it; None where there is none. What is under way ends, and is counted, all the same."""
    row = await session.fetchrow("lock_operation", session.org_id, operation_id)
    if row is None:
        return None
    before = OperationState(row["state"])
    state = told(before, command, collected=row["collected"])
    if state is None:
        return CannotBeTold(before)
    changed = await session.fetchrow("tell_operation", session.org_id, operation_id, state, clock.now())
    assert changed is not None, "it was locked in this transaction"
    await audit.record(
        session,
        act,
        f"operation.{command}",
        "operation",
        operation_id,
        before={"state": before},
        after={"state": state},
    )
    return changed


async def watch(engine: Database, keys: Sequence[tuple[UUID, UUID]]) -> list[Record]:
    """Operations of any org, by org and id, for those who were let see them."""
    return await engine.fetch("watch_operations", [org for org, _ in keys], [id for _, id in keys])


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
