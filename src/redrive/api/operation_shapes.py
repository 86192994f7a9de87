"""Operations as clients see them. Pure. Called by the routes, by the streams and by the command line."""

import msgspec

from redrive.api.evidence import redacted_payload
from redrive.core.operations import OperationState, ending, progress
from redrive.store.db import Record

Shape = dict[str, object]


def operation(row: Record) -> Shape:
    cancelled = _cancelled(row)
    return {
        "id": row["id"],
        "operation_id": row["id"],
        "action": row["action"],
        "subject": row["subject"],
        "state": row["state"],
        "total": row["total"],
        "done": row["done"],
        "succeeded": row["succeeded"],
        "failed": row["failed"],
        "cancelled": cancelled,
        "because": row["because"],
        "by": row["actor"],
        "filter": _json(row["filter"]),
        "now": row["at_once"],
        "canary": _json(row["canary"]),
        "rate_per_s": row["rate_per_s"],
        "patch": redacted_payload(row["patch"].encode()) if row["patch"] is not None else None,
        "order": row["lane_order"],
        "note": row["note"],
        "progress": progress(row["succeeded"], row["failed"], row["total"]),
        "message": message(row),
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "finished_at": row["finished_at"],
    }


def item(row: Record) -> Shape:
    return {"n": row["n"], "id": row["task_id"], "state": row["state"], "note": row["note"]}


def result(row: Record) -> Shape:
    """The answer to who waited for the end; `pending` only where it had not come in time. The operation has more."""
    sums = {"succeeded": row["succeeded"], "failed": row["failed"]}
    return sums if row["finished_at"] is not None else sums | {"pending": row["total"] - sum(sums.values())}


def message(row: Record) -> str | None:
    """What a person is told at the end."""
    if row["finished_at"] is None:
        return None
    sums = {"succeeded": row["succeeded"], "failed": row["failed"], "cancelled": _cancelled(row)}
    return ending(row["action"], OperationState(row["state"]), **sums)


def _cancelled(row: Record) -> int:
    """Items that will never be acted on."""
    left: int = row["total"] - row["dispatched"]
    return left if row["state"] == OperationState.CANCELLED else 0


def _json(text: str | None) -> object:
    return None if text is None else msgspec.json.decode(text)
