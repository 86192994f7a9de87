"""Settings for the OWNERs of an installation: all orgs, their limits, and the way into each."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.routes.orgs import shape_of
from redrive.api.shapes import Shape
from redrive.core.permissions import Action
from redrive.store import orgs
from redrive.store.keys import Caller, Kind
from redrive.store.orgs import MAX_ORG_NAME_CHARS
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS
from redrive.web.pages.settings import LIMITS
from redrive.web.pages.settings import PATH as SETTINGS_PATH
from redrive.web.render import render
from redrive.web.visitor import PageRoute, visiting

PATH = "/settings/orgs"

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class OrgsPage:
    frame: Frame
    orgs: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None
    tab: str = PATH

    limits = LIMITS
    max_name_chars = MAX_ORG_NAME_CHARS

    @property
    def may_switch(self) -> bool:
        """A key is of one org; a session goes where its owner may be."""
        return self.frame.caller.kind is not Kind.KEY


@router.get(PATH)
async def orgs_page(
    request: Request, visitor: Annotated[Caller, Depends(visiting(Action.OWN))], context: Context
) -> Response:
    place = ListPlace("page orgs", visitor.org_id, {})
    given = request.query_params.get("cursor")
    after = context.cursors.read(place, given)
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, SETTINGS_PATH)
    page = await orgs.list_orgs(context.engine_db, only=None, limit=PAGE_ROWS, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    shown = OrgsPage(
        frame=frame,
        orgs=[shape_of(row) for row in page.rows],
        total=page.total,
        next_href=f"{PATH}?cursor={cursor}" if cursor else None,
        first_href=PATH if given else None,
    )
    return render(request, "settings_orgs.html", shown)
