"""Endpoints: make, read, change, take away. The secret is in the answer that makes one, and nowhere else."""

from typing import Annotated, cast
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.endpoint_input import (
    EndpointChange,
    EndpointIn,
    HeaderLines,
    check_broker,
    check_channel,
    check_key,
    check_kind,
    is_hidden,
    kept_apprise,
    kept_headers,
    kept_verify,
)
from redrive.api.endpoint_view import endpoint_view
from redrive.api.once import Once
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import PageQuery, id_in_path, no_query
from redrive.api.schemas.base import IDEMPOTENT, Page, shows
from redrive.api.schemas.endpoints import Endpoint, NewEndpoint
from redrive.core.broker import RABBITMQ_KIND
from redrive.core.channels import APPRISE_KIND
from redrive.core.redact import REDACTED
from redrive.store import endpoints, pausing
from redrive.store.audit import Act
from redrive.store.db import Record, Session
from redrive.store.endpoints import EndpointSpec, NameTaken, lock_endpoint
from redrive.store.hooks import Verification
from redrive.store.keys import Caller
from redrive.store.policies import get_policy

SCOPE = "endpoint"

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], dependencies=SCHEMES)


def _name_taken() -> Problem:
    return Problem(409, "Another endpoint has this name. Choose another one, or change that endpoint.")


@router.post(
    "",
    status_code=201,
    responses=shows(NewEndpoint, 201),
    openapi_extra=IDEMPOTENT,
    dependencies=[Depends(no_query)],
)
async def create_endpoint(request: Request, given: EndpointIn, caller: Manager, context: Context) -> Response:
    """Make an endpoint. This answer alone shows its `secret`; a repetition under the same Idempotency-Key does not."""
    once = Once(request, SCOPE, given.model_dump(exclude={"verify": {"secret"}, "apprise_url": True}))
    if given.kind == RABBITMQ_KIND:
        check_broker(context.broker_org, caller.org_name)
    check_channel(given.kind, has_mail=context.has_mail, has_apprise=context.judge_service is not None)
    spec = given.spec(context.rules)
    await _judge_service(context, spec.apprise_url)
    try:
        async with context.tenant(caller) as session:
            made = await once.made_before(session)
            if made is not None:
                return answer(endpoint_view(request, context, caller, await _made_before(session, made)), 201)
            await _check_number(session, caller)
            row, secret = await _create(context, session, spec, act_of(request, caller))
            await once.note(session, row["id"])
    except NameTaken:
        raise _name_taken() from None
    return answer(endpoint_view(request, context, caller, row) | {"secret": secret}, 201)


async def _judge_service(context: ApiContext, apprise_url: str | None) -> None:
    """Refuse a URL that apprise itself does not understand, or that leads where nothing may be sent."""
    if apprise_url is None:
        return
    check_channel(APPRISE_KIND, has_mail=context.has_mail, has_apprise=context.judge_service is not None)
    why = await context.judge_service(apprise_url) if context.judge_service is not None else None
    if why is not None:
        raise invalid(FieldError(("body", "apprise_url"), why))


async def _made_before(session: Session, endpoint_id: UUID) -> Record:
    row = await endpoints.get_endpoint(session, endpoint_id)
    if row is None:
        raise Problem(409, "The endpoint that was made under this Idempotency-Key has been deleted.")
    return row


async def _create(context: ApiContext, session: Session, spec: EndpointSpec, act: Act) -> tuple[Record, str]:
    await _check_policy(session, spec.policy)
    return await context.endpoints.create(session, spec, act)


async def _check_number(session: Session, caller: Caller) -> None:
    """Two at the same moment may both be the last one: a limit that is there to keep order, not to count exactly."""
    most = caller.limits.max_endpoints
    if await endpoints.count_endpoints(session) >= most:
        message = f"This org may have {most} endpoints, and has. Delete one, or have an OWNER raise max_endpoints"
        raise invalid(FieldError(("body",), message))


