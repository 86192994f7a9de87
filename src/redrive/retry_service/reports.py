"""Reading what a program reports: an event that it tried itself, and the error that it met. Pure."""

import traceback
from typing import Any, Literal
from uuid import UUID

from redrive.api.correlation import MAX_CORRELATION_CHARS
from redrive.api.event_input import MAX_IDEMPOTENCY_KEY_CHARS, MAX_POLICY_NAME_CHARS, MAX_TEXT_CHARS
from redrive.core.classify import MAX_MESSAGE_CHARS, failure_of
from redrive.core.ids import id_of_key
from redrive.core.outcome import Category, Failure
from redrive.core.redact import redact_text
from redrive.library import MAX_NAME_CHARS, body_of
from redrive.store.events import MAX_PAYLOAD_BYTES, NewEvent, new_correlation_id
from redrive.store.orgs import new_id


def reported_event(
    org_id: UUID,
    event_type: str,
    payload: Any,
    *,
    idempotency_key: str | None = None,
    endpoint_id: UUID | None = None,
    handler: str | None = None,
    policy: str | None = None,
    external_system: str | None = None,
    correlation_id: str | None = None,
) -> NewEvent:
    """The event as it is stored; ValueError says what cannot be used."""
    _check("event_type", event_type, MAX_NAME_CHARS)
    _check("handler", handler, MAX_NAME_CHARS)
    _check("policy", policy, MAX_POLICY_NAME_CHARS)
    _check("external_system", external_system, MAX_TEXT_CHARS)
    _check("correlation_id", correlation_id, MAX_CORRELATION_CHARS)
    _check("idempotency_key", idempotency_key, MAX_IDEMPOTENCY_KEY_CHARS)
    body = body_of(payload)
    if len(body) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a payload has at most {MAX_PAYLOAD_BYTES} bytes, not {len(body)}")
    kind: Literal["event", "handler"] = "event" if handler is None else "handler"
    return NewEvent(
        org_id,
        new_id() if idempotency_key is None else id_of_key(org_id, kind, idempotency_key),
        event_type,
        body,
        endpoint_id=endpoint_id,
        handler=handler,
        policy=policy,
        external_system=external_system,
        correlation_id=correlation_id or new_correlation_id(),
    )


def failure_reported(error: BaseException | str) -> Failure:
    """Classified and redacted as a handler's own would be. A mere text is of class `unknown`."""
    if isinstance(error, BaseException):
        return failure_of(error, "".join(traceback.format_exception(error)))
    return Failure(Category.UNKNOWN, redact_text(error, MAX_MESSAGE_CHARS))


def _check(name: str, text: str | None, limit: int) -> None:
    if text is not None and (not 1 <= len(text) <= limit or not text.isprintable()):
        raise ValueError(f"{name} has 1 to {limit} printable characters")
