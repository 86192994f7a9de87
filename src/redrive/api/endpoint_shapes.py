"""What pauses, lanes, deliveries and the health of an endpoint look like to clients. Pure; called by the routes."""

from dataclasses import asdict

from redrive.api.shapes import Shape, moment
from redrive.core.decide import Reason
from redrive.core.lifecycle import TaskState, relay_status
from redrive.store.db import Record
from redrive.store.endpoint_history import History
from redrive.store.endpoint_states import EndpointState
from redrive.store.lanes import Head, Lane
from redrive.store.pausing import Pause, PauseScope


def pause(state: Pause) -> Shape:
    named: Shape = {"endpoint_id": state.id, "name": state.name} if state.scope is PauseScope.ENDPOINT else {}
    return {
        "scope": state.scope,
        **named,
        "paused": state.paused,
        "paused_at": state.paused_at,
        "paused_by": state.paused_by,
        "because": state.because,
        "held": state.held,
    }


def health(state: EndpointState, history: History, hubs: int | None = None) -> Shape:
    return {
        "endpoint_id": state.endpoint_id,
        "breaker": {
            "state": state.breaker,
            "since": state.breaker_since,
            "reason": state.breaker_reason,
        },
        "last_success_at": state.last_success_at,
        "last_failure_at": state.last_failure_at,
        "failing_since": state.failing_since,
        "failures": state.failures,
        "hubs": hubs,
        "bucket_s": round(history.bucket.total_seconds()),
        "history": [asdict(point) for point in history.points],
    }


def lane(found: Lane) -> Shape:
    head = found.head
    return {
        "lane": found.lane,
        "ordering_key": found.ordering_key,
        "halted_at": found.halted_at,
        "halted_by": found.halted_by,
        "gap": found.gap,
        "head": None if head is None else _head(head),
        "waiting": found.waiting,
        "is_whole": found.is_whole,
    }


_HEAD_STATUS = {TaskState.HELD: "held", TaskState.LEASED: "in_progress"}


def _head(head: Head) -> Shape:
    return {
        "id": head.id,
        "event_id": head.event_id,
        "status": _HEAD_STATUS.get(head.state, "pending"),
        "attempts": head.attempts,
        "next_retry_at": moment(head.due_at) if head.state is TaskState.WAITING and head.attempts else None,
        "error_message": head.error_message,
    }


def delivery(row: Record) -> Shape:
    state = TaskState(row["state"])
    is_scheduled = state in (TaskState.WAITING, TaskState.HELD) and row["attempts"] > 0
    return {
        "id": row["id"],
        "log_id": row["id"],
        "event_id": row["event_id"],
        "event_type": row["event_type"],
        "status": relay_status(state, Reason(row["reason"]) if row["reason"] else None),
        "attempts": row["attempts"],
        "received_at": row["received_at"],
        "last_attempt_at": row["last_attempt_at"],
        "delivered_at": row["delivered_at"],
        "error_message": row["error_message"],
        "next_retry_at": moment(row["due_at"]) if is_scheduled else None,
    }
