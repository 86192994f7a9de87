"""What a step of an operation does to its items' tasks: judged one by one, carried out together.

The rules and the effects are those of the single actions (retry_queue.retry_now and skip, dead_letters.redrive and
mark), and so are the entries in the audit. Called by operation_steps, with the tasks locked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from redrive.core.decide import Reason
from redrive.core.fingerprint import fingerprint
from redrive.core.lifecycle import MARKS, DeadLetterState, EventStatus
from redrive.core.policy import PolicyError, retry_delay
from redrive.store import transitions
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Record, Session
from redrive.store.dead_letters import Goes, Order, refusal_to_mark
from redrive.store.edits import EditError, replay_patched
from redrive.store.operations import RETRY_QUEUE
from redrive.store.policies import policy_of, retries_granted
from redrive.store.retry_queue import Refusal
from redrive.store.snapshots import keep_payloads

MAX_AT_ONCE = 50  # items of an operation that are all tried at once

_NOTES = {
    Refusal.UNKNOWN: "There is no such entry here.",
    Refusal.IN_PROGRESS: "A try is under way.",
    Refusal.HELD: "Nothing is sent: its endpoint is disabled or paused, or all retries are. Lift that, then retry.",
    Refusal.REPLAYING: "It is being replayed already: its task is in the retry queue.",
    Refusal.NOT_OPEN: "It is finished already: there is nothing left to do.",
    Refusal.NO_LANE: "It is in no lane.",
    Refusal.BEHIND: "It waits behind others of its lane.",
    Refusal.RESOLVED: "It is already resolved.",
    Refusal.RUN_UNDER_WAY: "Another step of its run is under way.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of an item. `acts`: something is to be done to its task; `revives`: it begins anew."""

    item: Record
    state: str  # sent, succeeded, failed
    acts: bool = False
    revives: bool = False
    fence: int | None = None
    note: str | None = None


def judge(operation: Record, item: Record) -> Verdict:
    """As the single action would be judged; only a retry of a task that is under way just waits for its end, and one
    that died after the click is left alone: whoever chose it saw it alive, and it may have been skipped on purpose.
    """
    action = operation["action"]
    if action == "retry":
        if item["state"] == "succeeded":  # the automatic retry was faster
            return Verdict(item, "succeeded", note="It had been delivered before its turn came.")
        is_queue = operation["subject"] == RETRY_QUEUE
        was_dead = item["died_at"] is not None and item["died_at"] <= operation["created_at"]
        if is_queue and not (was_dead and item["state"] == "dead"):
            return _judge_retry(item)
        return _judge_redrive(item, at_once=operation["at_once"])
    if action == "skip":
        return _judge_skip(item)
    return _judge_mark(item, MARKS[action])


def _refused(item: Record, refusal: Refusal) -> Verdict:
    return Verdict(item, "failed", note=_NOTES[refusal])


def _judge_retry(item: Record) -> Verdict:
    if item["state"] is None or (item["attempts"] == 0 and item["state"] != "dead"):
        return _refused(item, Refusal.UNKNOWN)
    match item["state"]:
        case "waiting" if item["behind"]:
            return _refused(item, Refusal.BEHIND)
        case "waiting" if item["is_shut"]:
            return _refused(item, Refusal.HELD)
        case "waiting":
            return Verdict(item, "sent", acts=True, fence=item["fence"])
        case "leased":
            return Verdict(item, "sent", fence=item["fence"] - 1)
        case "held":
            return _refused(item, Refusal.HELD)
    return _refused(item, Refusal.NOT_OPEN)


def _judge_redrive(item: Record, *, at_once: bool) -> Verdict:
    if item["letter_state"] in (None, "deleted"):
        return _refused(item, Refusal.UNKNOWN)
    if item["letter_state"] == "replaying":
        return _refused(item, Refusal.REPLAYING)
    if item["state"] != "dead":
        return _refused(item, Refusal.NOT_OPEN)
    if item["run_is_under_way"]:
        return _refused(item, Refusal.RUN_UNDER_WAY)
    if at_once and item["is_shut"]:
        return _refused(item, Refusal.HELD)
    return Verdict(item, "sent", acts=True, revives=True, fence=item["fence"])


