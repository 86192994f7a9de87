"""Workflows and their runs as the JSON that clients see. Pure; called by the routes and the pages."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from redrive.api.evidence import redacted_payload
from redrive.api.shapes import Shape, moment
from redrive.core.lifecycle import DeadLetterState, TaskState
from redrive.core.run_states import StepStatus, schedule_id, step_key, step_status
from redrive.store.db import Record
from redrive.store.policies import OVERRIDE_NAME
from redrive.store.steps import overrides_of

# How inputs and outputs are shown.
Show = Callable[[bytes | None], object]


SHOWN_BESIDES = frozenset({"version", "in_force", "created_at", "created_by"})  # so that GET, edit, PUT works


def workflow(row: Record) -> Shape:
    """A definition, with what looks secret hidden."""
    shown = msgspec.json.decode(row["shown"], type=dict[str, object])
    return {
        "name": row["name"],
        "version": row["version"],
        "description": shown.get("description"),
        "retention_s": shown.get("retention_s"),
        "steps": shown["steps"],
        "in_force": row["retired_at"] is None,
        "created_at": row["created_at"],
        "created_by": row["created_by"],
    }


def run(row: Record) -> Shape:
    """A run as it stands in a list."""
    return {
        "run_id": row["id"],
        "workflow": row["workflow"],
        "version": row["version"],
        "status": row["status"],
        "correlation_id": row["correlation_id"],
        "steps_done": row["done"],
        "steps_total": row["steps"],
        "replays": row["replays"],
        "created_at": row["created_at"],
        "started_at": row["started_at"],
        "finished_at": row["finished_at"],
        "cancelled_at": row["cancelled_at"],
    }


def run_detail(
    row: Record, steps: Sequence[Record], ahead: Mapping[int, Record], show: Show = redacted_payload
) -> Shape:
    """A run with its steps: those that it has come to as their tasks say, the others as they will be."""
    defined = msgspec.json.decode(row["shown"])["steps"]
    known = {step["index"]: step for step in steps}
    return {
        "run_id": row["id"],
        "workflow": row["workflow"],
        "version": row["version"],
        "status": row["status"],
        "correlation_id": row["correlation_id"],
        "replays": row["replays"],
        "created_at": row["created_at"],
        "created_by": row["created_by"],
        "started_at": row["started_at"],
        "finished_at": row["finished_at"],
        "cancelled": cancelled(row),
        "input": show(row["input"]),
        "steps": [
            _step(row, index, one, known.get(index), ahead.get(index), show) for index, one in enumerate(defined)
        ],
    }


def cancelled(row: Record) -> Shape | None:
    if row["cancelled_at"] is None:
        return None
    return {"at": row["cancelled_at"], "by": row["cancelled_by"], "because": row["cancelled_because"]}


def status_of(step: Record) -> StepStatus:
    return step_status(step["state"], step["letter_state"], bool(step["attempts"]))


def _step(
    run: Record, index: int, defined: Mapping[str, object], step: Record | None, ahead: Record | None, show: Show
) -> Shape:
    shape: Shape = {
        "index": index,
        "name": defined["name"],
        "kind": defined["kind"],
        "status": StepStatus.PENDING,
        "attempt_count": 0,
        "attempts_total": 0,
        "max_retries": msgspec.json.decode(ahead["spec"])["max_retries"] if ahead is not None else None,
        "next_retry_at": None,
        "first_failed_at": None,
        "last_failed_at": None,
        "error_message": None,
        "error_stack": None,
        "category": None,
        "correlation_id": run["correlation_id"],
        "retry_policy_override": _override(ahead) if ahead is not None and index in overrides_of(run) else None,
        "dead_letter_id": None,
        "policy": ahead["name"] if ahead is not None else None,
        "idempotency_key": step_key(str(run["id"]), index),
        "execution": 0,
        "scheduled_as": None,
        "due_at": None,
        "log_id": None,
        "started_at": None,
        "finished_at": None,
        "input": None,
        "output": None,
        "output_is_cut": False,
    }
    if step is None:
        return shape
    shape |= {
        "idempotency_key": step["idempotency_key"],
        "execution": step["execution"],
        "output": show(step["output"]),
        "output_is_cut": step["output_is_cut"],
    }
    if step["task_id"] is None:
        return shape
    shape |= _carried_out(run, index, step, show)
    if step["state"] == TaskState.DEAD and step["letter_state"] == DeadLetterState.REPLAYING:
        shape["attempt_count"] = 0  # of the generation that begins when the run comes to it
        if shape["retry_policy_override"] is not None and ahead is not None:
            shape |= {"policy": ahead["name"], "max_retries": msgspec.json.decode(ahead["spec"])["max_retries"]}
    return shape


def _override(policy: Record) -> object:
    return msgspec.json.decode(policy["spec"]) if policy["name"] == OVERRIDE_NAME else policy["name"]


def _carried_out(run: Record, index: int, step: Record, show: Show) -> Shape:
    status = status_of(step)
    attempts: int = step["attempts"]
    is_open = step["state"] in ("waiting", "held", "leased")
    has_failed = step["first_failed_at"] is not None
    due_at = moment(step["due_at"]) if step["state"] in ("waiting", "held") else None
    return {
        "status": status,
        "attempt_count": attempts,
        "attempts_total": step["attempts_total"],
        "max_retries": msgspec.json.decode(step["policy_spec"])["max_retries"],
        "next_retry_at": due_at if attempts > 0 else None,
        "first_failed_at": step["first_failed_at"],
        "last_failed_at": step["last_failed_at"],
        "error_message": step["error_message"] if has_failed else None,
        "error_stack": step["error_stack"] if has_failed else None,
        "category": step["category"] if has_failed else None,
        "correlation_id": step["correlation_id"],
        "dead_letter_id": step["task_id"] if step["letter_state"] not in (None, "deleted") else None,
        "policy": step["policy"],
        "scheduled_as": schedule_id(str(run["id"]), index, attempts + 1, step["generation"]) if is_open else None,
        "due_at": due_at,
        "log_id": step["task_id"],
        "started_at": step["leased_at"],
        "finished_at": step["updated_at"] if not is_open else None,
        "input": show(step["body"]) if step["body"] else None,
    }
