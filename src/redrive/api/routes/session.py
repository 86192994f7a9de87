"""Who am I: signing in and out, and which org a session is in. A browser keeps it as a cookie."""

from fastapi import APIRouter, Depends, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Authenticator, Known
from redrive.api.browser import client_address, give_cookie, refuse_foreign_pages, take_cookie, token_of
from redrive.api.context import ApiContext, Context, act_of, correlation_of
from redrive.api.login import Login, admitted
from redrive.api.people_input import LoginIn, SwitchIn
from redrive.api.problems import Problem, not_found, suspended
from redrive.api.queries import no_query
from redrive.api.schemas.base import shows
from redrive.api.schemas.people import Who
from redrive.core.permissions import Action
from redrive.store import audit, orgs, sessions
from redrive.store.keys import Caller, Kind
from redrive.store.orgs import OrgFacts
from redrive.store.paging import MAX_PAGE_ROWS
from redrive.store.users import list_memberships

router = APIRouter(tags=["session"], dependencies=SCHEMES)

_LINK_REFUSED = {401: "used", 403: "suspended"}


def _own_token(request: Request, caller: Caller) -> str:
    token = token_of(request)
    if caller.kind == Kind.KEY or token is None:
        raise Problem(403, "This is for sessions of a browser. A key names another org in the header X-Redrive-Org.")
    return token


def _login(request: Request, context: ApiContext) -> Login:
    return Login(
        context,
        address=client_address(request),
        correlation_id=correlation_of(request),
        old_token=token_of(request),
    )


def _forget_old(request: Request) -> None:
    """The session that the browser had has ended with the sign-in."""
    if (token := token_of(request)) is not None:
        _authenticator(request).forget_session(token)


async def _who(context: ApiContext, caller: Caller) -> shapes.Shape:
    return {
        "kind": caller.kind,
        "id": caller.id,
        "name": caller.name,
        "org": {"id": caller.org_id, "name": caller.org_name},
        "role": caller.role,
        "scope": caller.scope,
        "permissions": [action for action in Action if caller.may(action)],
        "orgs": await _orgs(context, caller),
    }


async def _orgs(context: ApiContext, caller: Caller) -> list[shapes.Shape]:
    """Where the caller may be, and as what; of very many the oldest, and where they are now."""
    if caller.may(Action.OWN):
        page = await orgs.list_orgs(context.engine_db, only=None, limit=MAX_PAGE_ROWS)
        names = {row["org_id"]: row["name"] for row in page.rows} | {caller.org_id: caller.org_name}
        return [{"id": org_id, "name": name, "role": caller.role} for org_id, name in names.items()]
    if caller.kind == Kind.USER:
        rows = await list_memberships(context.engine_db, caller.id)
        active = [row for row in rows if row["suspended_at"] is None]
        return [{"id": row["org_id"], "name": row["name"], "role": row["role"]} for row in active]
    return [{"id": caller.org_id, "name": caller.org_name, "role": caller.role}]


@router.post("/v1/session", dependencies=[Depends(no_query)], responses=shows(Who))
async def sign_in(request: Request, given: LoginIn, context: Context) -> Response:
    """Sign in with e-mail and password: a session's cookie. After five failures one has to wait, longer each time."""
    refuse_foreign_pages(dict(request.scope["headers"]), unless_silent=True)
    token = await _login(request, context).by_password(given)
    _forget_old(request)
    response = answer(await _who(context, await admitted(context, token)))
    give_cookie(response, request, token)
    return response


@router.get("/v1/session", dependencies=[Depends(no_query)], responses=shows(Who))
async def who_am_i(caller: Known, context: Context) -> Response:
    """Who the key or the session stands for, and what they may do."""
    return answer(await _who(context, caller))


@router.patch("/v1/session", dependencies=[Depends(no_query)], responses=shows(Who))
async def switch_org(request: Request, given: SwitchIn, caller: Known, context: Context) -> Response:
    """Go on in another org, by its id or name."""
    token = _own_token(request, caller)
    org = await _reachable(context, caller, given.org)
    async with context.beyond(caller) as session:
        await sessions.move_session(session, token, org.org_id)
        after = {"org": org.name}
        await audit.record(session, act_of(request, caller), "session.switch", caller.kind, caller.id, after=after)
    _authenticator(request).forget_session(token)
    return answer(await _who(context, await admitted(context, token)))


async def _reachable(context: ApiContext, caller: Caller, called: str) -> OrgFacts:
    org = await orgs.find_facts(context.engine_db, called)
    if org is None:
        raise not_found("org")
    if caller.may(Action.OWN) or org.org_id == caller.org_id:
        return org
    rows = await list_memberships(context.engine_db, caller.id) if caller.kind == Kind.USER else []
    membership = next((row for row in rows if row["org_id"] == org.org_id), None)
    if membership is None:
        raise not_found("org")
    if membership["suspended_at"] is not None:
        raise suspended()
    return org


@router.delete("/v1/session", status_code=204, dependencies=[Depends(no_query)])
async def sign_out(request: Request, caller: Known, context: Context) -> Response:
    """End this session."""
    token = _own_token(request, caller)
    async with context.beyond(caller) as session:
        await sessions.end_session(session, token)
        await audit.record(session, act_of(request, caller), "session.logout", caller.kind, caller.id)
    _authenticator(request).forget_session(token)
    response = Response(status_code=204)
    take_cookie(response, request)
    return response


@router.get("/login", include_in_schema=False)
async def use_login_link(request: Request, context: Context, token: str = "") -> Response:
    """A sign-in link: once, within 15 minutes; then the first page. A browser is sent to a page that tells why not."""
    try:
        made = await _login(request, context).by_link(token)
        _forget_old(request)
        await admitted(context, made)
    except Problem as problem:
        why = _LINK_REFUSED.get(problem.status)
        if why is None or "text/html" not in request.headers.get("accept", ""):
            raise
        return Response(status_code=303, headers={"location": f"/sign-in?link={why}", "referrer-policy": "no-referrer"})
    # The address holds a token, though one that is used up: it goes nowhere from here.
    response = Response(status_code=303, headers={"location": "/", "referrer-policy": "no-referrer"})
    give_cookie(response, request, made)
    return response


def _authenticator(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator
