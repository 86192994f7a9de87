"""Edit and replay: another payload or other headers for a dead letter's next tries, kept beside the original.

Called by the API's replay route and, letter by letter, by bulk operations. Everything here is one transaction with its
entry in the audit; neither that nor a diff holds what looks secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from redrive.core.diff import Diff, diff
from redrive.core.lifecycle import DeadLetterState
from redrive.core.merge_patch import merge_patch
from redrive.core.policy import Policy, overlaid, retry_delay
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Record, Session
from redrive.store.dead_letters import AS_ALWAYS, Goes, Order, begin_generation, lock_redrivable
from redrive.store.events import MAX_PAYLOAD_BYTES
from redrive.store.pausing import hold_of
from redrive.store.policies import add_terms, get_policy, policy_of
from redrive.store.retry_queue import Refusal

MAX_EDITS = 20  # of one dead letter

# Numbers that a patch does not touch come out as they were written, all their digits.
_exact = msgspec.json.Decoder(float_hook=lambda text: msgspec.Raw(text.encode()))


class EditError(ValueError):
    """Why a payload cannot be edited so, for a person to read; `place`: which part of what was asked is at fault."""

    def __init__(self, message: str, *place: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass(frozen=True, slots=True)
class Edit:
    """What to change. A part that is None stays as it is in force; `discard` begins with the original."""

    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    discard: bool = False

    @property
    def changes_something(self) -> bool:
        return self.discard or self.body is not None or self.headers is not None


NO_EDIT = Edit()

# A policy to replay something under: the name of one in force, or fields that are laid over its own.
Override = Mapping[str, object] | str


class Terms(NamedTuple):
    """A stored policy."""

    id: UUID
    policy: Policy


def apply_patch(body: bytes | None, patch: object) -> bytes:
    """A JSON text with a merge patch (RFC 7396) applied, or EditError. None: it is too large to be read."""
    if body is None:
        raise EditError("the payload is too large to be patched")
    try:
        value = _exact.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EditError("the payload is not JSON, which alone can be patched") from None
    return msgspec.json.encode(merge_patch(value, patch))


async def replay(
    session: Session,
    task_id: UUID,
    act: Act,
    clock: Clock,
    *,
    edit: Edit = NO_EDIT,
    policy: Override | None = None,
    terms: Terms | None = None,
    roll: float,
    at_once: bool = False,
    order: Order | None = None,
    again: bool = False,
) -> Refusal | None:
    """Redrive, with an edit, and under an override of its policy (`terms`: what that comes to, where it is known).

    Both stay in force for later redrives. EditError or PolicyError where the edit or the override cannot be used.
    `again`: also what is resolved already.
    """
    row = await lock_redrivable(session, task_id, order)
    if isinstance(row, Refusal):
        return row
    if row["state"] == DeadLetterState.RESOLVED and not again:
        return Refusal.RESOLVED
    if at_once and (await hold_of(session, task_id, clock)).shut:
        return Refusal.HELD
    if policy is not None and terms is None:
        terms = await override_terms(session, policy, policy_of(row))
    await _replay(session, row, act, clock, edit, policy, terms, roll, at_once, order)
    return None


async def replay_patched(
    session: Session,
    task_id: UUID,
    patch: object,
    act: Act,
    clock: Clock,
    roll: float,
    at_once: bool,
    order: Order | None = None,
    goes: Goes = AS_ALWAYS,
) -> Refusal | None:
    """Redrive with a merge patch over the payload in force. EditError where it cannot be applied. `order` is for those
    that are in a lane.
    """
    row = await lock_redrivable(session, task_id)
    if isinstance(row, Refusal):
        return row
    base = await _base(session, task_id)
    edit = Edit(body=apply_patch(base["original"] if base["body"] is None else base["body"], patch))
    order = order if row["lane"] is not None else None
    await _replay(session, row, act, clock, edit, None, None, roll, at_once, order, goes)
    return None


async def edit_to(session: Session, task_id: UUID, body: bytes) -> Edit:
    """What makes the next tries of a letter that has no edit send this body."""
    base = await _base(session, task_id)
    return NO_EDIT if body == base["original"] else Edit(body=body)


async def engine_edit(session: Session, letter: Record, body: bytes, clock: Clock) -> int | None:
    """The edit under which a step's next generation sends this body, which was rendered anew because the steps before
    it ran again. None: it is the original. Kept beside that as an edit of whoever asked for the replay.
    """
    base = await _base(session, letter["task_id"])
    if body == base["original"]:
        return None
    if body == base["body"]:
        number: int = letter["edit"]
        return number
    act = Act(letter["replayed_by"] or "engine", "an earlier step ran again")
    return await _store_edit(session, letter, body, None, base, act, clock)


async def list_edits(session: Session, task_id: UUID) -> list[Record]:
    """Every edit of a task, oldest first, without the bodies."""
    return await session.fetch("list_edits", session.org_id, task_id)


async def body_of_generation(session: Session, task_id: UUID, generation: int) -> bytes | None:
    """The edited body that the tries of a generation sent. None: the event's own."""
    row = await session.fetchrow("get_body_of_generation", session.org_id, task_id, generation)
    body: bytes | None = row["body"] if row else None
    return body


