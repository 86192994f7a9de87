"""Paths that earlier systems promised to their clients, as one table of the paths they stand for. Pure.

Asked by server before anything else looks at a request: behind it there is only one implementation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from redrive.api.json_rules import decode_strictly
from redrive.api.problems import FieldError
from redrive.core.policy import MAX_DELAY_S
from redrive.core.spec import number_problem


@dataclass(frozen=True)
class Alias:
    method: str
    path: str
    means: str
    query: bytes = b""  # added to what is asked
    camel_case: bool = False  # its body is written so, with times in milliseconds
    with_key: bool = False  # only for requests with an API key: browsers get the page of this path

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.path.replace("{id}", "(?P<id>[^/]+)"))


_INTEGRATIONS = "/api/integrations"
_RETRIES = f"{_INTEGRATIONS}/retry-queue"
_DEAD = f"{_INTEGRATIONS}/dead-letter-queue"

ALIASES = (
    Alias("GET", _RETRIES, "/v1/retry-queue"),
    Alias("POST", f"{_RETRIES}/bulk-retry", "/v1/retry-queue/bulk-retry", query=b"wait=true"),
    Alias("POST", f"{_RETRIES}/{{id}}/retry", "/v1/retry-queue/{id}/retry"),
    Alias("POST", f"{_RETRIES}/{{id}}/skip", "/v1/retry-queue/{id}/skip"),
    Alias("GET", _DEAD, "/v1/dead-letters"),
    Alias("DELETE", f"{_DEAD}/{{id}}", "/v1/dead-letters/{id}"),
    Alias("POST", "/api/v1/workflow-dlq/{id}/replay", "/v1/dead-letters/{id}/replay", camel_case=True),
    Alias("GET", "/inbox", "/v1/inbox", with_key=True),
    Alias("GET", "/events/{id}/status", "/v1/events/{id}/status"),
    Alias("POST", "/events/{id}/ack", "/v1/events/{id}/ack"),
)
_BEGINNINGS = ("/api/", "/inbox", "/events/")


def _is_api_client(headers: Mapping[bytes, bytes]) -> bool:
    """Whether it shows an API key and does not ask for a page."""
    shows_key = b"x-api-key" in headers or b"authorization" in headers
    return shows_key and b"text/html" not in headers.get(b"accept", b"")


class Meant(NamedTuple):
    """What a request to an alias asks for."""

    path: str
    query: bytes
    camel_case: bool


def meant_by(method: str, path: str, query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Meant | None:
    """None: the path is no alias. The method is compared too, so that a wrong one is refused as it always was."""
    if not path.startswith(_BEGINNINGS):
        return None
    for alias in ALIASES:
        found = alias.pattern.fullmatch(path) if alias.method == method else None
        if found is not None and (not alias.with_key or _is_api_client(dict(headers))):
            own = [part for part in query.split(b"&") if part != alias.query]  # they may say it themselves
            given = b"&".join(part for part in (*own, alias.query) if part)
            return Meant(alias.means.format(**found.groupdict()), given, alias.camel_case)
    return None


# Names that change more than their spelling: these are in milliseconds, the policies' fields in seconds.
_IN_SECONDS = {"base_delay_ms": "base_s", "max_delay_ms": "cap_s"}
_RENAMED = {"jitter_ratio": "jitter"}
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_OVERRIDE = "override_retry_policy"


def snake_cased(body: bytes) -> bytes:
    """A body in camelCase as the API takes it. Payloads stay as they are: their names are not ours."""
    value = decode_strictly(body)
    return body if not isinstance(value, dict) else msgspec.json.encode(_snake_cased(value))


def as_given(errors: Sequence[FieldError], body: bytes) -> list[FieldError]:
    """Errors of a body in camelCase, by the names and in the units that its sender knows."""
    value = decode_strictly(body)
    given = _given_names(value) if isinstance(value, dict) else {}
    return [_as_given(error, given) for error in errors]


def _as_given(error: FieldError, given: Mapping[str, tuple[str, object]]) -> FieldError:
    last = str(error.loc[-1])
    message = error.msg
    if last in _IN_SECONDS.values() and last in given:
        message = number_problem(given[last][1], 0, MAX_DELAY_S * 1000) or message
    loc = tuple(given[step][0] if isinstance(step, str) and step in given else step for step in error.loc)
    return FieldError(loc, _KNOWN.sub(lambda found: _camel_cased(found[0]), message))


def _given_names(value: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    """By our names of the fields: how each was called, and its value."""
    found: dict[str, tuple[str, object]] = {}
    for given, item in value.items():
        name = _snake_name(given)
        found[_our_name(name)] = (given, item)
        if name == _OVERRIDE and isinstance(item, dict):
            found |= _given_names(item)
    return found


def _snake_name(given: str) -> str:
    return _HUMP.sub(lambda hump: f"_{hump[1].lower()}", given)


def _our_name(name: str) -> str:
    return _IN_SECONDS.get(name) or _RENAMED.get(name, name)


def _camel_cased(name: str) -> str:
    theirs = {ours: name for name, ours in (_IN_SECONDS | _RENAMED).items()}.get(name, name)
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), theirs)


# Of a policy, in messages that name other fields.
_KNOWN = re.compile(
    r"\b(?:base_s|cap_s|delays_s|jitter|max_age_s|max_retries|max_retry_after_s|quiet_permanent|timeout_s)\b"
)


def _snake_cased(value: dict[str, object]) -> dict[str, object]:
    shape: dict[str, object] = {}
    for given, item in value.items():
        name = _snake_name(given)
        if name in _IN_SECONDS:
            is_number = isinstance(item, int | float) and not isinstance(item, bool)
            shape[_IN_SECONDS[name]] = item / 1000 if is_number else item  # type: ignore[operator]
        elif name == _OVERRIDE and isinstance(item, dict):
            # Null is the same as left out: to these clients no policy was ever unbounded.
            shape[name] = _snake_cased({field: each for field, each in item.items() if each is not None})
        else:
            shape[_our_name(name)] = item
    return shape