def one_step_at_a_time(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Of several steps of one run the first is redriven: the run comes to the others by itself."""
    first: dict[UUID, Verdict] = {}
    for verdict in verdicts:
        run_id = verdict.item["run_id"] if verdict.revives else None
        if run_id is not None and (run_id not in first or verdict.item["step"] < first[run_id].item["step"]):
            first[run_id] = verdict
    return [
        _refused(verdict.item, Refusal.RUN_UNDER_WAY)
        if verdict.revives and verdict is not first.get(verdict.item["run_id"], verdict)
        else verdict
        for verdict in verdicts
    ]


def _judge_skip(item: Record) -> Verdict:
    if item["state"] is None or (item["attempts"] == 0 and item["state"] not in ("dead", "succeeded")):
        return _refused(item, Refusal.UNKNOWN)
    match item["state"]:
        case "waiting" | "held":
            return Verdict(item, "succeeded", acts=True)
        case "leased":
            return _refused(item, Refusal.IN_PROGRESS)
    return _refused(item, Refusal.NOT_OPEN)


def _judge_mark(item: Record, wanted: DeadLetterState) -> Verdict:
    refusal = refusal_to_mark(item["letter_state"], wanted, item["state"])
    if refusal is not None:
        return _refused(item, refusal)
    return Verdict(item, "succeeded", acts=item["letter_state"] != wanted)


class Acts:
    """One operation's action on a batch of items."""

    def __init__(
        self, session: Session, operation: Record, clock: Clock, dice: Callable[[], float], *, once: bool = False
    ) -> None:
        self._once = once  # what is redriven has one try
        self._probed: set[UUID | None] = set()  # endpoints of which one goes before the others
        self._session = session
        self._operation = operation
        self._org_id: UUID = operation["org_id"]
        self._clock = clock
        self._dice = dice

    async def carry_out(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Do it, and write it into the audit. The verdicts come back as they turned out."""
        operation = self._operation
        verdicts = one_step_at_a_time(verdicts)
        if operation["patch"] is not None:
            patch = msgspec.json.decode(operation["patch"])
            return [await self._patched(verdict, patch) if verdict.acts else verdict for verdict in verdicts]
        verdicts, delays_s = self._delays(verdicts)
        await self._revive([verdict.item for verdict in verdicts if verdict.revives], delays_s)
        await self._act_on([verdict.item for verdict in verdicts if verdict.acts and not verdict.revives])
        return verdicts

    async def _revive(self, items: Sequence[Record], delays_s: Sequence[float]) -> None:
        if not items:
            return
        ids = [item["task_id"] for item in items]
        orders = [self._order(item) for item in items]
        first = self._go_first(items) if self._operation["at_once"] else [False] * len(items)
        given = (self._clock.now(), self._org_id, ids, delays_s, *self._who_and_why, orders, first, self._once)
        done = await self._do("redrive_many", *given)
        assert done == len(items), "their tasks are locked: what was judged still holds"
        await self._audit("dead_letter", items)
        moved = [transitions.Moved(item["event_id"], item["task_id"], 1) for item in items]
        old, new = EventStatus.FAILED, EventStatus.QUEUED
        await transitions.tell_all(self._session, self._act, old, new, moved, org_id=self._org_id)

    async def _act_on(self, items: Sequence[Record]) -> None:
        if not items:
            return
        action, ids = self._operation["action"], [item["task_id"] for item in items]
        if action == "skip":
            done, failed_at = await self._skip(items)
        elif action == "retry":
            done = await self._do("expedite_many", self._clock.now(), self._org_id, ids, self._go_first(items))
        else:
            done = await self._do("mark_many", self._org_id, ids, MARKS[action], *self._who_and_why)
        assert done == len(items), "their tasks are locked: what was judged still holds"
        await self._audit("task" if self._operation["subject"] == RETRY_QUEUE else "dead_letter", items)
        act, org_id = self._act, self._org_id
        if action == "skip":
            moved = [
                transitions.Moved(item["event_id"], item["task_id"], retries_granted(item, item["attempts"]))
                for item in items
            ]
            errors = [_last_error(item) for item in items]
            how = (self._session, act, moved, errors)
            await transitions.tell_given_up(*how, reason=Reason.SKIPPED, failed_at=failed_at, org_id=org_id)
        elif action != "retry":  # what only hurries a task moves nothing
            letters = [(item["event_id"], item["task_id"], item["letter_state"]) for item in items]
            await transitions.tell_letters(self._session, act, letters, MARKS[action], org_id=org_id)

    def _go_first(self, items: Sequence[Record]) -> list[bool]:
        """Which of them no breaker and no limit holds back: all of few; of many one for each endpoint, as a probe."""
        if self._operation["total"] <= MAX_AT_ONCE:
            return [True] * len(items)
        goes: list[bool] = []
        for item in items:
            goes.append(not self._operation["dispatched"] and item["endpoint_id"] not in self._probed)
            self._probed.add(item["endpoint_id"])
        return goes

    async def _patched(self, verdict: Verdict, patch: dict[str, object]) -> Verdict:
        """A replay of its own, with its entry in the audit: each payload is another."""
        session, operation = self._session.of(self._org_id), self._operation
        (first,) = self._go_first([verdict.item])
        how = (self._dice(), operation["at_once"], self._order(verdict.item), Goes(first, self._once))
        try:
            refusal = await replay_patched(session, verdict.item["task_id"], patch, self._act, self._clock, *how)
        except (EditError, PolicyError) as problem:
            return Verdict(verdict.item, "failed", note=str(problem))
        return verdict if refusal is None else _refused(verdict.item, refusal)

    def _order(self, item: Record) -> Order | None:
        """Where in its lane: as the person said, else as it was decided when the item was written down."""
        order: Order | None = self._operation["lane_order"] or item["lane_order"]
        return order

    @property
    def _act(self) -> Act:
        operation = self._operation
        return Act(operation["actor"], operation["because"], operation["correlation_id"], operation["source"])

    @property
    def _who_and_why(self) -> tuple[str, str | None]:
        return self._operation["actor"], self._operation["because"]

    async def _do(self, name: str, *args: object) -> int:
        row = await self._session.fetchrow(name, *args)
        assert row is not None
        done: int = row["n"]
        return done

    def _delays(self, verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[float]]:
        """How long each redriven task waits: its policy's first delay, or nothing. A roll of the dice for each."""
        kept: list[Verdict] = []
        delays_s: list[float] = []
        for verdict in verdicts:
            if not verdict.revives:
                kept.append(verdict)
                continue
            try:
                delay = None if self._operation["at_once"] else retry_delay(policy_of(verdict.item), 0, self._dice())
            except PolicyError:
                note = "Its policy is one that this version of Redrive cannot read."
                kept.append(Verdict(verdict.item, "failed", note=note))
                continue
            kept.append(verdict)
            delays_s.append(delay.total_seconds() if delay else 0.0)
        return kept, delays_s

    async def _skip(self, items: Sequence[Record]) -> tuple[int, datetime]:
        """How many died, and when."""
        messages = [_last_error(item) for item in items]
        categories = [item["category"] or "unknown" for item in items]
        marks = [
            fingerprint(item["kind"], str(item["endpoint_id"] or item["queue"]), category, message)
            for item, category, message in zip(items, categories, messages, strict=True)
        ]
        ids = [item["task_id"] for item in items]
        given = (self._clock.now(), self._org_id, ids, categories, marks, messages)
        row = await self._session.fetchrow("skip_many", *given)
        assert row is not None
        steps = [item["task_id"] for item in items if item["run_id"] is not None]
        await keep_payloads(self._session, [(self._org_id, task_id) for task_id in steps])
        return row["n"], row["now"]

    async def _audit(self, kind: str, items: Sequence[Record]) -> None:
        operation = self._operation
        await self._session.execute(
            "record_audits",
            self._org_id,
            operation["actor"],
            f"{kind}.{operation['action']}",
            kind,
            [item["task_id"] for item in items],
            operation["because"],
            operation["correlation_id"],
            [None if kind == "task" else item["letter_state"] for item in items],
            operation["id"],
            operation["source"],
        )


def _last_error(item: Record) -> str:
    return item["error_message"] or "Skipped by a person."
