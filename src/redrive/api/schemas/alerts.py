"""Alerts as /openapi.json describes them: incidents, rules, and the test."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, ENDPOINT_ID, Answer, example
from redrive.core.alerts import RULES, Unit

_SUBJECT = {"kind": "org", "id": "01a1e05b-5ad1-7b81-bb4b-000000000001", "name": None}
_SAW = {"rate": 0.125, "failed": 5, "ended": 40, "threshold": 0.05, "window_s": 900}
_ALERT_ID = "01a1e05b-5aec-76fd-b267-0000000000a1"


class AlertSubject(Answer):
    """What it is about: the org, an endpoint, the installation, or a background job of it."""

    kind: Literal["org", "endpoint", "installation", "job"]
    id: UUID | None
    name: str | None


class Alert(Answer):
    """An incident: it fires until it is over."""

    model_config = example(
        {
            "id": _ALERT_ID,
            "rule": "failure_rate",
            "severity": "error",
            "state": "firing",
            "subject": _SUBJECT,
            "opened_at": AT,
            "over_at": None,
            "text": "12.5 % of what ended within the last 15 min failed (5 of 40): more than 5 %. Look at the groups "
            "of dead letters for the cause, deal with it, and retry them.",
            "over_text": None,
            "saw": _SAW,
        }
    )

    id: UUID
    rule: str
    severity: Literal["info", "warning", "error"]
    state: Literal["firing", "over"]
    subject: AlertSubject
    opened_at: datetime
    over_at: datetime | None
    text: str = Field(description="What happened, why, and what to do.")
    over_text: str | None
    saw: dict[str, Any] = Field(description="The numbers when it opened, and the threshold.")


class AlertParameter(Answer):
    name: str
    value: float
    default: float
    least: float
    most: float
    unit: Literal["share", "count", "s"]
    what: str


class AlertReading(Answer):
    """What the rule sees of a subject now: `above` its threshold it fires, `clear` of it it is over."""

    subject: AlertSubject
    standing: Literal["above", "band", "clear"]
    saw: dict[str, Any]


class AlertRule(Answer):
    model_config = example(
        {
            "rule": "dead_letters_open",
            "title": RULES["dead_letters_open"].title,
            "what": RULES["dead_letters_open"].what,
            "severity": "warning",
            "scope": "org",
            "enabled": True,
            "is_set": False,
            "updated_at": None,
            "parameters": [
                {
                    "name": "threshold",
                    "value": 50,
                    "default": 50,
                    "least": 0,
                    "most": 1_000_000,
                    "unit": "count",
                    "what": "How many may be open.",
                }
            ],
            "readings": [{"subject": _SUBJECT, "standing": "clear", "saw": {"open": 3, "threshold": 50}}],
        }
    )

    rule: str
    title: str
    what: str
    severity: Literal["info", "warning", "error"]
    scope: Literal["org", "endpoint", "installation"]
    enabled: bool
    is_set: bool = Field(description="Whether the org has set it; else all of it is the default.")
    updated_at: datetime | None
    parameters: list[AlertParameter]
    readings: list[AlertReading]


class AlertReceiver(Answer):
    """An endpoint that gets alerts."""

    model_config = example({"id": ENDPOINT_ID, "name": "ops", "kind": "http", "disabled": False})

    id: UUID
    name: str
    kind: str
    disabled: bool


class AlertTest(Answer):
    model_config = example(
        {
            "notice_id": _ALERT_ID,
            "endpoints": [{"id": ENDPOINT_ID, "name": "ops", "kind": "http", "disabled": False}],
        }
    )

    notice_id: UUID
    endpoints: list[AlertReceiver]


def _given() -> dict[str, Any]:
    """Of the body that sets a rule: the parameters of all rules. Which of them a rule has, its own list says."""
    numbers: dict[str, dict[str, Any]] = {}
    for parameter in (parameter for rule in RULES.values() for parameter in rule.parameters):
        kind = "integer" if parameter.unit is Unit.COUNT else "number"
        known = numbers.setdefault(
            parameter.name, {"type": kind, "minimum": parameter.least, "maximum": parameter.most}
        )
        known["type"] = "number" if kind != known["type"] else kind
        known["minimum"] = min(known["minimum"], parameter.least)
        known["maximum"] = max(known["maximum"], parameter.most)
    return {
        "type": "object",
        "title": "AlertRuleIn",
        "description": "What is left out is the default's. A rule takes the parameters that it has.",
        "properties": {"enabled": {"type": "boolean", "default": True}, **numbers},
        "additionalProperties": False,
        "examples": [{"threshold": 0.1}],
    }


RULE_SCHEMA = _given()
