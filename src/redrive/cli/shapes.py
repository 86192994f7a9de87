"""Rows of the store as the commands show them, under the names that the HTTP API uses. Pure.

Secrets do not get this far: payloads are redacted here, requests and responses were before they were stored.
"""

from base64 import b64encode

import msgspec

from redrive.cli.output import moment
from redrive.core.channels import hidden
from redrive.core.lifecycle import retry_count
from redrive.core.policy import Policy
from redrive.core.redact import redact_text, redact_url, redact_value
from redrive.store.db import Record
from redrive.store.orgs import limits_of
from redrive.store.users import is_suspended, role_of

Shape = dict[str, object]


def dead_letter(row: Record) -> Shape:
    policy = Policy.from_spec(msgspec.json.decode(row["policy_spec"]))
    return {
        "id": row["id"],
        "log_id": row["id"],
        "event_id": row["event_id"],
        "kind": row["kind"],
        "event_type": row["event_type"],
        "external_system": row["external_system"],
        "endpoint_id": row["endpoint_id"],
        "state": row["letter_state"],
        "reason": row["letter_reason"],
        "category": row["letter_category"],
        "fingerprint": row["fingerprint"],
        "retry_count": retry_count(row["attempts"]),
        "max_retries": policy.max_retries,
        "policy": row["policy"],
        "error_message": row["letter_error"],
        "first_failed_at": row["first_failed_at"],
        "failed_at": row["failed_at"],
        "generation": row["letter_generation"],
        "correlation_id": row["correlation_id"],
        "created_at": row["first_failed_at"] or row["failed_at"],
        "updated_at": row["letter_updated_at"],
    }


def dead_letter_detail(row: Record, attempts: list[Record]) -> Shape:
    return dead_letter(row) | {
        "replay": {
            "count": row["replays"],
            "at": row["replayed_at"],
            "by": row["replayed_by"],
            "because": row["replayed_because"],
            "outcome": row["replay_outcome"],
        },
        "resolution": {"at": row["closed_at"], "by": row["closed_by"], "because": row["closed_because"]}
        if row["closed_at"]
        else None,
        "run_id": row["run_id"],
        "step_index": row["step"],
        "lane": row["lane"],
        "ordering_key": row["ordering_key"],
        "out_of_order": row["out_of_order"] is True,
        "halts_lane": row["lane_halted_by"] == row["id"],
        "payload_snapshot": payload_snapshot(row),
        "attempts": [attempt(one) for one in attempts],
    }


def attempt(row: Record) -> Shape:
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
        "url": row["url"],
        "possible_duplicate": row["possible_duplicate"],
        "late": {"at": row["late_at"], "result": row["late_result"]} if row["late_at"] else None,
        "worker_id": row["worker_id"],
    }


def event(row: Record) -> Shape:
    return {
        "event_id": row["id"],
        "event_type": row["event_type"],
        "timestamp": row["occurred_at"],
        "status": row["status"],
        "endpoint_id": row["endpoint_id"],
        "handler": row["handler"],
        "policy": row["policy"],
        "external_system": row["external_system"],
        "ordering_key": row["ordering_key"],
        "correlation_id": row["correlation_id"],
        "received_at": row["received_at"],
        "delivered_at": row["delivered_at"],
        "failed_at": row["failed_at"],
    }


def event_detail(row: Record, status: Record) -> Shape:
    return event(row) | {
        "open_tasks": row["open_tasks"],
        "dead_tasks": row["dead_tasks"],
        "retry_attempts": status["retry_attempts"],
        "last_retry_at": status["last_retry_at"],
        "next_retry_at": moment(status["next_retry_at"]),
        "payload_snapshot": payload_snapshot(row),
    }


def endpoint(row: Record) -> Shape:
    """Its URL without the query, which may hold a credential; its headers and secrets not at all."""
    return {
        "id": row["id"],
        "name": row["name"],
        "kind": row["kind"],
        "url": redact_url(row["url"]) if row["url"] else None,
        "exchange": row["exchange"],
        "routing_key": row["routing_key"],
        "to": row["mail_to"],
        "apprise_url": hidden(row["apprise_service"]) if row["apprise_service"] else None,
        "event_types": list(row["event_types"]),
        "policy": row["policy"],
        "external_system": row["external_system"],
        "timeout_s": row["timeout_s"],
        "ordered": row["ordered"],
        "on_block": row["on_block"],
        "max_block_s": row["max_block_s"],
        "max_in_flight": row["max_in_flight"],
        "rate_per_s": row["rate_per_s"],
        "disabled": row["disabled_at"] is not None,
        "disabled_at": row["disabled_at"],
        "disabled_reason": row["disabled_reason"],
        "paused": row["paused_at"] is not None,
        "paused_at": row["paused_at"],
        "created_at": row["created_at"],
    }


KEY_FIELDS = (
    *("id", "name", "role", "scope", "endpoint_id", "hint"),
    *("created_at", "expires_at", "revoked_at", "last_used_at"),
)


def key(row: Record) -> Shape:
    return {name: row[name] for name in KEY_FIELDS}


def user(row: Record) -> Shape:
    return {
        "id": row["id"],
        "email": row["email"],
        "name": row["name"],
        "role": role_of(row),
        "suspended": is_suspended(row),
        "created_at": row["created_at"],
        "last_login_at": row["last_login_at"],
    }


def org(row: Record) -> Shape:
    return {
        "id": row["org_id"],
        "name": row["name"],
        "created_at": row["created_at"],
        "default_policy": row["default_policy"],
        "limits": limits_of(row).to_spec(),
        "usage": {"stored_bytes": row["stored_bytes"], "endpoints": row["endpoints"]},
    }


def policy(row: Record) -> Shape:
    spec: Shape = msgspec.json.decode(row["spec"])
    binding = {"event_types": row["event_types"], "default": row["is_default"]}
    return {"name": row["name"], **spec, **binding, "preset": row["preset"]}


def payload_snapshot(row: Record) -> object:
    """A payload with what looks secret hidden; text or base64 where it is not JSON."""
    body: bytes | None = row["body"]
    if body is None:
        return f"[{row['body_bytes']} bytes, too many to be shown]"
    try:
        return redact_value(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # not JSON: shown as what it is
    try:
        return redact_text(body.decode("utf-8"))
    except UnicodeDecodeError:
        return f"base64:{b64encode(body).decode()}"
