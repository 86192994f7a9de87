"""Errors as clients see them: RFC 9457 problem+json. No internals, no payloads, no keys.

Raised anywhere below the API as Problem; written out by front_door for the hot routes and by server for the rest.
"""

from collections.abc import Sequence
from http import HTTPStatus
from math import ceil
from typing import NamedTuple

import msgspec

from redrive.core.permissions import Action, Role, may
from redrive.store.keys import Caller

PROBLEM_TYPE = "application/problem+json"
MAX_ERRORS = 50

Place = tuple[str | int, ...]


class FieldError(NamedTuple):
    """One thing that is wrong with the input, and where."""

    loc: Place
    msg: str

    def shape(self) -> dict[str, object]:
        return {"loc": list(self.loc), "msg": self.msg}


class Problem(Exception):
    """An answer other than success. `detail` is for people: what happened, why, what to do."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)[:MAX_ERRORS]
        self.headers = tuple(headers)

    def body(self, correlation_id: str) -> bytes:
        shape: dict[str, object] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            shape["errors"] = [error.shape() for error in self.errors]
        shape["correlation_id"] = correlation_id
        return msgspec.json.encode(shape)


def not_found(noun: str) -> Problem:
    """The same for an unknown id, another org's id, and what is no id at all."""
    return Problem(404, f"There is no such {noun}.")


def invalid(*errors: FieldError) -> Problem:
    return Problem(422, "The request cannot be used as it is; see errors.", errors=errors)


def bad_query(*errors: FieldError) -> Problem:
    return Problem(400, "The query of this request cannot be used; see errors.", errors=errors)


def unauthorised() -> Problem:
    return Problem(
        401,
        "Give a valid API key in the header X-API-Key, or as Authorization: Bearer.",
        headers=(("www-authenticate", "Bearer"),),
    )


def session_ended() -> Problem:
    return Problem(401, "This session has ended. Sign in again; `redrive login-link` prints a link that does.")


def suspended() -> Problem:
    return Problem(403, "This membership is suspended. An ADMIN of the org can end that.")


def too_many(detail: str, wait_s: float) -> Problem:
    return Problem(429, detail, headers=(("retry-after", str(max(1, ceil(wait_s)))),))


def forbidden(caller: Caller, action: Action) -> Problem:
    if caller.scope is not None and may(caller.role, action):
        return limited(caller)
    able = " or ".join(role for role in Role if may(role, action))
    return Problem(403, f"The role {caller.role} may not do this: it takes {able}.")


def limited(caller: Caller) -> Problem:
    return Problem(403, f"This key is limited to one thing: {caller.scope}.")


def too_large(limit_bytes: int) -> Problem:
    return Problem(413, f"The body is larger than {limit_bytes} bytes.")


def payload_too_large(limit_bytes: int) -> Problem:
    return Problem(413, f"The payload is larger than {limit_bytes} bytes.")


def unavailable(reason: str, retry_after_s: int = 1) -> Problem:
    """Nothing was acknowledged; the caller may try again."""
    return Problem(503, reason, headers=(("retry-after", str(retry_after_s)),))


def internal() -> Problem:
    return Problem(500, "Something went wrong on our side. The log has it under this correlation id.")
