"""Which HTTP headers people may give to what is sent. Pure.

Called by api.endpoint_input for endpoints, by core.step_fields for steps of workflows. What these rules let through,
the delivering client can send. Values are never repeated in a message: they may be secrets.
"""

import re
from collections.abc import Iterable

MAX_HEADERS = 50
MAX_HEADERS_BYTES = 8_192

# Ours to set, or the connection's: a second one would change the meaning of the request.
FORBIDDEN_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "accept-encoding",
        "user-agent",
    }
)
FORBIDDEN_PREFIXES = ("webhook-", "redrive-", "proxy-")
# What a step of a workflow sends of itself besides.
STEP_HEADERS = frozenset({"idempotency-key", "traceparent", "x-correlation-id"})

TOO_LARGE = f"together they must not be larger than {MAX_HEADERS_BYTES} bytes"

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")


def name_problem(name: str, also_forbidden: frozenset[str] = frozenset()) -> str | None:
    """Why a header of this name cannot be given; None where it can."""
    lower = name.lower()
    if not _TOKEN.fullmatch(name):
        return "a header's name holds letters, digits and hyphens only"
    if lower in FORBIDDEN_HEADERS or lower in also_forbidden or lower.startswith(FORBIDDEN_PREFIXES):
        return f"{name} is set by Redrive itself and cannot be given"
    return None


def value_problem(name: str, value: str) -> str | None:
    """Why this header cannot have that value; None where it can."""
    if _VALUE.fullmatch(value):
        return None
    return f"the value of {name} must be printable ASCII without line breaks or blanks at its ends"


def are_too_large(headers: Iterable[tuple[str, str]]) -> bool:
    return sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEADERS_BYTES
