"""Beginning a run within the caller's own transaction, as store.handover hands in events. Called by library."""

from typing import Any
from uuid import UUID

import msgspec

from redrive.core.ids import id_of_key
from redrive.core.json_depth import MAX_JSON_DEPTH, is_too_deep
from redrive.core.trace import traceparent_of
from redrive.core.workflow import Workflow
from redrive.store.events import MAX_PAYLOAD_BYTES, new_correlation_id
from redrive.store.handover import SqlFunction, call
from redrive.store.orgs import new_id
from redrive.store.runs import NewRun, first_step
from redrive.store.workflows import Binding, Version

_IN_FORCE = SqlFunction("redrive.workflow_in_force", "text", "text")
_NOW = SqlFunction("clock_timestamp")
_HAND_IN_RUN = SqlFunction(
    "redrive.hand_in_run",
    *("uuid", "uuid", "uuid", "bytea", "text", "text", "text", "text", "text", "text"),
    *("uuid", "text", "uuid", "text", "bytea", "text", "text", "text", "float8"),
)


class _InForce(msgspec.Struct):
    org_id: UUID
    id: UUID
    name: str
    version: int
    spec: str
    bindings: str


async def start_run(
    connection: Any,
    *,
    org: str,
    workflow: str,
    input: bytes,
    idempotency_key: str | None,
    correlation_id: str | None,
    traceparent: str | None,
) -> UUID:
    """LookupError where the org has no such workflow, ValueError where the input cannot be used or the key was
    used for another run.
    """
    _check_input(input)
    found = await call(connection, _IN_FORCE, org, workflow)
    if found is None:
        raise LookupError(
            f"the org {org!r} has no workflow {workflow!r}: start a worker with the app that defines it, or PUT it"
        )
    row = msgspec.json.decode(found, type=_InForce)
    definition = Workflow.from_spec(row.name, msgspec.json.decode(row.spec))
    bindings = msgspec.json.decode(row.bindings, type=tuple[Binding, ...])
    version = Version(row.org_id, row.id, row.version, definition, bindings)
    run_id = new_id() if idempotency_key is None else id_of_key(row.org_id, "run", idempotency_key)
    run = NewRun(run_id, input, correlation_id or new_correlation_id(), traceparent_of(traceparent))
    step = first_step(version, run, await call(connection, _NOW))
    given = (run.input, run.correlation_id, run.traceparent, "library")
    verdict = await call(connection, _HAND_IN_RUN, version.org_id, version.id, run.id, *given, *step[3:])
    if verdict == "conflict":
        raise ValueError(f"the idempotency key {idempotency_key!r} was used for another workflow or input")
    return run.id


def _check_input(input: bytes) -> None:
    """As the API takes it: every step reads it as JSON."""
    if len(input) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a run's input has at most {MAX_PAYLOAD_BYTES} bytes, not {len(input)}")
    try:
        msgspec.json.decode(input)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"a run's input must be JSON: {error}") from None
    if is_too_deep(input):
        raise ValueError(f"a run's input is nested at most {MAX_JSON_DEPTH} levels deep")
