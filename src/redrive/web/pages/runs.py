"""Runs of workflows, newest first; and one with its steps, from which it is cancelled and replayed.

The text that the editor of a step's input begins with is a page of its own: it may be long, and few open it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.problems import forbidden, not_found
from redrive.api.queries import id_in_path
from redrive.api.replay_input import MAX_STEP_INDEX
from redrive.core.permissions import Action
from redrive.core.run_states import RunStatus
from redrive.store import runs, workflows
from redrive.store.orgs import as_id
from redrive.store.paging import MAX_COUNTED
from redrive.store.runs import RunFilter
from redrive.web import bodies
from redrive.web.assets import packed_response
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS, Asked, FilterBuilder, known_total, searched, terms_of
from redrive.web.render import HEADERS, render
from redrive.web.run_detail import RunDetail, find_run, tell_run
from redrive.web.run_rows import RunRow, run_row
from redrive.web.search import Search
from redrive.web.visitor import PageRoute, Visitor
from redrive.web.workflow_words import STEP_STATUSES

PATH = "/runs"
QUALIFIERS = ("workflow", "status", "since", "until")
STATUSES = {status.value: status.value for status in RunStatus}
NAMES_OFFERED = 100

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class RunsPage:
    frame: Frame
    asked: Asked
    runs: list[RunRow]
    total: int | None
    next_href: str | None
    first_href: str | None
    names: Sequence[str]  # of workflows, to choose from

    path = PATH
    statuses = STATUSES
    counted_to = MAX_COUNTED

    @property
    def watched(self) -> dict[str, object] | None:
        """What the first page shows: whatever is new belongs on top of it."""
        if self.first_href is not None or "until" in self.asked.filter or self.asked.problems:
            return None
        return dict(self.asked.filter)


@dataclass(frozen=True, slots=True)
class RunPage:
    frame: Frame
    run: RunDetail

    path = PATH
    step_statuses = STEP_STATUSES


@router.get(PATH)
async def runs_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    if search.text:
        return Response(status_code=303, headers={"location": _meant(search)})
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        chosen = FilterBuilder(search, frame.now)
        chosen.text("workflow", "workflow")
        chosen.choice("status", "status", STATUSES)
        chosen.time("since")
        chosen.time("until")
        place = ListPlace("page runs", visitor.org_id, dict(search.terms))
        given = request.query_params.get("cursor")
        page = await runs.list_runs(
            session,
            RunFilter(**chosen.filter),  # type: ignore[arg-type]
            limit=PAGE_ROWS,
            after=context.cursors.read(place, given),
        )
        offered = await workflows.list_workflows(session, limit=NAMES_OFFERED, after=None)
        cursor = context.cursors.write(place, page.next_key) if page.next_key else None
        shown = RunsPage(
            frame=frame,
            asked=Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search, PATH)),
            runs=[run_row(row, frame.now) for row in page.rows],
            total=known_total(page, is_first=given is None),
            next_href=search.address(PATH, cursor=cursor) if cursor else None,
            first_href=search.address(PATH) if given else None,
            names=[row["name"] for row in offered.rows],
        )
    return render(request, "runs.html", shown)


def _meant(search: Search) -> str:
    """Where a search without a qualifier leads: an id is a run, any other text is a workflow."""
    wanted = as_id(search.text)
    return f"{PATH}/{wanted}" if wanted else search.without("q").changed("workflow", search.text).address(PATH)


@router.get(f"{PATH}/{{run_id}}")
async def run_page(run_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    wanted = id_in_path(run_id, "run")
    async with context.tenant(visitor) as session:
        found = await find_run(context, session, visitor, wanted)
        if found is None:
            raise not_found("run")
        frame = await load_frame(session, visitor, context, PATH)
    # To hide what looks secret takes its time: not in the loop that accepts events, nor in a transaction.
    return render(request, "run.html", RunPage(frame, await asyncio.to_thread(tell_run, found)))


@router.get(f"{PATH}/{{run_id}}/steps/{{index}}/input")
async def input_text(run_id: str, index: str, request: Request, visitor: Visitor, context: Context) -> Response:
    """What the next try of a step would be given: whole, laid out, for the editor. Empty where there is nothing yet."""
    for action in (Action.JUDGE, Action.READ_PAYLOADS):
        if not visitor.may(action):
            raise forbidden(visitor, action)
    wanted = id_in_path(run_id, "run")
    if not (index.isascii() and index.isdigit() and int(index) <= MAX_STEP_INDEX):
        raise not_found("step")
    async with context.tenant(visitor) as session:
        if await runs.get_run(session, wanted) is None:
            raise not_found("run")
        body = await runs.get_step_input(session, wanted, int(index))
    text = await asyncio.to_thread(bodies.editable, body or b"")
    return packed_response(request, text.encode(), "text/plain; charset=utf-8", HEADERS)
