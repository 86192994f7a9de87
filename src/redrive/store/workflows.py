"""Workflows by name: versioned definitions. A stored version never changes: an edit adds one, and runs keep theirs.

Called by the API, the command line and, for workflows written in Python, by a worker that starts. Headers that are no
templates may carry credentials: they are sealed, and only who has the key sees them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec
import structlog

from redrive.core.step_fields import TOO_FAR, is_too_far
from redrive.core.workflow import StepSpec, Workflow, WorkflowError
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock, time_of
from redrive.store.db import Database, Record, Session
from redrive.store.endpoint_names import endpoint_called
from redrive.store.endpoints import get_endpoint
from redrive.store.orgs import new_id
from redrive.store.paging import Page, page_of
from redrive.store.policies import add_terms, get_policy, policy_of
from redrive.store.seal import Sealer, SealError

MAX_WORKFLOWS = 1_000  # of an org, in force
MAX_VERSIONS = 10_000  # of one workflow: none is removed, since runs keep theirs
MAX_VERSIONS_CACHED = 2_000
MAX_VERSIONS_LISTED = 50

_Headers = dict[int, dict[str, str]]

log = structlog.get_logger("redrive.workflows")


class TooManyWorkflows(Exception):
    """An org has as many workflows, or a workflow as many versions, as one may have: a sentence for a person."""


class Binding(msgspec.Struct, frozen=True):
    """What a step of a version is bound to: terms of its own, and the endpoint that it calls."""

    policy_id: UUID | None = None
    endpoint_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A definition as runs keep it. Without a key to unseal them its literal headers are missing."""

    org_id: UUID
    id: UUID
    number: int
    workflow: Workflow
    bindings: tuple[Binding, ...]


