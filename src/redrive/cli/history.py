"""The story of an event, put together from what the store keeps of it. Pure; used by `redrive events history`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from redrive.cli.output import moment
from redrive.core.lifecycle import TaskState
from redrive.store.db import Record


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to an event or to one of its tasks, or that is due to happen. `at`: None where nobody
    knows when.
    """

    at: datetime | None
    what: str
    task_id: UUID | None = None
    details: dict[str, object] = field(default_factory=dict)


NEVER = datetime.max.replace(tzinfo=UTC)
FOR_A_PERSON = "waits for a person: its policy does not retry by itself"
_DEEDS = {
    "event.ack": "acknowledged",
    "task.retry": "a person asked for a try now",
    "task.skip": "skipped by a person",
    "task.schedule": "the next try was moved by a person",
    "task.fail": "given up after a try elsewhere",
    "dead_letter.retry": "redriven",
    "dead_letter.replay": "redriven with changes",
    "dead_letter.resolve": "resolved",
    "dead_letter.ignore": "ignored",
    "dead_letter.reopen": "reopened",
    "dead_letter.delete": "deleted",
    "dead_letter.move": "its run waits for a person",
    "dead_letter.replay_outcome": "the replay ended",
}


def story_of(
    event: Record,
    tasks: Sequence[Record],
    tries: Sequence[Record],
    deeds: Sequence[Record],
    holds: Mapping[UUID, Sequence[str]],
) -> list[Happening]:
    """Everything in the order of time. What happened at the same moment keeps the order of cause and effect. `holds`:
    why tasks are held.
    """
    story = [
        Happening(
            event["received_at"],
            "accepted",
            details={"event_type": event["event_type"], "correlation_id": event["correlation_id"]},
        )
    ]
    for row in tries:
        story += _of_try(row)
    for row in tasks:
        story += _of_letter(row, [a_try for a_try in tries if a_try["task_id"] == row["id"]])
    for row in deeds:
        by = {"by": row["actor"], "because": row["because"]}
        story.append(Happening(row["at"], _DEEDS.get(row["action"], row["action"]), row["subject_id"], by))
    if event["delivered_at"] is not None:
        story.append(Happening(event["delivered_at"], "delivered"))
    if event["failed_at"] is not None:
        story.append(Happening(event["failed_at"], "failed"))
    for row in tasks:
        story += _of_plan(row, holds.get(row["id"], ()))
    return sorted(story, key=lambda happening: happening.at or NEVER)


def _of_try(row: Record) -> list[Happening]:
    number = {"try": None if row["result"] == "released" else row["number"], "generation": row["generation"]}
    if row["ended_at"] is None:
        return [Happening(row["started_at"], "try begun", row["task_id"], {**number, "worker_id": row["worker_id"]})]
    facts = {
        **number,
        "status_code": row["status_code"],
        "category": row["category"],
        "error": row["error_message"],
        "possible_duplicate": True if row["possible_duplicate"] else None,
    }
    what = {
        "succeeded": "try succeeded",
        "failed": "try failed",
        "lost": "try lost",
        "released": "lease given back",
    }[row["result"]]
    story = [Happening(row["ended_at"], what, row["task_id"], facts)]
    if row["late_at"] is not None:
        late = {**number, "result": row["late_result"]}
        story.append(Happening(row["late_at"], "late result, without effect", row["task_id"], late))
    return story


def _of_letter(task: Record, tries: Sequence[Record]) -> list[Happening]:
    """Deaths, and the success of a redrive that resolved the letter. Deaths before the last ended their generations."""
    story = [
        Happening(max(ends), "died", task["id"], {"generation": generation})
        for generation in range(task["generation"])
        if (ends := [a_try["ended_at"] for a_try in tries if a_try["generation"] == generation and a_try["ended_at"]])
    ]
    if task["state"] == TaskState.DEAD:
        facts = {
            "generation": task["generation"],
            "reason": task["letter_reason"],
            "category": task["letter_category"],
            "fingerprint": task["fingerprint"],
        }
        story.append(Happening(task["failed_at"], "died", task["id"], facts))
    if task["state"] == TaskState.SUCCEEDED and task["closed_at"] is not None:
        story.append(Happening(task["closed_at"], "resolved", task["id"], {"by": task["closed_by"]}))
    return story


def _of_plan(row: Record, causes: Sequence[str]) -> list[Happening]:
    """What comes next for a task that is not done."""
    due_at, policy = moment(row["due_at"]), {"policy": row["policy"]}
    match TaskState(row["state"]):
        case TaskState.HELD:
            return [Happening(due_at, _held(causes), row["id"], policy)]
        case TaskState.WAITING if due_at is None:
            way = {"retry": f"POST /v1/retry-queue/{row['id']}/retry"}
            return [Happening(None, FOR_A_PERSON, row["id"], {**policy, **way})]
        case TaskState.WAITING:
            return [Happening(due_at, "next try is due", row["id"], policy)]
        case TaskState.LEASED | TaskState.SUCCEEDED | TaskState.DEAD:
            return []


def _held(causes: Sequence[str]) -> str:
    return f"held: {' and '.join(causes)}" if causes else "held no more: it goes on at any moment"
