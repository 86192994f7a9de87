"""All that a page tells of one task: loaded once for the pages of dead letters and of logs, whatever state it is in.

Found in the page's own transaction, told after it, in a thread: to look through bodies for what is to be hidden takes
about a second per MiB, and the loop accepts events meanwhile. Shown by templates/task_parts.html.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec
from markupsafe import Markup

from redrive.api import edit_shapes, shapes
from redrive.api.context import ApiContext, BrokerTerms
from redrive.api.shapes import Row, Shape
from redrive.core.broker import RABBITMQ_KIND
from redrive.core.lifecycle import retry_count
from redrive.core.permissions import Action
from redrive.core.policy import Policy, PreviewRow, preview
from redrive.store import dead_letters, edits, logs, pausing
from redrive.store.actors import ActorName, actor_names
from redrive.store.audit import list_audit_of
from redrive.store.clock import Clock, time_of
from redrive.store.db import Session
from redrive.store.dead_messages import get_dead_message
from redrive.store.endpoint_names import endpoint_names
from redrive.store.keys import Caller
from redrive.store.policies import OVERRIDE_NAME
from redrive.store.retry_queue import is_served
from redrive.web import bodies, words
from redrive.web.actors import Actor, shown_actor
from redrive.web.bodies import Body, Room
from redrive.web.broker_view import BrokerView, broker_view
from redrive.web.charts import schedule
from redrive.web.lane_words import LanePlace, lane_place
from redrive.web.step_place import StepPlace, step_place
from redrive.web.timeline import Sent, Story, Timeline, curl_of, timeline

MAX_EDITED_SHOWN = 3  # bodies of a task's newest edits; of the others only the changes
MAX_EDITED_BYTES = 512 * 1024  # of all edited bodies on a page; the last may reach beyond
MAX_RETRIES_LISTED = 12  # around the place where the task stands
MAX_RETRIES_PLANNED = 10_000  # a task that has made more stands beyond the plot
MAX_ACTS_SHOWN = 30  # of what people did; the audit has all
OPEN = ("waiting", "leased", "held")
LEFT_OUT = Body("", "An edited payload that is left out here: what it changes is told where it began.")

ACTS = {
    "dead_letter.retry": "redrove it",
    "dead_letter.replay": "replayed it",
    "dead_letter.replay_refused": "was refused another replay",
    "dead_letter.resolve": "marked it as resolved",
    "dead_letter.ignore": "ignored it",
    "dead_letter.reopen": "opened it again",
    "dead_letter.delete": "deleted the dead letter",
    "task.retry": "had it tried at once",
    "task.skip": "skipped its retries",
    "task.schedule": "moved its next retry",
    "task.fail": "gave it up",
    "dead_letter.move": "put it among the dead letters",
    "dead_letter.replay_outcome": "saw its replay end",
    "run.cancel": "cancelled the run",
    "run.replay": "replayed it",
}


@dataclass(frozen=True, slots=True)
class Done:
    """What a person did to it."""

    actor: Actor
    what: str
    because: str | None
    at: object
    operation_id: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """What the store has of a task: nothing is hidden yet, nothing laid out. `letter`: its row, where there is one."""

    row: Row
    letter: Row | None
    attempts: Sequence[Row]
    edited: Sequence[Row]
    edited_bodies: Mapping[int, bytes]
    acts: Sequence[Row]
    endpoint: str | None
    names: Mapping[str, ActorName]
    hold: pausing.Hold
    lacks_worker: bool  # though it is due
    run: StepPlace | None
    in_broker: Row | None
    broker_terms: BrokerTerms | None
    viewer: Caller


@dataclass(frozen=True, slots=True)
class PolicyShown:
    """The policy that the task keeps, and its schedule around the place where the task stands."""

    name: str
    is_its_own: bool  # made for this task alone by a replay
    retries: Sequence[PreviewRow]
    made: int
    plot: Markup
    in_words: str


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """`entry`: as the retry queue shows it; `letter`: as a dead letter, None where there is none (any more)."""

    row: Row
    entry: Shape
    log: Shape
    note: str | None
    letter: Shape | None
    endpoint: str | None
    timeline: Timeline
    payload: Body
    edited: Body | None
    policy: PolicyShown
    config: Body | None  # the endpoint's settings when it died; of a step its definition
    curl: str | None
    curl_hides: bool
    done: tuple[Done, ...]
    hold: pausing.Hold
    lacks_worker: bool  # though it is due
    lane: LanePlace | None
    run: StepPlace | None  # of a workflow's step
    broker: BrokerView | None  # of a message that died in a queue
    names: Mapping[str, ActorName]
    viewer: Caller

    @property
    def state(self) -> str:
        return str(self.row["state"])

    @property
    def is_waiting(self) -> bool:
        """In the retry queue: it can be tried now, or skipped."""
        return self.state in ("waiting", "held") and self.row["attempts"] > 0

    @property
    def is_redrivable(self) -> bool:
        """A step's letter may be dead and replaying: its run has not come to it again."""
        return self.letter is not None and self.state == "dead" and self.letter["state"] != "replaying"

    @property
    def may_edit(self) -> bool:
        """What cannot be read whole cannot be edited: what is hidden would be sent as [redacted]."""
        is_readable = self.row["body"] is not None  # else it is too large
        return (
            is_readable
            and self.is_redrivable
            and self.viewer.may(Action.JUDGE)
            and self.viewer.may(Action.READ_PAYLOADS)
        )

    def who(self, stored: str) -> Actor:
        return shown_actor(stored, self.names, self.viewer)


