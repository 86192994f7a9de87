"""What the API says of itself in /openapi.json, ready when tests are collected: many are made from it.

No database is asked for it. A new route is in here by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from redrive.api.auth import ANYBODY
from redrive.api.openapi import ACTION, ALIAS_OF
from redrive.api.server import ApiContext, create_app
from redrive.core.address import AddressRules
from redrive.core.permissions import Action
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.seal import Sealer

NO_DATABASE = cast(Database, None)
STREAM_TYPE = "text/event-stream"

API = create_app(
    ApiContext(NO_DATABASE, NO_DATABASE, Sealer(bytes(32)), DatabaseClock(), AddressRules(()), "0.0.1"),
)
DOCUMENT: dict[str, Any] = API.routes.openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    described: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_open(self) -> bool:
        """It needs no key."""
        return ACTION not in self.described

    @property
    def action(self) -> Action | None:
        """None: it is open, or for everybody who has a key."""
        return None if self.described.get(ACTION, ANYBODY) == ANYBODY else Action(self.described[ACTION])

    @property
    def path_parameters(self) -> list[str]:
        return [each["name"] for each in self.described.get("parameters", ()) if each["in"] == "path"]

    @property
    def body_example(self) -> Any:
        """The JSON body that the document shows; None where it takes none."""
        content = self.described.get("requestBody", {}).get("content", {})
        return content["application/json"]["example"] if "application/json" in content else None

    @property
    def successes(self) -> dict[str, dict[str, Any]]:
        """What it may answer with 2xx, by status."""
        return {status: answer for status, answer in self.described["responses"].items() if status.startswith("2")}

    @property
    def streams(self) -> bool:
        return any(STREAM_TYPE in answer.get("content", {}) for answer in self.successes.values())


def _operations() -> Iterator[Operation]:
    for path, methods in DOCUMENT["paths"].items():
        for method, described in methods.items():
            if ALIAS_OF not in described:  # behind an alias there is the path that it stands for
                yield Operation(method.upper(), path, described)


OPERATIONS = list(_operations())


def schema_for(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of the document that a validator can use by itself."""
    return {**schema, "components": DOCUMENT["components"]}
