"""Describes in /openapi.json what the framework does not see: the hot routes, how errors look, who may do what.

Installed by server. Everything else comes from the routes: their models (api.schemas), docstrings and dependencies.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from threading import Lock
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from redrive.api.aliases import ALIASES
from redrive.api.auth import admits
from redrive.api.cloud_events import BATCH_TYPE, MAX_NAME_CHARS, SPEC_VERSION, STRUCTURED_TYPE
from redrive.api.correlation import MAX_CORRELATION_CHARS
from redrive.api.endpoint_view import HOOKS_PATH
from redrive.api.event_input import (
    MAX_EVENT_TYPE_CHARS,
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_POLICY_NAME_CHARS,
    MAX_TEXT_CHARS,
)
from redrive.api.front_door import BATCH_PATH, EVENTS_PATH
from redrive.api.openapi_examples import NoExample, example_of, is_null, with_nulls
from redrive.api.problems import PROBLEM_TYPE
from redrive.api.schemas.base import EVENT_ID
from redrive.core.permissions import Action
from redrive.store.events import MAX_BATCH_EVENTS

# Which action of core.permissions an operation is, or auth.ANYBODY; where it is missing, no key is needed.
ACTION = "x-action"
ALIAS_OF = "x-alias-of"  # the path of this API that a path of an earlier system stands for
ALIAS_TAG = "aliases"
SAMPLE_ID = "01890000-0000-7000-8000-000000000000"

DESCRIPTION = """\
Reliable delivery of events: webhooks, retries by policy, dead letters, redrive.

