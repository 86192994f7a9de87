"""All that a page tells of one run: its steps as they stand, what went in and came out, and what people did.

Found in the page's own transaction, told after it, in a thread, as a task is (web.detail). Shown by templates/run.html.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from redrive.api import run_shapes
from redrive.api.context import ApiContext
from redrive.api.shapes import Row, Shape
from redrive.core.permissions import Action
from redrive.core.run_states import UNDER_WAY, RunStatus
from redrive.store import runs
from redrive.store.actors import ActorName, actor_names
from redrive.store.audit import list_audit_of
from redrive.store.db import Session
from redrive.store.keys import Caller
from redrive.store.policies import OVERRIDE_NAME
from redrive.web import bodies, policy_words
from redrive.web.actors import Actor, shown_actor
from redrive.web.bodies import Body, Room
from redrive.web.detail import MAX_ACTS_SHOWN, Done, told_act
from redrive.web.step_place import offered_policies
from redrive.web.words import size
from redrive.web.workflow_words import DefinedStep, choices_of, defined_step

MAX_STEP_BODY_BYTES = 16_384  # of one input or output that a page shows


@dataclass(frozen=True, slots=True)
class FoundRun:
    """What the store has of a run: nothing is hidden yet, nothing laid out."""

    row: Row
    steps: Sequence[Row]
    ahead: Mapping[int, Row]
    executions: Sequence[Row]
    acts: Sequence[Row]
    names: Mapping[str, ActorName]
    policies: Sequence[str]
    viewer: Caller


@dataclass(frozen=True, slots=True)
class ShownStep:
    """`shape`: as the API has it, without input and output; `earlier`: its tasks before the present one."""

    shape: Shape
    defined: DefinedStep
    input: Body | None
    output: Body | None
    earlier: tuple[Row, ...]
    ends_at: datetime | None  # of one that waits

    @property
    def is_changed(self) -> bool:
        """It says more than the policy that it names: it is under terms of its own."""
        is_own = self.shape["policy"] in (None, OVERRIDE_NAME)
        return is_own and self.shape["retry_policy_override"] is None and self.defined.policy_href is not None

    @property
    def policy(self) -> str:
        if self.is_changed:
            return self.defined.policy
        return "of its own" if self.policy_href is None else str(self.shape["policy"])

    @property
    def policy_href(self) -> str | None:
        if self.is_changed:
            return self.defined.policy_href
        is_own = self.shape["policy"] in (None, OVERRIDE_NAME)
        return None if is_own else policy_words.href_of(str(self.shape["policy"]))


@dataclass(frozen=True, slots=True)
class RunDetail:
    row: Row
    shape: Shape
    steps: tuple[ShownStep, ...]
    input: Body
    done: tuple[Done, ...]
    names: Mapping[str, ActorName]
    policies: Sequence[str]
    viewer: Caller

    @property
    def status(self) -> RunStatus:
        return RunStatus(str(self.shape["status"]))

    @property
    def is_under_way(self) -> bool:
        return self.status in UNDER_WAY

    @property
    def is_cancelling(self) -> bool:
        return self.is_under_way and self.shape["cancelled"] is not None

    @property
    def may_cancel(self) -> bool:
        is_open = self.is_under_way or self.status is RunStatus.DLQ_PENDING
        return is_open and self.shape["cancelled"] is None and self.viewer.may(Action.JUDGE)

    @property
    def may_replay(self) -> bool:
        return not self.is_under_way and self.viewer.may(Action.JUDGE)

    @property
    def may_edit(self) -> bool:
        """What cannot be read whole cannot be edited."""
        return self.viewer.may(Action.READ_PAYLOADS)

    @property
    def steps_done(self) -> int:
        return sum(step.shape["status"] == "SUCCESS" for step in self.steps)

    @property
    def choices(self) -> list[dict[str, object]]:
        return choices_of([step.shape for step in self.steps])

    def who(self, stored: str) -> Actor:
        return shown_actor(stored, self.names, self.viewer)


async def find_run(context: ApiContext, session: Session, viewer: Caller, run_id: UUID) -> FoundRun | None:
    row = await runs.get_run(session, run_id)
    if row is None:
        return None
    acts = await list_audit_of(session, [run_id])
    involved = [act["actor"] for act in acts] + [row["created_by"], row["cancelled_by"]]
    return FoundRun(
        row=row,
        steps=await runs.get_steps(session, run_id, max_body_bytes=MAX_STEP_BODY_BYTES),
        ahead=await runs.policies_ahead(session, row),
        executions=await runs.list_executions(session, run_id),
        acts=acts,
        names=await actor_names(context.engine_db, viewer.org_id, involved),
        policies=await offered_policies(session),
        viewer=viewer,
    )


def tell_run(found: FoundRun) -> RunDetail:
    """All of it as a page shows it. Takes its time: not for the event loop."""
    shape = run_shapes.run_detail(found.row, found.steps, found.ahead, show=_later)
    known = {step["index"]: step for step in found.steps}
    earlier: dict[int, list[Row]] = defaultdict(list)
    for execution in found.executions:
        earlier[execution["step"]].append(execution)
    room = Room()
    defined = msgspec.json.decode(found.row["shown"])["steps"]
    shapes = shape["steps"]
    assert isinstance(shapes, list)
    return RunDetail(
        row=found.row,
        shape=shape,
        steps=tuple(
            _step(index, each, defined[index], known.get(index), earlier[index], room)
            for index, each in enumerate(shapes)
        ),
        input=room.fit(bodies.payload(found.row["input"])),
        done=tuple(told_act(act, found.names, found.viewer) for act in found.acts[-MAX_ACTS_SHOWN:]),
        names=found.names,
        policies=found.policies,
        viewer=found.viewer,
    )


def _later(_body: bytes | None) -> None:
    """Inputs and outputs are laid out apart, as far as there is room for them."""


def _step(
    index: int, shape: Shape, defined: Mapping[str, object], row: Row | None, earlier: Sequence[Row], room: Room
) -> ShownStep:
    given = made = None
    if row is not None:
        given = _body(row["body"], row["body_bytes"], room) if row["task_id"] is not None else None
        made = _body(row["output"], row["output_bytes"], room) if row["done_at"] is not None else None
        if row["output_is_cut"]:
            made = Body("", "It was too large to be kept.")
    due_at = shape["due_at"] if defined["kind"] == "wait" and shape["status"] == "PENDING" else None
    return ShownStep(
        shape=shape,
        defined=defined_step(index, defined),
        input=given,
        output=made,
        earlier=tuple(earlier),
        ends_at=due_at if isinstance(due_at, datetime) else None,
    )


def _body(body: bytes | None, count: int | None, room: Room) -> Body | None:
    if count is None:
        return None
    if body is None:
        return Body("", f"Its {size(count)} are left out here. The API has them.")
    return room.fit(bodies.payload(body))
