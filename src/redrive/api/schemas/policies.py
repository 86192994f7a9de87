"""Policies as /openapi.json describes them, in answers and in requests."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from redrive.api.event_input import MAX_EVENT_TYPE_CHARS
from redrive.api.policy_input import MAX_EVENT_TYPES
from redrive.api.schemas.base import Answer, example
from redrive.core.outcome import Category
from redrive.core.policy import (
    ALL,
    MAX_AGE_S,
    MAX_DELAY_S,
    MAX_DELAYS,
    MAX_FACTOR,
    MAX_RETENTION_S,
    MAX_RETRIES_LIMIT,
    MAX_RULES,
    MAX_STATUS,
    MAX_TIMEOUT_S,
    MIN_AGE_S,
    MIN_STATUS,
    MIN_TIMEOUT_S,
    PolicyKind,
    StatusFamily,
)
from redrive.core.presets import PRESETS

Rule = int | str

SPEC_EXAMPLE = PRESETS["integration"].to_spec()


class Classify(Answer):
    """Classes of failure, status codes and their families that are retried, and that are not."""

    retry: list[Rule]
    fail: list[Rule]


_RETENTION = ("delivered_s", "failed_s", "dead_s", "received_s")


class Retention(Answer):
    """How long finished tasks are kept; null keeps them."""

    delivered_s: float | None
    failed_s: float | None
    dead_s: float | None
    received_s: float | None = None


class PolicyShape(Answer):
    """A policy. Which fields its schedule has depends on its kind."""

    model_config = example(
        {
            "name": "integration",
            **SPEC_EXAMPLE,
            "event_types": ["invoice.*"],
            "default": False,
            "preset": True,
            "created_at": "2026-11-15T17:57:05.128185Z",
        }
    )

    name: str
    kind: Literal["list", "exponential", "immediate", "manual"]
    delays_s: list[float] = Field(default=[], description="Of the kinds `list` and `immediate`.")
    base_s: float = Field(default=1.0, description="Of the kind `exponential`, as are the next two.")
    factor: float = 2.0
    cap_s: float = 3600.0
    jitter: float
    max_retries: int | None
    max_age_s: float | None
    max_retry_after_s: float
    timeout_s: float
    classify: Classify
    notify: bool
    quiet_permanent: bool
    retention: Retention
    event_types: list[str] = Field(description="Event types whose tasks it is for; `*` stands for anything.")
    default: bool = Field(description="Whether it is the org's default.")
    preset: bool
    created_at: datetime


class PreviewRow(Answer):
    retry: int
    delay_s: float
    min_s: float
    max_s: float
    at_s: float = Field(description="When it falls due after the first failure, without jitter.")


class PolicyPreview(Answer):
    """The schedule that a policy makes."""

    model_config = example(
        {
            "policy": "workflow",
            "max_retries": 3,
            "retries": [
                {"retry": 0, "delay_s": 2.0, "min_s": 1.5, "max_s": 2.5, "at_s": 2.0},
                {"retry": 1, "delay_s": 4.0, "min_s": 3.0, "max_s": 5.0, "at_s": 6.0},
                {"retry": 2, "delay_s": 8.0, "min_s": 6.0, "max_s": 10.0, "at_s": 14.0},
            ],
        }
    )

    policy: str
    max_retries: int | None
    retries: list[PreviewRow]


def _number(low: float, high: float, *, or_null: bool = False) -> dict[str, Any]:
    return {"type": ["number", "null"] if or_null else "number", "minimum": low, "maximum": high}


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return shape | ({"required": list(required)} if required else {})


_RULES = {
    "type": ["array", "null"],
    "maxItems": MAX_RULES,
    "items": {
        "anyOf": [
            {"type": "string", "enum": [ALL, *Category, *StatusFamily]},
            {"type": "integer", "minimum": MIN_STATUS, "maximum": MAX_STATUS},
        ]
    },
}
_DELAY = _number(0, MAX_DELAY_S)
_ANY_KIND = {
    "name": {"type": "string", "description": "The name in the path, if given at all."},
    "jitter": _number(0, 1),
    "max_retries": {
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": MAX_RETRIES_LIMIT,
        "description": "Null is unbounded, and needs a `max_age_s`.",
    },
    "max_age_s": _number(MIN_AGE_S, MAX_AGE_S, or_null=True),
    "max_retry_after_s": _DELAY,
    "timeout_s": _number(MIN_TIMEOUT_S, MAX_TIMEOUT_S),
    "classify": _object({"retry": _RULES, "fail": _RULES}),
    "notify": {"type": "boolean"},
    "quiet_permanent": {"type": "boolean"},
    "retention": _object({name: _number(0, MAX_RETENTION_S, or_null=True) for name in _RETENTION}),
    "event_types": {
        "type": "array",
        "maxItems": MAX_EVENT_TYPES,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_EVENT_TYPE_CHARS},
        "uniqueItems": True,
    },
    "default": {"type": "boolean"},
    "preset": {"description": "Read-only: taken back unread.", "readOnly": True},
    "created_at": {"description": "Read-only: taken back unread.", "readOnly": True},
}
_SCHEDULES: dict[PolicyKind, tuple[dict[str, Any], tuple[str, ...]]] = {
    PolicyKind.LIST: (
        {"delays_s": {"type": "array", "items": _DELAY, "minItems": 1, "maxItems": MAX_DELAYS}},
        ("delays_s",),
    ),
    PolicyKind.EXPONENTIAL: ({"base_s": _DELAY, "factor": _number(1, MAX_FACTOR), "cap_s": _DELAY}, ("base_s",)),
    PolicyKind.IMMEDIATE: (
        {"delays_s": {"type": ["array", "null"], "items": _DELAY, "minItems": 1, "maxItems": 1}},
        (),
    ),
    PolicyKind.MANUAL: ({}, ()),
}
# A schedule field of another kind says nothing if it is null.
_FOREIGN = {name: {"type": "null"} for name in ("delays_s", "base_s", "factor", "cap_s")}

# What core.policy reads, in the words of /openapi.json: it is the one that judges.
SPEC_SCHEMA: dict[str, Any] = {
    "title": "PolicySpec",
    "description": "A policy; what is left out has its default.",
    "examples": [SPEC_EXAMPLE],
    "oneOf": [
        {"title": kind.value}
        | _object({"kind": {"const": kind.value}, **_FOREIGN, **own, **_ANY_KIND}, ("kind", *required))
        for kind, (own, required) in _SCHEDULES.items()
    ],
}