async def find_task(context: ApiContext, session: Session, viewer: Caller, task_id: UUID) -> Found | None:
    letter = await dead_letters.get_dead_letter(session, task_id)
    row = letter or await logs.get_log(session, task_id)
    if row is None:
        return None
    edited = await edits.list_edits(session, task_id)
    acts = await list_audit_of(session, [task_id])
    names = await endpoint_names(session, [row["endpoint_id"]])
    involved = [act["actor"] for act in acts]
    if letter is not None:
        involved += [letter["replayed_by"], letter["closed_by"]]
    return Found(
        row=row,
        letter=letter,
        attempts=await logs.list_task_attempts(session, task_id),
        edited=edited,
        edited_bodies=await edited_bodies(session, task_id, edited, MAX_EDITED_BYTES),
        acts=acts,
        endpoint=names.get(row["endpoint_id"]),
        names=await actor_names(context.engine_db, viewer.org_id, involved),
        hold=await pausing.hold_of(session, task_id, context.clock)
        if row["state"] in ("waiting", "held")
        else pausing.NO_HOLD,
        lacks_worker=await _lacks_worker(session, row, context.clock),
        run=await step_place(session, row),
        in_broker=await get_dead_message(session, row),
        broker_terms=context.broker if context.has_broker(viewer) else None,
        viewer=viewer,
    )


async def _lacks_worker(session: Session, row: Row, clock: Clock) -> bool:
    """Whether it is due, and no worker that serves its queue was heard of lately."""
    if row["state"] != "waiting" or row["due_at"] > await time_of(session, clock):
        return False
    return not await is_served(session, row["queue"], clock)


def tell(found: Found, *, all_tries: bool) -> TaskDetail:
    """All of it as a page shows it. Takes its time: not for the event loop."""
    row, letter, edited = found.row, found.letter, found.edited
    original = bodies.too_large(row["body_bytes"]) if row["body"] is None else bodies.redacted(row["body"])
    replaced = {number: bodies.redacted(body) for number, body in found.edited_bodies.items()}
    sent = sent_by(row, edited, replaced, bodies.bounded(original))
    shown_edits = [edit_shapes.edit(each) for each in edited]
    story = Story(row["created_at"], found.attempts, found.acts, shown_edits, row["generation"], sent)
    told = timeline(story, Room(), all_tries=all_tries)
    last = edit_shapes.last_generation(found.attempts)
    in_force = _in_force(edited, row["generation"] if last is None else last)
    carried = original if in_force is None else replaced.get(in_force["number"], LEFT_OUT)
    return TaskDetail(
        row=row,
        entry=shapes.entry(row),
        log=shapes.log(row, []),
        note=shapes.note(row),
        letter=shapes.dead_letter(letter) | shapes.judged(letter) if letter is not None else None,
        endpoint=found.endpoint,
        timeline=told,
        payload=sent.original,
        edited=sent.by_generation.get(row["generation"]),
        policy=_policy(row),
        config=bodies.bounded(Body(letter["config"])) if letter is not None and letter["config"] else None,
        curl=None
        if row["kind"] == RABBITMQ_KIND  # no request is made of it
        else curl_of(told.last_request, _command_body(row["body"] if in_force is None else None, carried)),
        curl_hides=carried.is_hidden,
        done=tuple(told_act(act, found.names, found.viewer) for act in found.acts[-MAX_ACTS_SHOWN:]),
        hold=found.hold,
        lacks_worker=found.lacks_worker,
        lane=lane_place(row),
        run=found.run,
        broker=broker_view(found.in_broker, found.broker_terms),
        names=found.names,
        viewer=found.viewer,
    )


