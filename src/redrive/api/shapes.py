"""Rows of the store as the JSON that clients see: one place for every shape. Pure.

Called by the routes. Times and ids stay values: the encoder writes them (ISO 8601 with Z, microseconds kept).
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from math import floor

import msgspec

from redrive.api.evidence import payload_or_size, redacted_answer, redacted_payload
from redrive.core.broker import RETURN_QUEUE
from redrive.core.channels import TO_PEOPLE, hidden, method_of
from redrive.core.lifecycle import CLOSED_STATES, TaskState, queue_status, retry_count
from redrive.core.policy import Policy, preview
from redrive.core.redact import REDACTED, redact_url
from redrive.store.db import Record
from redrive.store.endpoints import EndpointSpec
from redrive.store.pausing import Hold

Row = Record
Shape = dict[str, object]

NEVER_YEAR = datetime.max.year  # the database's infinity
# Of receivers' answers in one of ours. To hide what looks secret in them takes about a second per MiB.
MAX_ANSWERS_BYTES = 512 * 1024


def moment(at: datetime | None) -> datetime | None:
    """A time, or None for one that never comes."""
    return None if at is None or at.year == NEVER_YEAR else at


@lru_cache(maxsize=1024)
def _policy(spec: str) -> Policy:
    """A page of tasks repeats few policies."""
    return Policy.from_spec(msgspec.json.decode(spec))


def entry(row: Row) -> Shape:
    """A task as it stands in the retry queue."""
    state = TaskState(row["state"])
    policy = _policy(row["policy_spec"])
    is_scheduled = state in (TaskState.WAITING, TaskState.HELD) and row["attempts"] > 0
    return {
        "id": row["id"],
        "log_id": row["id"],
        "event_id": row["event_id"],
        "kind": row["kind"],
        "event_type": row["event_type"],
        "external_system": row["external_system"],
        "endpoint_id": row["endpoint_id"],
        "status": _status(state, row),
        "retry_count": retry_count(row["attempts"]),
        "max_retries": retry_count(row["attempts"]) if _was_retried_elsewhere(row) else policy.max_retries,
        "retry_policy": policy.public_kind,
        "policy": row["policy"],
        "next_retry_at": moment(row["due_at"]) if is_scheduled else None,
        "last_retry_at": row["last_failed_at"],
        "in_dlq": state is TaskState.DEAD,
        "held": state is TaskState.HELD,
        "blocked_by": None,
        "error_message": row["error_message"],
        "error_stack": row["error_stack"],
        "correlation_id": row["correlation_id"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }


def _was_retried_elsewhere(row: Row) -> bool:
    """A message of RabbitMQ, as it was collected: its service granted the retries that it made, and no more."""
    return bool(row["queue"] == RETURN_QUEUE and row["generation"] == 0)


def held_by(entry: Shape, hold: Hold | None) -> Shape:
    """An entry and what keeps it from being tried. Held is also one that is due and that a breaker keeps back."""
    if hold is None:
        return entry
    return entry | {"held": entry["held"] or hold.breaker is not None, "blocked_by": hold.refusal}


def failed_entry(row: Row) -> Shape:
    """One that has failed before, with what became of it since. Resolved or ignored, a dead one is in no queue."""
    return entry(row) | {"in_dlq": row["state"] == TaskState.DEAD and row["letter_state"] not in CLOSED_STATES}


def _status(state: TaskState, row: Row) -> str:
    return queue_status(state, row["attempts"]) or "pending"


def dead_letter(row: Row) -> Shape:
    """A task that died, as it stands in the list of dead letters."""
    return entry(row) | {
        "in_dlq": row["state"] == TaskState.DEAD and row["letter_state"] not in CLOSED_STATES,
        "error_message": row["letter_error"],
        "created_at": row["first_failed_at"] or row["failed_at"],
        "updated_at": row["letter_updated_at"],
        "reason": row["letter_reason"],
        "category": row["letter_category"],
        "fingerprint": row["fingerprint"],
        "state": row["letter_state"],
        "first_failed_at": row["first_failed_at"],
        "failed_at": row["failed_at"],
        "generation": row["letter_generation"],
        "run_id": row["run_id"],
        "step_index": row["step"],
    }


def dead_letter_detail(row: Row, attempts: Sequence[Row]) -> Shape:
    details: Shape = {
        "attempts": tries(attempts),
        "payload_snapshot": _payload(row) if row["payload"] is None else msgspec.Raw(row["payload"].encode()),
        "config_snapshot": {
            **_configured(row),
            "policy": {"name": row["policy"], **msgspec.json.decode(row["policy_spec"], type=dict[str, object])},
        },
        "lane": row["lane"],
        "ordering_key": row["ordering_key"],
        "out_of_order": row["out_of_order"] is True,
        "halts_lane": row["lane_halted_by"] == row["id"],
    }
    return dead_letter(row) | details | judged(row)


def _payload(row: Row, *, whole: bool = False) -> object:
    return payload_or_size(row["body"], row["body_bytes"], whole=whole)


def _configured(row: Row) -> Shape:
    """An endpoint as it was when the task died; of a step its definition, too."""
    config = msgspec.json.decode(row["config"]) if row["config"] else None
    if row["run_id"] is None or config is None:
        return {"endpoint": config, "step": None}
    about = {"workflow": config["workflow"], "version": config["version"], **config["step"]}
    return {"endpoint": config["endpoint"], "step": about}


def judged(row: Row) -> Shape:
    """What people decided about a dead letter, and what came of it."""
    return {
        "replay": {
            "count": row["replays"],
            "at": row["replayed_at"],
            "by": row["replayed_by"],
            "because": row["replayed_because"],
            "outcome": row["replay_outcome"],
        },
        "resolution": {
            "at": row["closed_at"],
            "by": row["closed_by"],
            "because": row["closed_because"],
            "state": row["letter_state"],
        }
        if row["closed_at"] is not None
        else None,
    }


def tries(rows: Sequence[Row], *, answers_bytes: int = MAX_ANSWERS_BYTES) -> list[Shape]:
    """Attempts in the order given. The bodies of the oldest are left out where all together are too much."""
    shown: list[Shape] = []
    left_bytes = answers_bytes
    for row in reversed(rows):
        left_bytes -= len(row["response_body"] or b"")
        shown.append(_try(row, with_body=left_bytes >= 0))
    return shown[::-1]


def _try(row: Row, *, with_body: bool) -> Shape:
    """One try. An open lease is a try with the result `open` and no end."""
    ended_at = row["ended_at"]
    return {
        "task_id": row["task_id"],
        "number": None if row["result"] == "released" else row["number"],
        "generation": row["generation"],
        "result": row["result"],
        "started_at": row["started_at"],
        "ended_at": ended_at,
        "duration_ms": round((ended_at - row["started_at"]).total_seconds() * 1000, 3) if ended_at else None,
        "status_code": row["status_code"],
        "category": row["category"],
        "error_message": row["error_message"],
        "error_stack": row["error_stack"],
        "possible_duplicate": row["possible_duplicate"],
        "request": _request(row),
        "response": _response(row, with_body=with_body),
        "late": {"at": row["late_at"], "result": row["late_result"]} if row["late_at"] else None,
        "worker_id": row["worker_id"],
    }


def _request(row: Row) -> Shape | None:
    """What was sent: the standard headers follow from the try itself, only custom ones are stored."""
    if row["url"] is None:
        return None
    is_step = row["run_id"] is not None
    method = row["method"] if is_step else method_of(row["url"])
    ours = _step_headers(row) if is_step else _delivery_headers(row, str(row["event_id"]))
    return {
        "method": method,
        "url": row["url"],
        "headers": ({} if method in TO_PEOPLE else ours) | _headers(row["request_headers"]),
    }


def _delivery_headers(row: Row, webhook_id: str) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(floor(row["started_at"].timestamp())),
        "webhook-signature": REDACTED,
        "redrive-event-type": row["event_type"],
        "redrive-attempt": str(row["number"]),
    }


def _step_headers(row: Row) -> dict[str, str]:
    """A workflow's step is signed only where it calls an endpoint, which has a secret; its content type is stored."""
    ours = {
        "redrive-run-id": str(row["run_id"]),
        "redrive-event-type": row["event_type"],
        "redrive-attempt": str(row["number"]),
    }
    if row["endpoint_id"] is None:
        return ours
    key = _headers(row["request_headers"]).get("idempotency-key", "")
    return {name: value for name, value in _delivery_headers(row, key).items() if name != "content-type"} | ours


