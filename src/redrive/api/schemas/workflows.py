"""Workflows and their runs as /openapi.json describes them, in answers and in requests."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from redrive.api.schemas.base import AT, TASK_ID, Answer, example
from redrive.core.run_states import RunStatus, StepStatus
from redrive.core.step_fields import METHODS
from redrive.core.workflow import MAX_STEPS, StepKind

RUN_ID = "01a1e05c-1b7e-7f30-8d0c-6a3f5b9e2d41"

DEFINITION_EXAMPLE: dict[str, Any] = {
    "steps": [
        {
            "name": "charge",
            "kind": "http",
            "url": "https://pay.example.com/charges",
            "method": "POST",
            "body": {"amount": "{{ input.amount }}"},
            "policy": "workflow",
            "timeout_s": 15,
        },
        {
            "name": "notify",
            "kind": "handler",
            "handler": "notify",
            "input": {"ref": "{{ steps.charge.output.id }}"},
        },
    ]
}


def _of(kind: StepKind, about: str, *types: str, **more: Any) -> dict[str, Any]:
    """A field that only steps of one kind have; of any JSON where no types are given."""
    shape = {"type": list(types)} if types else {}
    return {**shape, **more, "description": f"Of a step of the kind {kind}: {about}"}


_HTTP, _HANDLER, _EMIT, _WAIT = StepKind.HTTP, StepKind.HANDLER, StepKind.EMIT, StepKind.WAIT

# Which of them belong together, and what is wrong with a step, core.workflow says, with its place.
_STEP_FIELDS: dict[str, Any] = {
    "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,99}$"},
    "kind": {"enum": list(StepKind)},
    "policy": {
        "type": ["string", "object", "null"],
        "description": "A policy's name, or one; `workflow` unless given.",
    },
    "max_retries": {"type": ["integer", "null"], "description": "Instead of the policy's."},
    "timeout_s": {"type": ["number", "null"], "description": "Instead of the policy's."},
    "external_system": {"type": ["string", "null"]},
    "url": _of(_HTTP, "where to, a template behind its host. Or endpoint.", "string", "null"),
    "endpoint": {
        "type": ["string", "null"],
        "description": f"The id or the name of an HTTP endpoint, of a step of the kind {_HTTP} or {_EMIT}.",
    },
    "method": _of(_HTTP, "POST unless given.", enum=list(METHODS)),
    "headers": _of(_HTTP, "templates; those that are none are sealed.", "object", "null"),
    "body": _of(_HTTP, "any JSON, a template; left out: none."),
    "expected_status": _of(_HTTP, 'codes and "2xx" … "5xx"; 2xx unless given.', "array", "null"),
    "handler": _of(_HANDLER, "the name of a handler in Python; needed.", "string"),
    "input": _of(_HANDLER, "any JSON, a template; left out: the run's input."),
    "event_type": _of(_EMIT, "needed.", "string"),
    "payload": _of(_EMIT, "any JSON, a template; left out: the run's input."),
    "ordering_key": _of(_EMIT, "a template.", "string", "null"),
    "wait_s": _of(_WAIT, "seconds, or a template that gives them. Or until.", "number", "string", "null"),
    "until": _of(_WAIT, "a time in ISO 8601, or a template that gives one.", "string", "null"),
}
DEFINITION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["steps"],
    "examples": [DEFINITION_EXAMPLE],
    "properties": {
        "description": {"type": ["string", "null"]},
        "retention_s": {"type": ["number", "null"], "description": "How long finished runs are kept; null: for ever."},
        "steps": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_STEPS,
            "items": {
                "type": "object",
                "required": ["name", "kind"],
                "properties": _STEP_FIELDS,
            },
        },
    },
}


class WorkflowShape(Answer):
    """A version of a workflow. Values that look secret are hidden; sent back as they are, they stay as they were."""

    model_config = example(
        {
            "name": "fulfil",
            "version": 3,
            "description": None,
            "retention_s": None,
            **DEFINITION_EXAMPLE,
            "in_force": True,
            "created_at": AT,
            "created_by": "key 3f9a",
        }
    )

    name: str
    version: int
    description: str | None
    retention_s: float | None
    steps: list[dict[str, Any]]
    in_force: bool
    created_at: datetime
    created_by: str


class RunBegun(Answer):
    model_config = example({"run_id": RUN_ID, "status": "PENDING"})

    run_id: UUID
    status: RunStatus


_RUN = {
    "run_id": RUN_ID,
    "workflow": "fulfil",
    "version": 3,
    "status": "DLQ_PENDING",
    "correlation_id": "checkout-1887",
    "replays": 0,
    "created_at": AT,
    "started_at": AT,
    "finished_at": None,
}


class Run(Answer):
    """A run as it stands in the list."""

    model_config = example(_RUN | {"steps_done": 1, "steps_total": 2, "cancelled_at": None})

    run_id: UUID
    workflow: str
    version: int
    status: RunStatus
    correlation_id: str | None
    steps_done: int
    steps_total: int
    replays: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancelled_at: datetime | None


_STEP = {
    "index": 0,
    "name": "charge",
    "kind": "http",
    "status": "DLQ",
    "attempt_count": 4,
    "attempts_total": 4,
    "max_retries": 3,
    "next_retry_at": None,
    "first_failed_at": AT,
    "last_failed_at": AT,
    "error_message": "HTTP 503 Service Unavailable",
    "error_stack": None,
    "category": "server_error",
    "correlation_id": "checkout-1887",
    "retry_policy_override": None,
    "dead_letter_id": TASK_ID,
    "policy": "workflow",
    "idempotency_key": f"{RUN_ID}:0",
    "execution": 0,
    "scheduled_as": None,
    "due_at": None,
    "log_id": TASK_ID,
    "started_at": AT,
    "finished_at": AT,
    "input": {"amount": "12.50"},
    "output": None,
    "output_is_cut": False,
}


class RunStep(Answer):
    """A step of a run: as its task says, or, where the run has not come to it, as it will be."""

    model_config = example(_STEP)

    index: int
    name: str
    kind: StepKind
    status: StepStatus
    attempt_count: int = Field(description="Tries made, the first included. A replay begins at 0 again.")
    attempts_total: int = Field(description="Tries made before and since its replays.")
    max_retries: int | None
    next_retry_at: datetime | None
    first_failed_at: datetime | None
    last_failed_at: datetime | None
    error_message: str | None
    error_stack: str | None
    category: str | None
    correlation_id: str | None
    retry_policy_override: Any = Field(description="What a person replayed it under: a policy's name, or its spec.")
    dead_letter_id: UUID | None
    policy: str | None
    idempotency_key: str = Field(description="What its effects carry: the same for every try.")
    execution: int = Field(description="How often it was run again after it had succeeded.")
    scheduled_as: str | None = Field(description="The id of its next try: the run, the step and the attempt.")
    due_at: datetime | None
    log_id: UUID | None
    started_at: datetime | None
    finished_at: datetime | None
    input: Any = Field(description="Any JSON; values that look secret are hidden.")
    output: Any = Field(description="Any JSON; values that look secret are hidden.")
    output_is_cut: bool = Field(description="It was too large to be kept.")


class Cancelled(Answer):
    at: datetime
    by: str | None
    because: str | None


class RunDetail(Answer):
    """A run with its steps."""

    model_config = example(
        _RUN | {"created_by": "key 3f9a", "cancelled": None, "input": {"amount": "12.50"}, "steps": [_STEP]}
    )

    run_id: UUID
    workflow: str
    version: int
    status: RunStatus
    correlation_id: str | None
    replays: int
    created_at: datetime
    created_by: str
    started_at: datetime | None
    finished_at: datetime | None
    cancelled: Cancelled | None = Field(description="Who cancelled it; while a try is under way it is RUNNING still.")
    input: Any = Field(description="Any JSON; values that look secret are hidden.")
    steps: list[RunStep]
