"""Reading a replay as people send it: mode, policy, edited payload and headers. Pure.

Called by routes.replay. The payload is never rebuilt: its bytes are kept as they came.
"""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, ConfigDict, Field

from redrive.api.endpoint_input import Headers, PolicyName
from redrive.api.policy_input import SHOWN_BESIDES
from redrive.api.problems import FieldError, Problem, invalid, payload_too_large
from redrive.api.queries import RedriveIn
from redrive.core.broker import RABBITMQ_KIND
from redrive.core.policy import PolicyError
from redrive.core.redact import REDACTED, looks_secret
from redrive.store.edits import Edit, Override
from redrive.store.events import MAX_PAYLOAD_BYTES

MAX_STEP_INDEX = 10_000
STEP_KIND = "step"
HTTP_KIND = "http"
_NOT_SPEC = SHOWN_BESIDES | {"name", "event_types", "default"}  # of a policy as it is shown; taken back unread


def _harmless(headers: dict[str, str]) -> dict[str, str]:
    """An edit is shown and kept in the clear: a secret has no place in it."""
    for name, value in headers.items():
        if looks_secret(name):
            raise ValueError(
                f"{name} looks like a secret; change the endpoint's headers instead, which are kept sealed"
            )
        if value == REDACTED:
            raise ValueError(f"{name} has the value that answers show in place of another; give its value")
    return headers


class ReplayIn(RedriveIn):
    """How to try a dead letter again. What is left out, or null, stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"payload": {"invoice": 7, "currency": "EUR"}, "because": "the currency was missing"}]
        },
    )

    mode: Literal["STEP_ONLY", "FROM_STEP"] | None = None
    from_step_index: Annotated[int, Field(ge=0, le=MAX_STEP_INDEX)] | None = None
    override_retry_policy: dict[str, object] | PolicyName | None = None
    payload: Any = Field(default=None, description="Any JSON but null; delivered byte for byte as sent.")
    headers: Annotated[Headers, AfterValidator(_harmless)] | None = None
    discard_edit: bool = False
    again: bool = Field(default=False, description="Replay a dead letter that is already resolved, too.")
    now: bool = Field(default=True, description="False: wait for the policy's first delay.")
    new_idempotency_key: bool = Field(
        default=False, description="Of a step: its effects carry another key than before, so that they happen again."
    )

    def edit(self, body: bytes) -> Edit:
        """`body`: the request's, which has the payload's own bytes."""
        payload = None if self.payload is None else bytes(msgspec.json.decode(body, type=_Payload).payload)
        if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:
            raise payload_too_large(MAX_PAYLOAD_BYTES)
        return Edit(payload, self.headers, self.discard_edit)

    def policy(self) -> Override | None:
        return override_of(self.override_retry_policy)

    def check_kind(self, kind: str, *, has_endpoint: bool) -> None:
        """Refuse what a dead letter of this kind cannot do."""
        errors = []
        if kind != STEP_KIND:
            why = "this dead letter is not a workflow step"
            if self.mode == "FROM_STEP":
                errors.append(FieldError(("body", "mode"), why))
            if self.from_step_index is not None:
                errors.append(FieldError(("body", "from_step_index"), why))
            if self.new_idempotency_key:
                errors.append(FieldError(("body", "new_idempotency_key"), why))
        takes_headers = kind == HTTP_KIND or (kind == RABBITMQ_KIND and has_endpoint)
        if not takes_headers and self.headers is not None:
            errors.append(FieldError(("body", "headers"), f"a task of the kind {kind} is sent without headers"))
        if errors:
            raise invalid(*errors)


def override_of(given: dict[str, object] | str | None) -> Override | None:
    """What to replay something under: fields of a policy, or the name of one in force."""
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if name not in _NOT_SPEC}


def unusable_override(error: PolicyError) -> Problem:
    place = ("body", "override_retry_policy")
    return invalid(*(FieldError((*place, *inner), message) for inner, message in error.errors))


class _Payload(msgspec.Struct):
    payload: msgspec.Raw
