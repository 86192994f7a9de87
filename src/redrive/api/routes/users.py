"""Users: the members of the org, their roles, and whether they are suspended."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Admitter, Known
from redrive.api.browser import client_address, token_of
from redrive.api.context import Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.login import prove_password
from redrive.api.once import Once
from redrive.api.people_input import UserChangeIn, UserIn
from redrive.api.problems import Problem, forbidden, not_found
from redrive.api.queries import PageQuery, id_in_path, no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.people import User
from redrive.core.permissions import Action, Role
from redrive.store import users
from redrive.store.keys import Caller, Kind
from redrive.store.passwords import hash_password
from redrive.store.users import Refusal, UserChange

NOUN = "user"
STATUS = {
    Refusal.UNKNOWN: 404,
    Refusal.MEMBER_ALREADY: 409,
    Refusal.HAS_ACCOUNT: 409,
    Refusal.ELSEWHERE: 403,
    Refusal.SHARED: 403,
    Refusal.ABOVE: 403,
    Refusal.TOO_MANY: 422,
    Refusal.LAST_OWNER: 409,
}

# Who may do more than look at, or change, themselves.
ADMITTERS = {"x-action": Action.ADMIT.value}

router = APIRouter(prefix="/v1/users", tags=["users"], dependencies=SCHEMES)


def shape_of(row: shapes.Row) -> shapes.Shape:
    return {
        "id": row["id"],
        "email": row["email"],
        "name": row["name"],
        "role": users.role_of(row),
        "suspended": users.is_suspended(row),
        "created_at": row["created_at"],
        "last_login_at": row["last_login_at"],
    }


def _refused(refusal: Refusal) -> Problem:
    return Problem(STATUS[refusal], str(refusal))


def _is_self(caller: Caller, user_id: UUID) -> bool:
    return caller.kind == Kind.USER and caller.id == user_id


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=shows(User, 201))
async def add_user(request: Request, given: UserIn, caller: Admitter, context: Context) -> Response:
    """Make somebody a member of this org. An account of another org, with its name and password: by an OWNER only."""
    once = Once(request, NOUN, given.model_dump(exclude={"password"}))
    hashed = await hash_password(given.password.get_secret_value()) if given.password else None
    async with context.beyond(caller) as session:
        made = await once.made_before(session)
        if made is not None:
            row = await users.get_user(session, made)
            if row is None:
                raise once.gone()
            return answer(shape_of(row), 201)
        added = await users.add_user(
            session,
            email=given.email,
            name=given.name,
            role=given.role,
            password_hash=hashed,
            by=caller.role,
            act=act_of(request, caller),
        )
        if isinstance(added, Refusal):
            raise _refused(added)
        await once.note(session, added["id"])
    return answer(shape_of(added), 201)


@router.get("", responses=shows(Page[User]))
async def list_users(query: Annotated[PageQuery, Query()], caller: Admitter, context: Context) -> Response:
    """The members of this org, oldest account first."""
    place = ListPlace("users", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await users.list_users(session, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(shapes.page([shape_of(row) for row in page.rows], limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{user_id}", dependencies=[Depends(no_query)], responses=shows(User), openapi_extra=ADMITTERS)
async def get_user(user_id: str, caller: Known, context: Context) -> Response:
    """A member of this org. Whoever may not see them all sees themselves."""
    wanted = id_in_path(user_id, NOUN)
    if not caller.may(Action.ADMIT) and not _is_self(caller, wanted):
        raise forbidden(caller, Action.ADMIT)
    async with context.tenant(caller) as session:
        row = await users.get_user(session, wanted)
    if row is None:
        raise not_found(NOUN)
    return answer(shape_of(row))


@router.patch("/{user_id}", dependencies=[Depends(no_query)], responses=shows(User), openapi_extra=ADMITTERS)
async def change_user(user_id: str, request: Request, given: UserChangeIn, caller: Known, context: Context) -> Response:
    """Change the fields given. One's own name and, knowing it, password anybody changes; another's, an OWNER only."""
    wanted = id_in_path(user_id, NOUN)
    is_self = _is_self(caller, wanted)
    if not caller.may(Action.ADMIT) and not (is_self and given.is_personal):
        raise forbidden(caller, Action.ADMIT)
    if given.password is not None and not is_self and caller.role != Role.OWNER:
        raise Problem(403, "A password is changed by its user, or by an OWNER.")
    token = token_of(request) if is_self else None
    if given.password is not None and token is not None:
        address, act = client_address(request), act_of(request, caller)
        await prove_password(context, caller, token, given.current_password, address=address, act=act)
    change = UserChange(
        name=given.name,
        role=given.role,
        suspended=given.suspended,
        password_hash=await hash_password(given.password.get_secret_value()) if given.password else None,
    )
    async with context.beyond(caller) as session:
        row = await users.change_user(
            session, wanted, change, by=caller.role, act=act_of(request, caller), is_self=is_self, token=token
        )
        if isinstance(row, Refusal):
            raise _refused(row)
    return answer(shape_of(row))


@router.delete("/{user_id}", status_code=204, dependencies=[Depends(no_query)])
async def remove_user(user_id: str, request: Request, caller: Admitter, context: Context) -> Response:
    """Take the membership away. The account stays, and so does all that it did."""
    wanted = id_in_path(user_id, NOUN)
    async with context.beyond(caller) as session:
        refusal = await users.remove_user(session, wanted, by=caller.role, act=act_of(request, caller))
        if refusal is not None:
            raise _refused(refusal)
    return Response(status_code=204)
