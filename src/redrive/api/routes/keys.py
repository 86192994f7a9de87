"""API keys of the org: make, list, revoke. A key is in the answer that makes it, and nowhere else."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Admitter
from redrive.api.context import Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.once import Once
from redrive.api.people_input import KeyIn
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import PageQuery, id_in_path, no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.people import Key, NewKey
from redrive.core.permissions import Role
from redrive.store import keys
from redrive.store.keys import BadHubKey, Caller, TooManyKeys

NOUN = "key"
SHOWN = ("id", "name", "role", "scope", "endpoint_id", "hint", "created_at", "expires_at", "revoked_at", "last_used_at")

router = APIRouter(prefix="/v1/keys", tags=["keys"], dependencies=SCHEMES)


def shape_of(row: shapes.Row) -> shapes.Shape:
    return {name: row[name] for name in SHOWN}


def _check_role(caller: Caller, role: str) -> None:
    if role == Role.OWNER and caller.role != Role.OWNER:
        raise Problem(403, "Only an OWNER makes and revokes keys of an OWNER.")


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=shows(NewKey, 201))
async def create_key(request: Request, given: KeyIn, caller: Admitter, context: Context) -> Response:
    """Make a key of this org. This answer alone shows `key`; a repetition under the same Idempotency-Key does not."""
    _check_role(caller, given.role)
    once = Once(request, NOUN, given.model_dump())
    async with context.tenant(caller) as session:
        made = await once.made_before(session)
        if made is not None:
            row = await keys.get_key(session, made)
            if row is None:
                raise once.gone()
            return answer(shape_of(row), 201)
        try:
            row, key = await keys.create_key(
                session,
                name=given.name,
                role=given.role,
                scope=given.scope,
                expires_at=given.expires_at,
                endpoint_id=given.endpoint_id,
                act=act_of(request, caller),
            )
        except TooManyKeys as enough:
            raise invalid(FieldError(("body",), str(enough))) from None
        except BadHubKey as bad:
            raise invalid(FieldError(("body", bad.field), str(bad))) from None
        await once.note(session, row["id"])
    return answer(shape_of(row) | {"key": key}, 201)


@router.get("", responses=shows(Page[Key]))
async def list_keys(query: Annotated[PageQuery, Query()], caller: Admitter, context: Context) -> Response:
    """The org's keys, oldest first, revoked ones included; of each a hint, never the key."""
    place = ListPlace("keys", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await keys.list_keys(session, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(shapes.page([shape_of(row) for row in page.rows], limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{key_id}", dependencies=[Depends(no_query)], responses=shows(Key))
async def get_key(key_id: str, caller: Admitter, context: Context) -> Response:
    """One key of the org: what it may do, and when it was last used; never the key."""
    wanted = id_in_path(key_id, NOUN)
    async with context.tenant(caller) as session:
        row = await keys.get_key(session, wanted)
    if row is None:
        raise not_found(NOUN)
    return answer(shape_of(row))


@router.delete("/{key_id}", status_code=204, dependencies=[Depends(no_query)])
async def revoke_key(key_id: str, request: Request, caller: Admitter, context: Context) -> Response:
    """Revoke a key: it stops working within 2 seconds, and stays in the list. One that is revoked stays so."""
    wanted = id_in_path(key_id, NOUN)
    async with context.tenant(caller) as session:
        row = await keys.get_key(session, wanted)
        if row is None:
            raise not_found(NOUN)
        _check_role(caller, row["role"])
        await keys.revoke_key(session, wanted, act_of(request, caller))
    return Response(status_code=204)
