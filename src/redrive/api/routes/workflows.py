"""Workflows: definitions of ordered steps, each edit a new version; and runs of them begun."""

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from pydantic import WithJsonSchema

from redrive.api import run_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Producer, Reader
from redrive.api.context import Context, act_of, correlation_of
from redrive.api.cursors import ListPlace
from redrive.api.meters import check_room, check_size
from redrive.api.once import key_of
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import PageQuery, no_query
from redrive.api.schemas.base import IDEMPOTENT, Page, shows
from redrive.api.schemas.workflows import DEFINITION_SCHEMA, RunBegun, WorkflowShape
from redrive.api.workflow_input import RunIn, VersionQuery, read_workflow, unusable
from redrive.core.ids import id_of_key
from redrive.core.run_states import RunStatus
from redrive.core.trace import TRACEPARENT
from redrive.core.workflow import WorkflowError, is_workflow_name
from redrive.observe import traces
from redrive.store import runs, workflows
from redrive.store.orgs import new_id
from redrive.store.runs import NewRun
from redrive.store.workflows import TooManyWorkflows, version_of

NOUN = "workflow"

router = APIRouter(prefix="/v1/workflows", tags=["workflows"], dependencies=SCHEMES)

_Given = Annotated[dict[str, object], WithJsonSchema(DEFINITION_SCHEMA), Body()]
_Name = Annotated[str, Path(examples=["fulfil"])]


async def _existing(name: _Name) -> str:
    """A name that cannot be names nothing: 404, as for one that does not exist."""
    if not is_workflow_name(name):
        raise not_found(NOUN)
    return name


_Known = Annotated[str, Depends(_existing)]


@router.get("", responses=shows(Page[WorkflowShape]))
async def list_workflows(query: Annotated[PageQuery, Query()], caller: Reader, context: Context) -> Response:
    """The workflows in force, by name."""
    place = ListPlace("workflows", caller.org_id, {})
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await workflows.list_workflows(session, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [run_shapes.workflow(row) for row in page.rows]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{name}", responses=shows(WorkflowShape))
async def get_workflow(
    name: _Known, query: Annotated[VersionQuery, Query()], caller: Reader, context: Context
) -> Response:
    """The version in force, or another one; without what looks secret."""
    async with context.tenant(caller) as session:
        row = await workflows.get_workflow(session, name, query.version)
    if row is None:
        raise not_found(NOUN)
    return answer(run_shapes.workflow(row))


@router.put("/{name}", responses=shows(WorkflowShape), dependencies=[Depends(no_query)])
async def put_workflow(name: _Name, request: Request, given: _Given, caller: Manager, context: Context) -> Response:
    """Make a workflow, or a new version of it. Runs keep the version that they began with.

    The same definition again is the same version.
    """
    try:
        async with context.tenant(caller) as session:
            before = await workflows.get_workflow(session, name) if is_workflow_name(name) else None
            known = None if before is None else version_of(before, context.sealer).workflow
            workflow = read_workflow(name, given, known)
            workflow.check_reach(context.rules)
            row, _ = await workflows.put_workflow(
                session, workflow, act_of(request, caller), context.clock, context.sealer
            )
    except WorkflowError as error:
        raise unusable(error) from None
    except TooManyWorkflows as error:
        raise invalid(FieldError(("body",), str(error))) from None
    return answer(run_shapes.workflow(row))


@router.delete("/{name}", status_code=204, dependencies=[Depends(no_query)])
async def delete_workflow(name: _Known, request: Request, caller: Manager, context: Context) -> Response:
    """Take a workflow out of force: no run begins with it any more. Runs that there are go on."""
    async with context.tenant(caller) as session:
        if not await workflows.delete_workflow(session, name, act_of(request, caller)):
            raise not_found(NOUN)
    return Response(status_code=204)


@router.post(
    "/{name}/runs",
    status_code=202,
    responses=shows(RunBegun, 202),
    openapi_extra=IDEMPOTENT,
    dependencies=[Depends(no_query)],
)
async def begin_run(
    name: _Known, request: Request, caller: Producer, context: Context, given: RunIn | None = None
) -> Response:
    """Begin a run: it is stored with its first step, then answered. A known Idempotency-Key is answered, not begun."""
    asked = given or RunIn()
    body = asked.body(await request.body())
    check_size(caller, body)
    check_room(caller)
    key = key_of(request)
    entry = traces.entry(request.headers.get(TRACEPARENT))
    run = NewRun(
        new_id() if key is None else id_of_key(caller.org_id, "run", key),
        body,
        asked.correlation_id or correlation_of(request),
        entry.traceparent if entry is not None else None,
    )
    async with context.beyond(caller) as session:
        row = await workflows.get_workflow(session, name)
        if row is None:
            raise not_found(NOUN)
        verdict = await runs.begin_run(session, version_of(row), run, act_of(request, caller), context.clock)
        if verdict == "conflict":
            raise Problem(409, "This Idempotency-Key was used for another workflow or input.")
        known = await runs.get_run(session, run.id) if verdict == "duplicate" else None
    if entry is not None:
        facts = {"org_id": str(caller.org_id), "run_id": str(run.id), "workflow": name, "verdict": verdict}
        traces.handed_in(entry, {f"redrive.{fact}": value for fact, value in facts.items()})
    return answer({"run_id": run.id, "status": known["status"] if known else RunStatus.PENDING}, 202)
