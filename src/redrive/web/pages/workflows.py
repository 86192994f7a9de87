"""Workflows: those in force with their chains of steps, and one with its versions and latest runs. Runs begin here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api import run_shapes
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.problems import not_found
from redrive.api.schemas.workflows import DEFINITION_EXAMPLE
from redrive.api.shapes import Shape
from redrive.core.workflow import MAX_NAME_CHARS
from redrive.store import runs, workflows
from redrive.store.actors import actor_names
from redrive.store.db import Record, Session
from redrive.store.runs import MAX_RUNS_COUNTED, RunFilter
from redrive.web.actors import Actor, shown_actor
from redrive.web.frame import Frame, load_frame
from redrive.web.json_text import pretty
from redrive.web.render import render
from redrive.web.run_rows import RunRow, run_row
from redrive.web.visitor import PageRoute, Visitor
from redrive.web.words import as_json
from redrive.web.workflow_words import RUN_STATUSES, DefinedStep, defined_step

PATH = "/workflows"
PAGE_WORKFLOWS = 25
STEPS_DRAWN = 8  # of a workflow in the list
RUNS_SHOWN = 10
MAX_VERSION = 2**31 - 1

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    shape: Shape
    steps: tuple[DefinedStep, ...]
    more_steps: int
    runs: Mapping[str, int]  # by status

    @property
    def href(self) -> str:
        return f"{PATH}/{self.shape['name']}"


@dataclass(frozen=True, slots=True)
class WorkflowsPage:
    frame: Frame
    workflows: list[WorkflowRow]
    total: int | None
    next_href: str | None
    first_href: str | None

    statuses = RUN_STATUSES
    counted_to = MAX_RUNS_COUNTED
    example = pretty(as_json(DEFINITION_EXAMPLE))


@dataclass(frozen=True, slots=True)
class VersionRow:
    number: int
    steps: int
    created_at: object
    actor: Actor
    in_force: bool


@dataclass(frozen=True, slots=True)
class WorkflowPage:
    frame: Frame
    shape: Shape
    steps: tuple[DefinedStep, ...]
    versions: list[VersionRow]
    more_versions: int
    counts: Mapping[str, int]
    runs: list[RunRow]
    is_deleted: bool  # no version of it is in force

    path = PATH
    statuses = RUN_STATUSES
    counted_to = MAX_RUNS_COUNTED

    @property
    def api(self) -> str:
        return f"/v1/workflows/{self.shape['name']}"


@router.get(PATH)
async def workflows_page(request: Request, visitor: Visitor, context: Context) -> Response:
    given = request.query_params.get("cursor")
    place = ListPlace("page workflows", visitor.org_id, {})
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        page = await workflows.list_workflows(session, limit=PAGE_WORKFLOWS, after=context.cursors.read(place, given))
        counts = await runs.count_runs_of(session, [row["name"] for row in page.rows])
    shown = WorkflowsPage(
        frame=frame,
        workflows=[_row(row, counts[row["name"]]) for row in page.rows],
        total=page.total,
        next_href=f"{PATH}?cursor={context.cursors.write(place, page.next_key)}" if page.next_key else None,
        first_href=PATH if given else None,
    )
    return render(request, "workflows.html", shown)


def _row(row: Record, counts: Mapping[str, int]) -> WorkflowRow:
    shape = run_shapes.workflow(row)
    steps = _steps(shape)
    return WorkflowRow(shape, steps[:STEPS_DRAWN], max(len(steps) - STEPS_DRAWN, 0), counts)


def _steps(shape: Shape) -> tuple[DefinedStep, ...]:
    given = shape["steps"]
    assert isinstance(given, list)
    return tuple(defined_step(index, spec) for index, spec in enumerate(given))


@router.get(f"{PATH}/{{name}}")
async def workflow_page(name: str, request: Request, visitor: Visitor, context: Context) -> Response:
    """The version in force, or another one that the address names; of a workflow that was deleted, its last."""
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        # What no name can be is not asked for: the database takes no NUL.
        known = await workflows.list_versions(session, name) if name.isprintable() else []
        row = await _version(session, name, request.query_params.get("version"), known)
        if row is None or len(name) > MAX_NAME_CHARS:
            raise not_found("workflow")
        counts = await runs.count_runs_of(session, [name])
        latest = await runs.list_runs(session, RunFilter(workflow=name), limit=RUNS_SHOWN, after=None)
    names = await actor_names(context.engine_db, visitor.org_id, [version["created_by"] for version in known])
    shape = run_shapes.workflow(row)
    shown = WorkflowPage(
        frame=frame,
        shape=shape,
        steps=_steps(shape),
        versions=[
            VersionRow(
                version["version"],
                version["steps"],
                version["created_at"],
                shown_actor(version["created_by"], names, visitor),
                version["retired_at"] is None,
            )
            for version in known
        ],
        more_versions=row["versions"] - len(known),
        counts=counts[name],
        runs=[run_row(each, frame.now) for each in latest.rows],
        is_deleted=known[0]["retired_at"] is not None,
    )
    return render(request, "workflow.html", shown)


async def _version(session: Session, name: str, asked: str | None, known: Sequence[Record]) -> Record | None:
    if not known:
        return None
    if asked is None:
        in_force = await workflows.get_workflow(session, name)
        return in_force or await workflows.get_workflow(session, name, known[0]["version"])
    if not (asked.isascii() and asked.isdigit() and int(asked) <= MAX_VERSION):
        return None
    return await workflows.get_workflow(session, name, int(asked))