async def _replay(
    session: Session,
    letter: Record,
    act: Act,
    clock: Clock,
    edit: Edit,
    policy: Override | None,
    terms: Terms | None,
    roll: float,
    at_once: bool,
    order: Order | None,
    goes: Goes = AS_ALWAYS,
) -> None:
    task_id: UUID = letter["task_id"]
    policy_id, in_force = terms or (None, policy_of(letter))
    number: int | None = letter["edit"]
    if edit.changes_something:
        number = await _add(session, letter, edit, act, clock)
    delay = None if at_once else retry_delay(in_force, 0, roll)
    await begin_generation(
        session, letter, act, clock, delay=delay, edit=number, policy_id=policy_id, order=order, goes=goes
    )
    after: dict[str, object] = {"edit": number}
    if order is not None:
        after["order"] = order
    if policy is not None:
        after["policy"] = policy if isinstance(policy, str) else in_force.to_spec()
    await audit.record(
        session, act, "dead_letter.replay", "dead_letter", task_id, before={"state": letter["state"]}, after=after
    )


async def override_terms(session: Session, policy: Override, base: Policy) -> Terms:
    """What an override comes to for something that is under `base`.

    EditError where there is no policy of that name, PolicyError where a field cannot be used.
    """
    if isinstance(policy, str):
        row = await get_policy(session, policy)
        if row is None:
            raise EditError(f"there is no policy named {policy!r}", "override_retry_policy")
        return Terms(row["id"], policy_of(row))
    laid = overlaid(base, policy)
    return Terms(await add_terms(session, laid), laid)


async def _add(session: Session, letter: Record, edit: Edit, act: Act, clock: Clock) -> int | None:
    """Store the edit; its number, or None where it is the return to the original."""
    task_id: UUID = letter["task_id"]
    base = await _base(session, task_id)
    if base["edits"] >= MAX_EDITS:
        raise EditError(f"it was edited {MAX_EDITS} times already, which is the most that is kept")
    body = edit.body if edit.body is not None or edit.discard else base["body"]
    max_bytes = base["max_bytes"] or MAX_PAYLOAD_BYTES
    if edit.body is not None and len(edit.body) > max_bytes:
        raise EditError(f"the payload has {len(edit.body)} bytes; at most {max_bytes} are taken", "payload")
    headers = base["headers"] if edit.headers is None and not edit.discard else _stored_headers(edit.headers)
    number = await _store_edit(session, letter, body, headers, base, act, clock)
    return None if body is None and headers is None else number


async def _store_edit(
    session: Session, letter: Record, body: bytes | None, headers: str | None, base: Record, act: Act, clock: Clock
) -> int:
    changed = _diff(base, body)
    row = await session.fetchrow(
        "add_edit",
        session.org_id,
        letter["task_id"],
        letter["task_generation"] + 1,
        body,
        headers,
        msgspec.json.encode([change._asdict() for change in changed.changes]).decode(),
        changed.is_cut,
        clock.now(),
        act.actor,
        act.because,
    )
    assert row is not None
    return int(row["number"])


async def _base(session: Session, task_id: UUID) -> Record:
    row = await session.fetchrow("get_edit_base", session.org_id, task_id)
    assert row is not None, "it was locked in this transaction"
    return row


def _stored_headers(headers: Mapping[str, str] | None) -> str | None:
    return msgspec.json.encode(dict(headers)).decode() if headers else None


def _diff(base: Record, after: bytes | None) -> Diff:
    """What a body changes of the original. None: nothing. What is too large to be read is told by its size."""
    before: bytes | None = base["original"]
    if after is None or before == after:
        return Diff([], is_cut=False)
    return diff(f"{base['original_bytes']} bytes" if before is None else _readable(before), _readable(after))


def _readable(body: bytes) -> Any:
    """A body as a value; what is not JSON only by its size."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"{len(body)} bytes that are not JSON"