class Versions:
    """Versions by id, remembered: they never change."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        self._sealer = sealer
        self._known: dict[UUID, Version] = {}

    async def load(self, db: Database | Session, keys: Sequence[tuple[UUID, UUID]]) -> dict[UUID, Version]:
        """Those asked for, by id. One that cannot be read is left out, and said: it may be of a newer Redrive."""
        found = {id: self._known[id] for _, id in keys if id in self._known}
        wanted = {id: (org_id, id) for org_id, id in keys if id not in found}
        if not wanted:
            return found
        ids = list(wanted.values())
        for row in await db.fetch("workflows_by_id", [org for org, _ in ids], [id for _, id in ids]):
            try:
                found[row["id"]] = version_of(row, self._sealer)
            except (WorkflowError, SealError) as error:
                log.error("workflow_unreadable", workflow=row["name"], version=row["version"], error=str(error))
        if len(self._known) + len(found) > MAX_VERSIONS_CACHED:
            self._known.clear()
        self._known |= found
        return found


def version_of(row: Record, sealer: Sealer | None = None) -> Version:
    headers: _Headers = {}
    if sealer is not None and row["headers_sealed"] is not None:
        unsealed = sealer.unseal(row["headers_sealed"], _owner(row["org_id"], row["id"]))
        headers = msgspec.json.decode(unsealed, type=_Headers)
    workflow = Workflow.from_spec(row["name"], msgspec.json.decode(row["spec"]), literal_headers=headers)
    bindings = msgspec.json.decode(row["bindings"], type=tuple[Binding, ...])
    return Version(row["org_id"], row["id"], row["version"], workflow, bindings)


async def put_workflow(
    session: Session, workflow: Workflow, act: Act, clock: Clock, sealer: Sealer | None
) -> tuple[Record, bool]:
    """The version in force from now on, and whether it is new: the same definition again is the same version.

    WorkflowError where it names a policy or an endpoint that is not there.
    """
    await session.execute("lock_workflows", session.org_id)
    before = await get_workflow(session, workflow.name)
    if before is None:
        others = await session.fetchrow("count_workflows", session.org_id)
        if others is not None and others["n"] >= MAX_WORKFLOWS:
            raise TooManyWorkflows(
                f"An org has at most {MAX_WORKFLOWS} workflows. Delete one that is not used any more"
            )
    bindings = await _bind(session, workflow, clock)
    encoded = msgspec.json.encode(bindings).decode()
    if before is not None and before["bindings"] == encoded and version_of(before, sealer).workflow == workflow:
        return before, False
    newest = await session.fetchrow("list_workflow_versions", session.org_id, workflow.name, 1)
    if newest is not None and newest["version"] >= MAX_VERSIONS:
        raise TooManyWorkflows(f"A workflow has at most {MAX_VERSIONS} versions. Give this one another name")
    version_id: UUID = new_id()
    headers = workflow.literal_headers
    sealed = None
    if headers:
        assert sealer is not None, "headers are given through the API, which has the key"
        sealed = sealer.seal(msgspec.json.encode(headers), _owner(session.org_id, version_id))
    await session.execute("retire_workflow", session.org_id, workflow.name)
    await session.execute(
        "put_workflow",
        session.org_id,
        workflow.name,
        version_id,
        len(workflow.steps),
        msgspec.json.encode(workflow.to_spec(with_literal_headers=False)).decode(),
        sealed,
        msgspec.json.encode(workflow.redacted()).decode(),
        encoded,
        act.actor,
        clock.now(),
    )
    row = await get_workflow(session, workflow.name)
    assert row is not None
    await audit.record(
        session,
        act,
        "workflow.put",
        "workflow",
        version_id,
        before=_audited(before) if before else None,
        after=_audited(row),
    )
    return row, True


async def delete_workflow(session: Session, name: str, act: Act) -> bool:
    """Take it out of force: no run begins with it any more, those that there are go on. False: there is none."""
    await session.execute("lock_workflows", session.org_id)
    row = await session.fetchrow("retire_workflow", session.org_id, name)
    if row is None:
        return False
    was = {"name": name, "version": row["version"]}
    await audit.record(session, act, "workflow.delete", "workflow", row["id"], before=was)
    return True


async def get_workflow(session: Session, name: str, version: int | None = None) -> Record | None:
    """The version in force, or the one of that number."""
    return await session.fetchrow("get_workflow", session.org_id, name, version)


async def list_versions(session: Session, name: str) -> list[Record]:
    """The newest MAX_VERSIONS_LISTED of a workflow, newest first; none where there never was such a workflow."""
    return await session.fetch("list_workflow_versions", session.org_id, name, MAX_VERSIONS_LISTED)


async def list_workflows(session: Session, *, limit: int, after: Sequence[object] | None) -> Page:
    rows = await session.fetch("list_workflows", session.org_id, after[0] if after else None, limit + 1)
    total = await session.fetchrow("count_workflows", session.org_id)
    return page_of(rows, limit, ("name",), total["n"] if total else 0)


async def _bind(session: Session, workflow: Workflow, clock: Clock) -> list[Binding]:
    """What the steps name, looked up; all that is missing or out of reach is told at once."""
    errors: list[tuple[tuple[str | int, ...], str]] = []
    bindings = []
    for index, step in enumerate(workflow.steps):
        policy_id = endpoint_id = None
        try:
            policy_id = await _terms(session, step)
        except LookupError as error:
            errors.append((("steps", index, "policy"), str(error)))
        if step.endpoint is not None:
            endpoint_id = await _http_endpoint(session, step.endpoint)
            if endpoint_id is None:
                errors.append((("steps", index, "endpoint"), f"there is no HTTP endpoint {step.endpoint!r}"))
        if step.until is not None and is_too_far(step.until, await time_of(session, clock)):
            errors.append((("steps", index, "until"), TOO_FAR))
        bindings.append(Binding(policy_id, endpoint_id))
    if errors:
        raise WorkflowError(errors)
    return bindings


async def _http_endpoint(session: Session, called: str) -> UUID | None:
    endpoint_id = await endpoint_called(session, called)
    row = await get_endpoint(session, endpoint_id) if endpoint_id is not None else None
    return endpoint_id if row is not None and row["kind"] == "http" else None


async def _terms(session: Session, step: StepSpec) -> UUID | None:
    """Terms of its own where it changes a policy: made from that as it is now. None: as the policy says when its
    time comes.
    """
    policy = step.policy
    if isinstance(policy, str):
        row = await get_policy(session, policy)
        if row is None:
            raise LookupError(f"there is no policy named {policy!r}")
        if step.max_retries is None and step.timeout_s is None:
            return None
        policy = policy_of(row)
    return await add_terms(session, step.terms(policy))


def _audited(row: Record) -> Mapping[str, object]:
    return {"name": row["name"], "version": row["version"], **msgspec.json.decode(row["shown"], type=dict[str, object])}


def _owner(org_id: UUID, version_id: UUID) -> str:
    return f"workflow {org_id} {version_id}"
