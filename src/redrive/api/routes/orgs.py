"""Orgs: an OWNER makes them, sees all of them and sets their limits; everybody else sees their own."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, OwnerOnly, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.once import Once
from redrive.api.people_input import OrgChangeIn, OrgIn
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import PageQuery, id_in_path, no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.people import NewOrg, Org
from redrive.core.permissions import Action, Role
from redrive.core.presets import PRESETS
from redrive.store import keys, orgs
from redrive.store.keys import Caller, Kind
from redrive.store.orgs import NoSuchPolicy, OrgNameTaken
from redrive.store.users import list_memberships

NOUN = "org"

router = APIRouter(prefix="/v1/orgs", tags=["orgs"], dependencies=SCHEMES)


def shape_of(row: shapes.Row) -> shapes.Shape:
    return {
        "id": row["org_id"],
        "name": row["name"],
        "created_at": row["created_at"],
        "default_policy": row["default_policy"],
        "limits": orgs.limits_of(row).to_spec(),
        "usage": {"stored_bytes": row["stored_bytes"], "endpoints": row["endpoints"]},
    }


def _name_taken() -> Problem:
    return Problem(409, "Another org has this name. Choose another one.")


async def _visible(context: ApiContext, caller: Caller) -> list[UUID] | None:
    """The orgs that a caller may see; None for all."""
    if caller.may(Action.OWN):
        return None
    if caller.kind != Kind.USER:
        return [caller.org_id]
    memberships = await list_memberships(context.engine_db, caller.id)
    return [row["org_id"] for row in memberships if row["suspended_at"] is None]


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=shows(NewOrg, 201))
async def create_org(request: Request, given: OrgIn, caller: OwnerOnly, context: Context) -> Response:
    """Make an org with the preset policies. This answer alone shows `key`, the first key of its ADMIN."""
    once = Once(request, NOUN, given.model_dump())
    act = act_of(request, caller)
    key: str | None = None
    try:
        async with context.beyond(caller) as session:
            org_id = await once.made_before(session)
            if org_id is None:
                org_id = await orgs.create_org(session, given.name, PRESETS, act)
                _, key = await keys.create_key(
                    session.of(org_id), name="first key", role=Role.ADMIN, scope=None, expires_at=None, act=act
                )
                await once.note(session, org_id)
    except OrgNameTaken:
        raise _name_taken() from None
    row = await orgs.get_org(context.engine_db, org_id)
    assert row is not None, "orgs are never deleted"
    return answer(shape_of(row) | ({"key": key} if key else {}), 201)


@router.get("", responses=shows(Page[Org]))
async def list_orgs(query: Annotated[PageQuery, Query()], caller: Reader, context: Context) -> Response:
    """Oldest first; those that the caller may be in."""
    place = ListPlace("orgs", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    only = await _visible(context, caller)
    page = await orgs.list_orgs(context.engine_db, only=only, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(shapes.page([shape_of(row) for row in page.rows], limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{org_id}", dependencies=[Depends(no_query)], responses=shows(Org))
async def get_org(org_id: str, caller: Reader, context: Context) -> Response:
    """An org with its limits, and what it uses of them."""
    wanted = id_in_path(org_id, NOUN)
    visible = await _visible(context, caller)
    row = await orgs.get_org(context.engine_db, wanted) if visible is None or wanted in visible else None
    if row is None:
        raise not_found(NOUN)
    return answer(shape_of(row))


@router.patch("/{org_id}", dependencies=[Depends(no_query)], responses=shows(Org))
async def change_org(
    org_id: str, request: Request, given: OrgChangeIn, caller: OwnerOnly, context: Context
) -> Response:
    """Change the name, the default policy, or the limits given. Limits are in force within 2 seconds, a policy for new
    events at once.
    """
    wanted = id_in_path(org_id, NOUN)
    try:
        row = await orgs.update_org(
            context.engine_db,
            wanted,
            name=given.name,
            limits=given.limits.given(),
            act=act_of(request, caller),
            default_policy=given.default_policy,
        )
    except NoSuchPolicy:
        raise invalid(FieldError(("body", "default_policy"), "The org has no such policy")) from None
    except OrgNameTaken:
        raise _name_taken() from None
    if row is None:
        raise not_found(NOUN)
    return answer(shape_of(row))


@router.put("/{org_id}", dependencies=[Depends(no_query)], responses=shows(Org))
async def put_org(org_id: str, request: Request, given: OrgChangeIn, caller: OwnerOnly, context: Context) -> Response:
    """As `PATCH`: what is left out stays."""
    return await change_org(org_id, request, given, caller, context)