async def edited_bodies(session: Session, task_id: UUID, edited: Sequence[Row], max_bytes: int) -> dict[int, bytes]:
    """By the number of the edit, of the newest ones, until there are `max_bytes` of them."""
    found: dict[int, bytes] = {}
    for edit in [edit for edit in edited if edit["has_body"]][: -MAX_EDITED_SHOWN - 1 : -1]:
        if max_bytes <= 0:
            break
        body = await edits.body_of_generation(session, task_id, edit["generation"])
        if body is not None:
            found[edit["number"]] = body
            max_bytes -= len(body)
    return found


def _command_body(own: bytes | None, carried: Body) -> str | None:
    """What a command sends: nothing where a step has no body, and a file where it is no text."""
    return "" if own == b"" else carried.text or None


def _in_force(edited: Sequence[Row], generation: int) -> Row | None:
    """The edit whose payload the tries of a generation sent; None: the event's own."""
    latest = next((edit for edit in reversed(edited) if edit["generation"] <= generation), None)
    return latest if latest is not None and latest["has_body"] else None


def sent_by(row: Row, edited: Sequence[Row], replaced: Mapping[int, Body], original: Body) -> Sent:
    """What the tries of each generation of a task carried."""
    shown = {number: bodies.bounded(body) for number, body in replaced.items()}
    by_generation: dict[int, Body] = {}
    for generation in range(1, row["generation"] + 1) if edited else ():
        edit = _in_force(edited, generation)
        if edit is not None:
            by_generation[generation] = shown.get(edit["number"], LEFT_OUT)
    return Sent(original, by_generation)


def _policy(row: Row) -> PolicyShown:
    policy = Policy.from_spec(msgspec.json.decode(row["policy_spec"]))
    made = retry_count(row["attempts"])
    rows = preview(policy, min(made, MAX_RETRIES_PLANNED) + MAX_RETRIES_LISTED)
    first = max(min(made - MAX_RETRIES_LISTED // 2, len(rows) - MAX_RETRIES_LISTED), 0)
    around = rows[first : first + MAX_RETRIES_LISTED]
    is_on_it = row["state"] in OPEN or made >= len(rows)  # else a mark would promise a retry that does not come
    return PolicyShown(
        name=row["policy"],
        is_its_own=row["policy"] == OVERRIDE_NAME,
        retries=around,
        made=made,
        plot=schedule("When it is tried again", around, at=made if is_on_it else None),
        in_words=_in_words(policy),
    )


def _in_words(policy: Policy) -> str:
    retries = (
        "any number of retries" if policy.max_retries is None else words.plural(policy.max_retries, "retry", "retries")
    )
    said = [retries if policy.kind != "manual" else "retried by hand only"]
    if policy.jitter:
        said.append(f"jitter ±{policy.jitter:.0%}")
    if policy.max_age_s is not None:
        said.append(f"given up after {words.duration(policy.max_age_s)}")
    said.append(f"time-out of a try {words.duration(policy.timeout_s)}")
    return " · ".join(said)


def told_act(act: Row, names: Mapping[str, ActorName], viewer: Caller) -> Done:
    """What somebody did, out of the audit."""
    after = msgspec.json.decode(act["after"]) if act["after"] else None
    operation = after.get("operation_id") if isinstance(after, dict) else None
    said = ACTS.get(act["action"], act["action"])
    if act["action"] == "run.replay" and isinstance(after, dict):
        step = after["from_step_index"]
        said = f"replayed step {step} alone" if after["mode"] == "STEP_ONLY" else f"replayed it from step {step} on"
    return Done(shown_actor(act["actor"], names, viewer), said, act["because"], act["at"], operation)