def _response(row: Row, *, with_body: bool = True) -> Shape | None:
    if row["status_code"] is None:
        return None
    body: bytes | None = row["response_body"]
    return {
        "status": row["status_code"],
        "headers": _headers(row["response_headers"]),
        "body": redacted_answer(body, truncated=row["truncated"]) if body is not None and with_body else None,
        "truncated": row["truncated"] or not (body is None or with_body),
    }


def _headers(stored: str | None) -> dict[str, str]:
    return msgspec.json.decode(stored, type=dict[str, str]) if stored else {}


def event(row: Row) -> Shape:
    """An event as it stands in the list: without its payload."""
    return {
        "event_id": row["id"],
        "event_type": row["event_type"],
        "timestamp": row["occurred_at"],
        "status": row["status"],
        "endpoint_id": row["endpoint_id"],
        "ordering_key": row["ordering_key"],
        "policy": row["policy"],
        "external_system": row["external_system"],
        "correlation_id": row["correlation_id"],
        "submitted_by": row["submitted_by"],
        "received_at": row["received_at"],
        "delivered_at": row["delivered_at"],
        "failed_at": row["failed_at"],
    }


def event_detail(row: Row, status: Row, *, whole_payload: bool) -> Shape:
    """`whole_payload`: for those who may see what looks secret in it."""
    return event(row) | event_status(status) | {"payload": _payload(row, whole=whole_payload)}


def event_status(row: Row) -> Shape:
    return {
        "event_id": row["id"],
        "status": row["status"],
        "retry_attempts": row["retry_attempts"],
        "last_retry_at": row["last_retry_at"],
        "failed_at": row["failed_at"],
        "next_retry_at": moment(row["next_retry_at"]),
    }


