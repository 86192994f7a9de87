"""Describes in /openapi.json what the framework does not see: the hot routes, and how errors look."""

from typing import Any

from fastapi import FastAPI

from redrive.api.cloud_events import BATCH_TYPE, MAX_NAME_CHARS, SPEC_VERSION, STRUCTURED_TYPE
from redrive.api.correlation import MAX_CORRELATION_CHARS
from redrive.api.event_input import (
    MAX_EVENT_TYPE_CHARS,
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_POLICY_NAME_CHARS,
    MAX_TEXT_CHARS,
)
from redrive.api.front_door import BATCH_PATH, EVENTS_PATH
from redrive.api.problems import PROBLEM_TYPE
from redrive.store.events import MAX_BATCH_EVENTS

_EXAMPLE = {"event_type": "invoice.paid", "payload": {"invoice": 7, "amount": "12.50"}}
_CLOUD_EXAMPLE = {
    "specversion": SPEC_VERSION,
    "id": "7c1f",
    "source": "/billing",
    "type": "invoice.paid",
    "time": "2026-01-31T09:00:00Z",
    "data": {"invoice": 7, "amount": "12.50"},
}
_SECURITY: list[dict[str, list[str]]] = [{"ApiKey": []}, {"Bearer": []}]


def _text(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most}


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
            redrivepolicy={"anyOf": [_text(MAX_POLICY_NAME_CHARS), {"type": "null"}]},
            redriveordering={"anyOf": [_text(MAX_TEXT_CHARS), {"type": "null"}]},
            correlationid={"anyOf": [_text(MAX_CORRELATION_CHARS), {"type": "null"}]},
        ),
        "propertyNames": {"pattern": f"^(data_base64|[a-z0-9]{{1,{MAX_NAME_CHARS}}})$"},
        "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
        "not": {"required": ["data", "data_base64"]},
        "examples": [_CLOUD_EXAMPLE],
    },
    "Accepted": _object(
        ["event_id", "status", "deduplicated"],
        event_id={"type": "string", "format": "uuid"},
        status={"type": "string", "enum": ["received", "queued", "delivered", "failed"]},
        deduplicated={"type": "boolean"},
    ),
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
    ),
    "FieldError": _object(
        ["loc", "msg"],
        loc={"type": "array", "items": {"type": ["string", "integer"]}},
        msg={"type": "string"},
    ),
    "Problem": _object(
        ["type", "title", "status", "detail", "correlation_id"],
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        errors={"type": "array", "items": _ref("FieldError")},
        correlation_id={"type": "string"},
    ),
}
_PROBLEM = {"description": "A problem", "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}}}
_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": _text(MAX_IDEMPOTENCY_KEY_CHARS),
    "description": (
        "The same key with the same content and terms is answered, not stored again; with others: 409. "
        "Not together with an event_id of your own: 422."
    ),
}


def _hot_route(summary: str, operation_id: str, content: dict[str, Any], accepted: str) -> dict[str, Any]:
    return {
        "tags": ["events"],
        "summary": summary,
        "operationId": operation_id,
        "security": _SECURITY,
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


_CLOUD_BATCH = {"type": "array", "items": _ref("CloudEvent"), "maxItems": MAX_BATCH_EVENTS}

_HOT_ROUTES = {
    EVENTS_PATH: _hot_route(
        "Accept an event: stored durably, then answered",
        "accept_event",
        {
            "application/json": {"schema": _ref("NewEvent")},
            STRUCTURED_TYPE: {"schema": _ref("CloudEvent")},
        },
        "Accepted",
    ),
    BATCH_PATH: _hot_route(
        f"Accept up to {MAX_BATCH_EVENTS} events; all that is valid is stored in one transaction",
        "accept_events",
        {
            "application/json": {"schema": {"type": "array", "items": _ref("NewEvent"), "maxItems": MAX_BATCH_EVENTS}},
            "application/x-ndjson": {"schema": {"type": "string"}},
            BATCH_TYPE: {"schema": _CLOUD_BATCH},
        },
        "BatchAccepted",
    ),
}


def describe_hot_routes(app: FastAPI) -> None:
    """Add them to what the framework writes for its own routes."""
    framework = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = framework()
            for path, operation in _HOT_ROUTES.items():
                schema["paths"].setdefault(path, {})["post"] = operation
            for operations in schema["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = _PROBLEM
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas.update(_SCHEMAS)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