async def _check_policy(session: Session, name: object) -> None:
    if isinstance(name, str) and await get_policy(session, name) is None:
        raise invalid(FieldError(("body", "policy"), "There is no such policy"))


@router.get("", responses=shows(Page[Endpoint]))
async def list_endpoints(
    request: Request, query: Annotated[PageQuery, Query()], caller: Reader, context: Context
) -> Response:
    """Endpoints, oldest first."""
    place = ListPlace("endpoints", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await endpoints.list_endpoints(session, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [endpoint_view(request, context, caller, row) for row in page.rows]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=page.total))


@router.get("/{endpoint_id}", responses=shows(Endpoint), dependencies=[Depends(no_query)])
async def get_endpoint(endpoint_id: str, request: Request, caller: Reader, context: Context) -> Response:
    """One endpoint, without its secret."""
    wanted = _id(endpoint_id)
    async with context.tenant(caller) as session:
        row = await endpoints.get_endpoint(session, wanted)
    if row is None:
        raise not_found("endpoint")
    return answer(endpoint_view(request, context, caller, row))


@router.patch("/{endpoint_id}", responses=shows(Endpoint), dependencies=[Depends(no_query)])
async def change_endpoint(
    endpoint_id: str, request: Request, given: EndpointChange, caller: Manager, context: Context
) -> Response:
    """Change the fields given. Enabling an endpoint lets its held tasks go on."""
    wanted = _id(endpoint_id)
    changes = given.changes(context.rules)
    if given.apprise_url is not None and not is_hidden(given.apprise_url):
        await _judge_service(context, given.apprise_url)
    try:
        async with context.tenant(caller) as session:
            await _check_policy(session, changes.get("policy"))
            await _judge(context, session, caller, wanted, changes)
            row = await context.endpoints.update(session, wanted, changes, act_of(request, caller))
    except NameTaken:
        raise _name_taken() from None
    if row is None:
        raise not_found("endpoint")
    if changes.get("disabled") is False:
        await pausing.release(context.engine_db, caller.org_id, context.clock)
    return answer(endpoint_view(request, context, caller, row))


async def _judge(
    context: ApiContext, session: Session, caller: Caller, endpoint_id: UUID, changes: dict[str, object]
) -> None:
    """Refuse what its kind cannot have. Whoever sends an endpoint back as it was shown keeps what was not shown."""
    # Locked: a value that somebody else changes at this moment must not come back.
    row = await lock_endpoint(session, endpoint_id)
    if row is None:
        return
    check_kind(row["kind"], changes)
    stored = context.endpoints.spec_of(row)
    before = stored.exchange, stored.routing_key
    after = changes.get("exchange", stored.exchange), changes.get("routing_key", stored.routing_key)
    if before != after:
        check_broker(context.broker_org, caller.org_name)
        check_key(*cast(tuple[str | None, str | None], after))
    given = cast(HeaderLines, changes.get("headers", ()))
    if any(value == REDACTED for _, value in given):
        changes["headers"] = kept_headers(given, stored.headers)
    if "apprise_url" in changes:
        url = cast(str | None, changes["apprise_url"])
        changes["apprise_url"] = kept_apprise(url, stored.apprise_url, row["apprise_service"])
    if "verify" in changes:
        changes["verify"] = kept_verify(cast(Verification | None, changes["verify"]), stored.verify)


@router.delete("/{endpoint_id}", status_code=204, dependencies=[Depends(no_query)])
async def delete_endpoint(endpoint_id: str, request: Request, caller: Manager, context: Context) -> Response:
    """Take an endpoint away. Its open tasks die with that reason, each in front of a person."""
    wanted = _id(endpoint_id)
    async with context.tenant(caller) as session:
        if not await endpoints.delete_endpoint(session, wanted, act_of(request, caller)):
            raise not_found("endpoint")
    await pausing.release(context.engine_db, caller.org_id, context.clock)
    return Response(status_code=204)


def _id(text: str) -> UUID:
    return id_in_path(text, "endpoint")