JSON in, JSON out; times in ISO 8601 UTC; ids are UUIDs. Give your key as `X-API-Key` or `Authorization: Bearer`. An
unknown id and another org's id answer alike: 404. A parameter or field that is not known is refused. Errors are
`application/problem+json` (RFC 9457) and carry the `correlation_id` that the log has them under."""

# Every tag that a route has stands here, in the order in which people read them.
TAGS = {
    "events": "What producers hand in, and where it stands.",
    "endpoints": "Where deliveries go.",
    "hooks": "Where webhooks of others come in, for a relay.",
    "retry queue": "What failed and will be tried again.",
    "dead letters": "What failed for good, and what people do with it.",
    "operations": "Bulk actions: how far they have come, paused, resumed, cancelled.",
    "broker": "The queues of a broker that dead letters are collected from.",
    "workflows": "Runs of ordered steps, each of which retries by itself; replayed from any step.",
    "inbox": "Events that no endpoint takes: read, acknowledged, deleted.",
    "logs": "One record per task: what was sent, what came back, every try.",
    "policies": "When a failed task is tried again, and for how long.",
    "retries": "The kill switch: pause and resume retries, of the org and of the installation.",
    "stats": "Where everything stands, in numbers.",
    "keys": "API keys of the org.",
    "users": "The members of the org.",
    "orgs": "Tenants and their limits.",
    "session": "Who is asking; signing in and out.",
    "audit": "Who did what to which thing, when, from where and why.",
    "alerts": "What is not as it should be: incidents, the rules behind them, and who is told.",
    "notices": "What people should hear of: dead letters, endpoints that were disabled.",
    ALIAS_TAG: "Paths of earlier systems. Each stands for a path above, with the same parameters and answers.",
    "health": "Whether the process lives, and whether it can accept.",
}

_EXAMPLE = {"event_type": "invoice.paid", "payload": {"invoice": 7, "amount": "12.50"}}
_CLOUD_EXAMPLE = {
    "specversion": SPEC_VERSION,
    "id": "7c1f",
    "source": "/billing",
    "type": "invoice.paid",
    "time": "2026-01-31T09:00:00Z",
    "data": {"invoice": 7, "amount": "12.50"},
}
_FIELD_ERROR = {"loc": ["body", 1, "event_type"], "msg": "Expected `str` of length >= 1"}
_SECURITY: list[dict[str, list[str]]] = [{"ApiKey": []}, {"Bearer": []}]


def _text(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most}


def _extension(most: int) -> dict[str, Any]:
    """An attribute of a CloudEvent that is read as text: numbers and truth values are taken as they are written."""
    return {"anyOf": [_text(most), {"type": ["integer", "boolean", "null"]}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


_SCHEMAS: dict[str, Any] = {
    "NewEvent": {
        **_object(
            ["event_type", "payload"],
            event_type=_text(MAX_EVENT_TYPE_CHARS),
            payload={"description": "Any JSON; stored and delivered byte for byte as sent."},
            event_id={"type": ["string", "null"], "format": "uuid"},
            timestamp={"type": ["string", "null"], "format": "date-time"},
            endpoint_id={"type": ["string", "null"], "format": "uuid"},
            ordering_key={"anyOf": [_text(MAX_TEXT_CHARS), {"type": "null"}]},
            policy={"anyOf": [_text(MAX_POLICY_NAME_CHARS), {"type": "null"}]},
            external_system={"anyOf": [_text(MAX_TEXT_CHARS), {"type": "null"}]},
            correlation_id={"anyOf": [_text(MAX_CORRELATION_CHARS), {"type": "null"}]},
        ),
        "additionalProperties": False,
        "examples": [_EXAMPLE],
    },
    "CloudEvent": {
        **_object(
            ["id", "source", "specversion", "type"],
            id={"type": "string", "minLength": 1},
            source={"type": "string", "minLength": 1},
            specversion={"type": "string", "enum": [SPEC_VERSION]},
            type=_text(MAX_EVENT_TYPE_CHARS),
            time={"type": ["string", "null"], "format": "date-time"},
            subject={"type": ["string", "null"], "minLength": 1},
            dataschema={"type": ["string", "null"], "minLength": 1},
            datacontenttype={"type": ["string", "null"], "minLength": 3},
            data={"description": "Any JSON; of another datacontenttype, a text."},
            data_base64={"type": ["string", "null"], "contentEncoding": "base64"},
            redriveendpoint={"type": ["string", "null"], "format": "uuid"},
            redrivepolicy=_extension(MAX_POLICY_NAME_CHARS),
            redriveordering=_extension(MAX_TEXT_CHARS),
            correlationid=_extension(MAX_CORRELATION_CHARS),
        ),
        "propertyNames": {"pattern": f"^(data_base64|[a-z0-9]{{1,{MAX_NAME_CHARS}}})$"},
        "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
        "not": {"required": ["data", "data_base64"]},
        "examples": [_CLOUD_EXAMPLE],
    },
    "Accepted": {
        **_object(
            ["event_id", "status", "deduplicated"],
            event_id={"type": "string", "format": "uuid"},
            status={"type": "string", "enum": ["received", "queued", "delivered", "failed"]},
            deduplicated={"type": "boolean"},
        ),
        "additionalProperties": False,
        "examples": [{"event_id": EVENT_ID, "status": "queued", "deduplicated": False}],
    },
    "BatchAccepted": _object(
        ["accepted", "deduplicated", "rejected"],
        accepted={"type": "integer"},
        deduplicated={"type": "integer"},
        rejected={
            "type": "array",
            "items": _object(
                ["index", "errors"],
                index={"type": "integer"},
                errors={"type": "array", "items": _ref("FieldError")},
            ),
        },
    )
    | {
        "additionalProperties": False,
        "examples": [{"accepted": 2, "deduplicated": 0, "rejected": [{"index": 1, "errors": [_FIELD_ERROR]}]}],
    },
    "FieldError": _object(
        ["loc", "msg"],
        loc={"type": "array", "items": {"type": ["string", "integer"]}},
        msg={"type": "string"},
    )
    | {"examples": [_FIELD_ERROR]},
    "Problem": _object(
        ["type", "title", "status", "detail", "correlation_id"],
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        errors={"type": "array", "items": _ref("FieldError")},
        correlation_id={"type": "string"},
    )
    | {
        "description": "What went wrong, why, and what to do (RFC 9457).",
        "examples": [
            {
                "type": "about:blank",
                "title": "Unprocessable Entity",
                "status": 422,
                "detail": "The request cannot be used as it is; see errors.",
                "errors": [_FIELD_ERROR],
                "correlation_id": "cd296e991c7ba89321a4a6f73b0186e1",
            }
        ],
    },
}
_PROBLEM = {"description": "A problem", "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}}}
_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": _text(MAX_IDEMPOTENCY_KEY_CHARS) | {"pattern": "^[ -~]+$"},
    "description": (
        "The same key with the same content and terms is answered, not stored again; with others: 409. "
        "An event with an id of its own is known by that: the key adds nothing."
    ),
}


def _hot_route(description: str, operation_id: str, content: dict[str, Any], accepted: str) -> dict[str, Any]:
    return {
        "tags": ["events"],
        "summary": operation_id.replace("_", " ").capitalize(),
        "description": description,
        "operationId": operation_id,
        "security": _SECURITY,
        ACTION: Action.PRODUCE.value,
        "parameters": [_KEY_HEADER],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "202": {
                "description": "Stored durably",
                "content": {"application/json": {"schema": _ref(accepted)}},
            },
            "default": _PROBLEM,
        },
    }


def _batch(of: str) -> dict[str, Any]:
    """An element that is none does not spoil the others: the answer names it."""
    other = {"description": "Anything else is answered under `rejected`."}
    return {"type": "array", "maxItems": MAX_BATCH_EVENTS, "items": {"anyOf": [_ref(of), other]}}


_HOT_ROUTES = {
    EVENTS_PATH: _hot_route(
        "Store an event durably, then answer. A known event id is answered, not stored again.",
        "accept_event",
        {
            "application/json": {"schema": _ref("NewEvent")},
            STRUCTURED_TYPE: {"schema": _ref("CloudEvent")},
        },
        "Accepted",
    ),
    BATCH_PATH: _hot_route(
        f"Up to {MAX_BATCH_EVENTS} events. All that is valid is stored in one transaction; the rest is named.",
        "accept_events",
        {
            BATCH_TYPE: {"schema": _batch("CloudEvent")},
            "application/json": {"schema": _batch("NewEvent")},
            "application/x-ndjson": {
                "schema": {"description": "One event per line."},
                "example": '{"event_type": "invoice.paid", "payload": 7}\n{"event_type": "stock.low", "payload": {}}\n',
            },
        },
        "BatchAccepted",
    ),
}

_HOOK_ROUTE = {
    "tags": ["hooks"],
    "summary": "Accept webhook",
    "description": (
        "A webhook for a relay, from whoever knows its address: no key. Any body of any type is stored as it is, with "
        "its headers, before this answer. A repetition (the same `webhook-id`, `X-GitHub-Delivery` or "
        "`Idempotency-Key`) is answered, not stored again; with another body: 409. Where the relay verifies, a "
        "signature that does not hold: 401."
    ),
    "operationId": "accept_webhook",
    "parameters": [
        {
            "name": "token",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "examples": ["kYl0r…"]},
            "description": "Of the endpoint's `hook_url`.",
        }
    ],
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {"description": "Anything; no JSON is needed."},
                "example": {"action": "opened", "number": 7},
            }
        }
    },
    "responses": {
        "202": {"description": "Stored durably", "content": {"application/json": {"schema": _ref("Accepted")}}},
        "default": _PROBLEM,
    },
}
_BARE_ROUTES = {**_HOT_ROUTES, f"{HOOKS_PATH}{{token}}": _HOOK_ROUTE}


def methods_of(app: FastAPI) -> dict[str, set[str]]:
    """The paths that the document has, each with its methods; without writing it."""
    found: dict[str, set[str]] = {path: {"POST"} for path in _BARE_ROUTES}
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            found.setdefault(route.path_format, set()).update(route.methods or ())
    return found


def describe(app: FastAPI) -> None:
    """Have the application write its document once, when somebody asks for it, with all of this in it."""
    framework = app.openapi
    writing = Lock()
    for route in app.routes:
        if isinstance(route, APIRoute):
            route.unique_id = route.name  # a test holds them unique

    def described() -> dict[str, Any]:
        with writing:
            return written()

    def written() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = framework()
            for path, operation in _BARE_ROUTES.items():
                document["paths"].setdefault(path, {})["post"] = operation
            document["servers"] = [{"url": "/", "description": "Where this document came from"}]
            document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas.update(_SCHEMAS)
            _describe_actions(app, document)
            for _, _, operation in operations_of(document):
                _describe_operation(operation)
            _describe_examples(document)
            _describe_aliases(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def operations_of(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _describe_actions(app: FastAPI, document: dict[str, Any]) -> None:
    """What the dependencies of a route demand, for people and tests to read."""
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        operations = document["paths"].get(route.path_format, {})
        asked = [each for each in map(admits, calls_of(route.dependant)) if each is not None]
        for method in route.methods or ():
            if asked and method.lower() in operations:
                operations[method.lower()].setdefault(ACTION, str(asked[0]))  # a route may say more of itself


def calls_of(dependant: Any) -> Iterator[Any]:
    """The functions that a route depends on, however deep."""
    for needed in dependant.dependencies if dependant is not None else ():
        yield needed.call
        yield from calls_of(needed)


def _describe_aliases(document: dict[str, Any]) -> None:
    """Paths of earlier systems, each as the operation that it stands for."""
    by_shape = {_shape_of(path): methods for path, methods in document["paths"].items()}
    described: dict[str, dict[str, Any]] = {}
    for alias in ALIASES:
        meant = deepcopy(by_shape[_shape_of(alias.means)][alias.method.lower()])
        meant |= {
            "tags": [ALIAS_TAG],
            "operationId": f"{meant['operationId']}_alias{len(described)}",
            "summary": f"{meant['summary']} (alias)",
            "description": f"An alias of `{alias.method} {alias.means}`.\n\n{meant.get('description', '')}".strip(),
            ALIAS_OF: f"{alias.method} {alias.means}",
        }
        for parameter in meant.get("parameters", ()):
            if parameter["in"] == "path":
                parameter["name"] = "id"
        if alias.camel_case:
            meant["description"] += "\n\nThe names of its body are in camelCase, and delays in milliseconds."
            shape = {"type": "object", "description": "As of the path that it stands for, in camelCase."}
            meant["requestBody"] = {
                "content": {"application/json": {"schema": shape, "example": {"mode": "STEP_ONLY"}}}
            }
        described.setdefault(alias.path, {})[alias.method.lower()] = meant
    document["paths"] |= described


def _shape_of(path: str) -> str:
    """A path whatever its parameters are called."""
    return re.sub(r"\{[^}]+\}", "{}", path)


def _describe_operation(operation: dict[str, Any]) -> None:
    if ACTION not in operation:
        operation.pop("security", None)
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = _PROBLEM
    name = operation["operationId"].replace("_", " ")
    if operation["summary"] == name.title():  # made by the framework
        operation["summary"] = name.capitalize()
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"].endswith("_id"):
            parameter["schema"] |= {"format": "uuid", "examples": [SAMPLE_ID]}
        elif parameter["in"] == "query":
            parameter["schema"] = _without_null(parameter["schema"])


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no way to say null: a parameter is left out instead."""
    ways: list[dict[str, Any]] = [way for way in schema.get("anyOf", ()) if not is_null(way)]
    if len(ways) != 1:
        return schema
    return {name: value for name, value in schema.items() if name != "anyOf"} | ways[0]


def _describe_examples(document: dict[str, Any]) -> None:
    """Beside every body, in full: whoever reads an operation need not look for it."""
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if "examples" in schema:
            schema["examples"] = [with_nulls(each, schema, schemas) for each in schema["examples"]]
    for _, _, operation in operations_of(document):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (content for body in bodies for content in body.get("content", {}).values()):
            if "example" not in content and "examples" not in content and content.get("schema"):
                try:
                    content["example"] = example_of(content["schema"], schemas)
                except NoExample:
                    continue  # a test names the operations that lack one
