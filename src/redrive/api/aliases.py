"""Paths that earlier systems promised to their clients, as one table of the paths they stand for. Pure.

Asked by server before anything else looks at a request: behind it there is only one implementation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from redrive.api.json_rules import decode_strictly


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


class Meant(NamedTuple):
    """What a request to an alias asks for."""

    path: str
    query: bytes
    camel_case: bool


def meant_by(method: str, path: str, query: bytes, headers: Mapping[bytes, bytes]) -> Meant | None:
    """None: the path is no alias. The method is compared too, so that a wrong one is refused as it always was."""
    if not path.startswith(_BEGINNINGS):
        return None
    for alias in ALIASES:
        found = alias.pattern.fullmatch(path) if alias.method == method else None
        if found is not None and (not alias.with_key or b"x-api-key" in headers or b"authorization" in headers):
            given = b"&".join(part for part in (query, alias.query) if part)
            return Meant(alias.means.format(**found.groupdict()), given, alias.camel_case)
    return None


# Names that change more than their spelling: these are in milliseconds, the policies' fields in seconds.
_IN_SECONDS = {"base_delay_ms": "base_s", "max_delay_ms": "cap_s"}
_RENAMED = {"jitter_ratio": "jitter"}
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake_cased(body: bytes) -> bytes:
    """A body in camelCase as the API takes it. Payloads stay as they are: their names are not ours."""
    value = decode_strictly(body)
    return body if not isinstance(value, dict) else msgspec.json.encode(_snake_cased(value))


def _snake_cased(value: dict[str, object]) -> dict[str, object]:
    shape: dict[str, object] = {}
    for given, item in value.items():
        name = _HUMP.sub(lambda hump: f"_{hump[1].lower()}", given)
        if name in _IN_SECONDS:
            is_number = isinstance(item, int | float) and not isinstance(item, bool)
            shape[_IN_SECONDS[name]] = item / 1000 if is_number else item  # type: ignore[operator]
        elif name == "override_retry_policy" and isinstance(item, dict):
            shape[name] = {"kind": "exponential", **_snake_cased(item)}
        else:
            shape[_RENAMED.get(name, name)] = item
    return shape
