"""Settings for those who admit people: the users of the org, and its keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.people_input import MAX_KEY_NAME_CHARS
from redrive.api.routes.keys import shape_of as key_shape
from redrive.api.routes.users import shape_of as user_shape
from redrive.api.shapes import Shape
from redrive.core.permissions import Action, Role
from redrive.store import keys, users
from redrive.store.db import Record
from redrive.store.endpoint_names import endpoint_names
from redrive.store.endpoints import list_relays
from redrive.store.keys import Caller
from redrive.store.passwords import MIN_PASSWORD_CHARS
from redrive.store.users import MAX_EMAIL_CHARS, MAX_USER_NAME_CHARS
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS
from redrive.web.pages.settings import PATH
from redrive.web.render import render
from redrive.web.visitor import PageRoute, visiting

USERS_PATH = "/settings/users"
KEYS_PATH = "/settings/keys"
MAX_RELAYS = 1_000  # to choose from; a key of another one is made through the API
ROLES = {
    Role.VIEWER: "reads, with secrets hidden",
    Role.STAFF: "reads, with secrets hidden",
    Role.IT_MANAGER: "retries, decides, manages endpoints and policies",
    Role.ADMIN: "all that, and users and keys of this org",
    Role.OWNER: "everything, in every org",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Admitter = Annotated[Caller, Depends(visiting(Action.ADMIT))]


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """Users or keys, with what one may give: nobody gives what is above themselves."""

    frame: Frame
    tab: str
    rows: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None
    relays: Sequence[Record] = ()  # which a hub's key may be for; on the page of keys

    max_name_chars = MAX_USER_NAME_CHARS
    max_email_chars = MAX_EMAIL_CHARS
    max_key_name_chars = MAX_KEY_NAME_CHARS
    min_password_chars = MIN_PASSWORD_CHARS

    @property
    def roles(self) -> dict[Role, str]:
        return {role: words for role, words in ROLES.items() if role is not Role.OWNER or self.frame.may("own")}


@router.get(USERS_PATH)
async def users_page(request: Request, visitor: Admitter, context: Context) -> Response:
    place = ListPlace("page users", visitor.org_id, {})
    given = request.query_params.get("cursor")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        page = await users.list_users(session, limit=PAGE_ROWS, after=context.cursors.read(place, given))
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    shown = PeoplePage(
        frame=frame,
        tab=USERS_PATH,
        rows=[_user(row, visitor) for row in page.rows],
        total=page.total,
        next_href=f"{USERS_PATH}?cursor={cursor}" if cursor else None,
        first_href=USERS_PATH if given else None,
    )
    return render(request, "settings_users.html", shown)


@router.get(KEYS_PATH)
async def keys_page(request: Request, visitor: Admitter, context: Context) -> Response:
    place = ListPlace("page keys", visitor.org_id, {})
    given = request.query_params.get("cursor")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        page = await keys.list_keys(session, limit=PAGE_ROWS, after=context.cursors.read(place, given))
        relays = await list_relays(session, limit=MAX_RELAYS)
        names = await endpoint_names(session, [row["endpoint_id"] for row in page.rows])
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    shown = PeoplePage(
        frame=frame,
        tab=KEYS_PATH,
        rows=[_key(row, frame) | {"relay": names.get(row["endpoint_id"])} for row in page.rows],
        total=page.total,
        next_href=f"{KEYS_PATH}?cursor={cursor}" if cursor else None,
        first_href=KEYS_PATH if given else None,
        relays=relays,
    )
    return render(request, "settings_keys.html", shown)


def _user(row: Record, visitor: Caller) -> Shape:
    shape = user_shape(row)
    is_above = shape["role"] == Role.OWNER and not visitor.may(Action.OWN)
    return shape | {"is_you": row["id"] == visitor.id, "may_change": not is_above}


def _key(row: Record, frame: Frame) -> Shape:
    if row["revoked_at"] is not None:
        state = "revoked"
    elif row["expires_at"] is not None and row["expires_at"] <= frame.now:
        state = "expired"
    else:
        state = "active"
    may_revoke = state == "active" and (row["role"] != Role.OWNER or frame.may("own"))
    return key_shape(row) | {"state": state, "may_revoke": may_revoke, "is_you": row["id"] == frame.caller.id}
