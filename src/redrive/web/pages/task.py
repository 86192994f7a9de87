"""One task: as a dead letter, and as an integration log, which every task has and which outlives the dead letter.

The text that the editor of a dead letter begins with is a page of its own: it may be long, and few open it.
"""

import asyncio
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api.context import Context
from redrive.api.problems import forbidden, not_found
from redrive.api.queries import id_in_path
from redrive.core.permissions import Action
from redrive.store import dead_letters
from redrive.web import bodies
from redrive.web.assets import packed_response
from redrive.web.detail import TaskDetail, find_task, tell
from redrive.web.frame import Frame, load_frame
from redrive.web.pages.dead_letters import PATH as DEAD_LETTERS
from redrive.web.pages.retry_queue import PATH as RETRY_QUEUE
from redrive.web.render import HEADERS, render
from redrive.web.visitor import PageRoute, Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class TaskPage:
    """`back`: the list that it belongs to."""

    frame: Frame
    task: TaskDetail
    path: str
    back: str


@router.get("/app/admin/dlq/{task_id}")
async def dead_letter_page(task_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    wanted = id_in_path(task_id, "dead letter")
    async with context.tenant(visitor) as session:
        found = await find_task(context, session, visitor, wanted)
        if found is None or found.letter is None:
            raise not_found("dead letter")
        frame = await load_frame(session, visitor, context, DEAD_LETTERS)
    task = await asyncio.to_thread(tell, found, all_tries=_all_tries(request))
    return render(request, "dead_letter.html", TaskPage(frame, task, request.url.path, DEAD_LETTERS))


@router.get("/app/admin/dlq/{task_id}/payload")
async def payload_text(task_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    """The payload that the next try would send, or with ?original the event's own: whole, laid out, for the editor."""
    for action in (Action.JUDGE, Action.READ_PAYLOADS):
        if not visitor.may(action):
            raise forbidden(visitor, action)
    wanted = id_in_path(task_id, "dead letter")
    async with context.tenant(visitor) as session:
        letter = await dead_letters.get_dead_letter(session, wanted)
    if letter is None:
        raise not_found("dead letter")
    edited = None if "original" in request.query_params else letter["edited_body"]
    # Nothing, where it is too large.
    text = await asyncio.to_thread(bodies.editable, (letter["body"] or b"") if edited is None else edited)
    return packed_response(request, text.encode(), "text/plain; charset=utf-8", HEADERS)


@router.get("/integrations/logs/{log_id}")
async def log_page(log_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    wanted = id_in_path(log_id, "log")
    async with context.tenant(visitor) as session:
        found = await find_task(context, session, visitor, wanted)
        if found is None:
            raise not_found("log")
        place = DEAD_LETTERS if found.row["state"] == "dead" else RETRY_QUEUE
        frame = await load_frame(session, visitor, context, place)
    task = await asyncio.to_thread(tell, found, all_tries=_all_tries(request))
    return render(request, "log.html", TaskPage(frame, task, request.url.path, place))


def _all_tries(request: Request) -> bool:
    return request.query_params.get("attempts") == "all"