def endpoint(
    row: Row, spec: EndpointSpec, *, whole_url: bool, problem: str | None = None, hook_url: str | None = None
) -> Shape:
    """An endpoint without its secret. Custom headers may carry credentials: only their names are shown.

    So may a URL: it is whole only for those who may change it. `problem`: why nothing can be delivered there.
    `hook_url` is shown as it is given.
    """
    return {
        "id": row["id"],
        "name": spec.name,
        "kind": spec.kind,
        "url": spec.url if whole_url or spec.url is None else redact_url(spec.url),
        "hook_url": hook_url,
        "verify": {"scheme": spec.verify.scheme, "secret": REDACTED} if spec.verify else None,
        "exchange": spec.exchange,
        "routing_key": spec.routing_key,
        "to": None if spec.to is None else list(spec.to),
        "apprise_url": hidden(row["apprise_service"]) if row["apprise_service"] else None,
        "event_types": list(spec.event_types),
        "policy": spec.policy,
        "ordered": spec.ordered,
        "external_system": spec.external_system,
        "headers": {name: REDACTED for name, _ in spec.headers},
        "ca_pem": spec.ca_pem,
        "timeout_s": spec.timeout_s,
        "max_in_flight": spec.max_in_flight,
        "rate_per_s": spec.rate_per_s,
        "max_block_s": spec.max_block_s,
        "on_block": spec.on_block,
        "disabled": spec.disabled,
        "disabled_at": row["disabled_at"],
        "disabled_reason": row["disabled_reason"],
        "paused": row["paused_at"] is not None,
        "paused_at": row["paused_at"],
        "problem": problem,
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }


def log(row: Row, attempts: Sequence[Row], edited_body: bytes | None = None) -> Shape:
    """The integration log of a task: what was last sent (the event's payload, or an edited one) and answered, and every
    try before it.
    """
    tried = [one for one in attempts if one["result"] in ("succeeded", "failed", "lost")]
    last = tried[-1] if tried else None
    request = _request(last) if last is not None else None
    if request is not None:
        request["body"] = _payload(row) if edited_body is None else redacted_payload(edited_body)
    return {
        "id": row["id"],
        "log_id": row["id"],
        "event_id": row["event_id"],
        "event_type": row["event_type"],
        "external_system": row["external_system"],
        "status": _log_status(row),
        "note": note(row),
        "request": request,
        "response": _response(last) if last is not None else None,
        "error_message": row["error_message"],
        "error_stack": row["error_stack"],
        "correlation_id": row["correlation_id"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "attempts": tries(attempts),
    }


def log_entry(row: Row) -> Shape:
    """A log as it stands in the list: without request, response and tries."""
    return {
        "id": row["id"],
        "log_id": row["id"],
        "event_id": row["event_id"],
        "kind": row["kind"],
        "event_type": row["event_type"],
        "external_system": row["external_system"],
        "endpoint_id": row["endpoint_id"],
        "status": _log_status(row),
        "attempt_count": row["attempts"],
        "error_message": row["error_message"],
        "correlation_id": row["correlation_id"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }


def _log_status(row: Row) -> str:
    if row["state"] == TaskState.SUCCEEDED:
        return "success"
    # Dead without a try is possible: expired, or skipped, before one was made.
    return "error" if row["attempts"] or row["state"] == TaskState.DEAD else "pending"


def note(row: Row) -> str | None:
    retries = retry_count(row["attempts"])
    if row["state"] == TaskState.SUCCEEDED and retries:
        return f"Succeeded on retry attempt {retries}"
    return None


def policy(row: Row) -> Shape:
    spec = msgspec.json.decode(row["spec"], type=dict[str, object])
    binding = {"event_types": row["event_types"], "default": row["is_default"]}
    return {"name": row["name"], **spec, **binding, "preset": row["preset"], "created_at": row["created_at"]}


def policy_preview(name: str | None, chosen: Policy) -> Shape:
    return {
        "policy": name,
        "max_retries": chosen.max_retries,
        "retries": [
            {"retry": r.retry, "delay_s": r.delay_s, "min_s": r.min_s, "max_s": r.max_s, "at_s": r.at_s}
            for r in preview(chosen)
        ],
    }


def page(data: Sequence[object], *, limit: int, cursor: str | None, total: int | None) -> Shape:
    return {
        "data": data,
        "pagination": {"limit": limit, "cursor": cursor, "has_more": cursor is not None, "total_count": total},
    }


def whole(data: Sequence[object], limit: int) -> Shape:
    """A list that is short enough to be shown at once."""
    return page(data, limit=limit, cursor=None, total=len(data))


def newest_tries(rows: Sequence[Row], limit: int) -> Shape:
    """Attempts as a list of their own. No cursor leads to the older ones, but that there are some is said."""
    older = bool(rows) and rows[0]["older"]
    pagination = {"limit": limit, "cursor": None, "has_more": older, "total_count": None if older else len(rows)}
    return {"data": tries(rows), "pagination": pagination}
