"""Reading workflows, runs and replays of runs as people send them. Pure.

Called by routes.workflows and routes.runs. A run's input is never rebuilt: its bytes are kept as they came.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from redrive.api.correlation import MAX_CORRELATION_CHARS
from redrive.api.endpoint_input import PolicyName
from redrive.api.problems import FieldError, invalid, payload_too_large
from redrive.api.queries import EndMoment, Moment, PageQuery, Text
from redrive.api.replay_input import MAX_STEP_INDEX, override_of
from redrive.api.run_shapes import SHOWN_BESIDES
from redrive.core.workflow import Workflow, WorkflowError
from redrive.core.workflow_view import restored
from redrive.store.edits import NO_EDIT, Edit, Override
from redrive.store.events import MAX_PAYLOAD_BYTES
from redrive.store.replays import Replay
from redrive.store.runs import RunFilter


def read_workflow(name: str, given: Mapping[str, object], before: Workflow | None) -> Workflow:
    """What a body says, or Problem 422 with everything that is wrong with it. `before`: the version in force, whose
    secrets are meant where the body has what answers show in place of them.
    """
    if given.get("name", name) != name:
        raise invalid(FieldError(("body", "name"), "must be the name in the path, or be left out"))
    spec: object = {key: value for key, value in given.items() if key not in SHOWN_BESIDES | {"name"}}
    spec = spec if before is None else restored(spec, before.to_spec())
    try:
        return Workflow.from_spec(name, spec)
    except WorkflowError as error:
        raise unusable(error) from None


def unusable(error: WorkflowError) -> Exception:
    return invalid(*(_field(place, message) for place, message in error.errors))


def _field(place: tuple[str | int, ...], message: str) -> FieldError:
    return FieldError(("path", "name") if place == ("name",) else ("body", *place), message)


class VersionQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class RunsQuery(PageQuery):
    workflow: Text | None = None
    status: Literal["PENDING", "RUNNING", "SUCCESS", "FAILED", "PARTIAL", "DLQ_PENDING"] | None = None
    since: Moment | None = None
    until: EndMoment | None = None

    def chosen(self) -> RunFilter:
        return RunFilter(**self.model_dump(exclude={"limit", "cursor"}))


class RunIn(BaseModel):
    """What a run begins with."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"input": {"order": 7, "amount": "12.50"}}]}
    )

    input: Any = Field(default=None, description="Any JSON: what the steps' templates see as `input`.")
    correlation_id: (
        Annotated[str, Field(min_length=1, max_length=MAX_CORRELATION_CHARS, pattern=r"^[!-~]+$")] | None
    ) = None

    def body(self, raw: bytes) -> bytes:
        """`raw`: the request's body, which has the input's own bytes."""
        given = msgspec.json.decode(raw, type=_Input).input if "input" in self.model_fields_set else None
        body = b"null" if given is None else bytes(given)
        if len(body) > MAX_PAYLOAD_BYTES:
            raise payload_too_large(MAX_PAYLOAD_BYTES)
        return body


class RunReplayIn(BaseModel):
    """Which steps to run again, and how. What is left out, or null, stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"from_step_index": 1, "because": "the carrier is back"}]},
    )

    from_step_index: Annotated[int, Field(ge=0, le=MAX_STEP_INDEX)]
    mode: Literal["STEP_ONLY", "FROM_STEP"] = "FROM_STEP"
    override_retry_policy: dict[str, object] | PolicyName | None = None
    payload: Any = Field(default=None, description="Any JSON but null: the input of the step that it begins with.")
    new_idempotency_key: bool = Field(
        default=False, description="Effects carry another key than before, so that they happen again."
    )
    now: bool = Field(default=True, description="False: a step that had died waits for its policy's first delay.")
    because: Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00]*$")] | None = None

    def replay(self, raw: bytes) -> Replay:
        """`raw`: the request's body, which has the payload's own bytes."""
        edit = NO_EDIT
        if self.payload is not None:
            edit = Edit(bytes(msgspec.json.decode(raw, type=_Payload).payload))
            if len(edit.body or b"") > MAX_PAYLOAD_BYTES:
                raise payload_too_large(MAX_PAYLOAD_BYTES)
        return Replay(self.mode, edit, self.policy(), self.new_idempotency_key, self.now)

    def policy(self) -> Override | None:
        return override_of(self.override_retry_policy)


class _Input(msgspec.Struct):
    input: msgspec.Raw


class _Payload(msgspec.Struct):
    payload: msgspec.Raw
