"""What a person does with an endpoint: pause, disable, rotate its secret, test it; and what was delivered to it."""

import json
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from redrive.api import endpoint_shapes, shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of, correlation_of
from redrive.api.cursors import ListPlace
from redrive.api.endpoint_view import endpoint_view
from redrive.api.meters import check_room, check_size
from redrive.api.once import key_of
from redrive.api.problems import Problem, not_found
from redrive.api.queries import BecauseIn, PageQuery, Text, id_in_path, no_query
from redrive.api.schemas.base import IDEMPOTENT, Page, shows
from redrive.api.schemas.endpoint_actions import Delivery, SecretShown, SentTest
from redrive.api.schemas.endpoints import Endpoint
from redrive.api.schemas.pausing import EndpointPauseShown
from redrive.core.ids import id_of_key
from redrive.store import deliveries, events, pausing
from redrive.store.audit import Act
from redrive.store.endpoints import DEFAULT_OVERLAP_S, MAX_OVERLAP_S, get_endpoint
from redrive.store.keys import Caller
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope

TEST_EVENT_TYPE = "redrive.test"
TEST_PAYLOAD: dict[str, object] = {"test": True}

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], dependencies=SCHEMES)


class RotateIn(BaseModel):
    """`overlap_s`: how long the secret before signs too."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"overlap_s": 86400}]})

    overlap_s: Annotated[float, Field(ge=0, le=MAX_OVERLAP_S, allow_inf_nan=False)] = DEFAULT_OVERLAP_S


class EndpointTestIn(BaseModel):
    """What to send. Any JSON may be the payload."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"event_type": TEST_EVENT_TYPE, "payload": {"test": True}}]},
    )

    event_type: Text = TEST_EVENT_TYPE
    payload: Any = Field(default_factory=lambda: TEST_PAYLOAD)


class DeliveriesQuery(PageQuery):
    status: Literal["pending", "delivered", "failed", "dead_letter"] | None = None


@router.post("/{endpoint_id}/pause", dependencies=[Depends(no_query)], responses=shows(EndpointPauseShown))
async def pause_endpoint(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: BecauseIn | None = None
) -> Response:
    """Hold its tasks as they fall due: no try is spent, nothing is lost, events for it are still accepted."""
    wanted = _id(endpoint_id)
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        await pausing.pause(session, PauseScope.ENDPOINT, act, context.clock, wanted)
    return answer(await _pause(caller, context, wanted))


@router.post("/{endpoint_id}/resume", dependencies=[Depends(no_query)], responses=shows(EndpointPauseShown))
async def resume_endpoint(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: BecauseIn | None = None
) -> Response:
    """Let its held tasks go on where they stood. Of many, the workers release the rest after this answer (`held`)."""
    wanted = _id(endpoint_id)
    act = act_of(request, caller, given.because if given else None)
    async with context.tenant(caller) as session:
        await pausing.resume(session, PauseScope.ENDPOINT, act, context.clock, wanted)
    await pausing.release(context.engine_db, caller.org_id, context.clock)
    return answer(await _pause(caller, context, wanted))


async def _pause(caller: Caller, context: ApiContext, endpoint_id: UUID) -> shapes.Shape:
    async with context.tenant(caller) as session:
        state = await pausing.endpoint_pause(session, endpoint_id, context.clock)
    if state is None:
        raise not_found("endpoint")
    return endpoint_shapes.pause(state)


@router.post("/{endpoint_id}/disable", dependencies=[Depends(no_query)], responses=shows(Endpoint))
async def disable_endpoint(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: BecauseIn | None = None
) -> Response:
    """Disable it, as `PATCH` with `disabled` does; `because` is shown as its `disabled_reason`."""
    act = act_of(request, caller, given.because if given else None)
    return await _set_disabled(request, _id(endpoint_id), True, act, caller, context)


@router.post("/{endpoint_id}/enable", dependencies=[Depends(no_query)], responses=shows(Endpoint))
async def enable_endpoint(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: BecauseIn | None = None
) -> Response:
    """Enable it. Its held tasks go on where they stood."""
    act = act_of(request, caller, given.because if given else None)
    return await _set_disabled(request, _id(endpoint_id), False, act, caller, context)


async def _set_disabled(
    request: Request, endpoint_id: UUID, disabled: bool, act: Act, caller: Caller, context: ApiContext
) -> Response:
    async with context.tenant(caller) as session:
        row = await context.endpoints.set_disabled(session, endpoint_id, disabled, act)
    if row is None:
        raise not_found("endpoint")
    if not disabled:
        await pausing.release(context.engine_db, caller.org_id, context.clock)
    return answer(endpoint_view(request, context, caller, row))


@router.post("/{endpoint_id}/rotate-secret", dependencies=[Depends(no_query)], responses=shows(SecretShown))
async def rotate_secret(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: RotateIn | None = None
) -> Response:
    """Make a new secret; this answer alone shows it. Deliveries carry both signatures while the old one is valid."""
    asked = given or RotateIn()
    async with context.tenant(caller) as session:
        rotated = await context.endpoints.rotate_secret(
            session, _id(endpoint_id), asked.overlap_s, act_of(request, caller), context.clock
        )
    if rotated is None:
        raise not_found("endpoint")
    row, secret = rotated
    return answer({"id": row["id"], "secret": secret, "previous_valid_until": row["previous_secret_until"]})


@router.post("/{endpoint_id}/rotate-hook", dependencies=[Depends(no_query)], responses=shows(Endpoint))
async def rotate_hook(endpoint_id: str, request: Request, caller: Manager, context: Context) -> Response:
    """Give a relay another `hook_url`. The one before is unknown from this answer on: tell the sender the new one."""
    wanted = _id(endpoint_id)
    async with context.tenant(caller) as session:
        row = await context.endpoints.rotate_hook(session, wanted, act_of(request, caller))
        if row is None and await get_endpoint(session, wanted) is None:
            raise not_found("endpoint")
    if row is None:
        raise Problem(409, "Only a relay has an address that webhooks come in at. Make an endpoint of kind relay.")
    return answer(endpoint_view(request, context, caller, row))


@router.post(
    "/{endpoint_id}/test",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=shows(SentTest, 202, "Queued"),
    openapi_extra=IDEMPOTENT,
)
async def send_test(
    endpoint_id: str, request: Request, caller: Manager, context: Context, given: EndpointTestIn | None = None
) -> Response:
    """Send an event to this endpoint and no other: signed and delivered as every event is, but tried once."""
    wanted = _id(endpoint_id)
    asked = given or EndpointTestIn()
    body = json.dumps(asked.payload, ensure_ascii=False).encode()
    check_size(caller, body)
    check_room(caller)
    event = events.NewEvent(
        caller.org_id,
        _id_of_test(request, caller, wanted),
        asked.event_type,
        body,
        endpoint_id=wanted,
        correlation_id=correlation_of(request),
        submitted_by=caller.actor,
    )
    # Only the engine's role may accept events; the org is named for the audit.
    async with context.engine_db.tenant(caller.org_id, caller.role) as session:
        if await get_endpoint(session, wanted) is None:
            raise not_found("endpoint")
        receipt = await events.accept_test(session, event, act_of(request, caller), context.clock)
    if receipt.verdict == "conflict":
        raise Problem(409, "This Idempotency-Key was used for another test of this endpoint.")
    if receipt.verdict == "no_endpoint":  # deleted a moment ago
        raise not_found("endpoint")
    return answer({"event_id": event.id, "status": receipt.status}, 202)


def _id_of_test(request: Request, caller: Caller, endpoint_id: UUID) -> UUID:
    """The same Idempotency-Key is the same test. A line break cannot stand in a producer's key: the two never meet."""
    key = key_of(request)
    return new_id() if key is None else id_of_key(caller.org_id, "event", f"test\n{endpoint_id}\n{key}")


@router.get("/{endpoint_id}/hub", include_in_schema=False)
async def hub_of_endpoint(endpoint_id: str, caller: Manager) -> Response:
    """For those who come without a WebSocket; with one, hub_door is asked."""
    raise Problem(426, "A hub connects here by WebSocket: run `redrive hub`.", headers=(("upgrade", "websocket"),))


@router.get("/{endpoint_id}/deliveries", responses=shows(Page[Delivery]))
async def list_deliveries(
    endpoint_id: str, query: Annotated[DeliveriesQuery, Query()], caller: Reader, context: Context
) -> Response:
    """What was to be delivered to it, newest first. With a `status` a page may be short and still lead on."""
    wanted = _id(endpoint_id)
    place = ListPlace(f"deliveries {wanted}", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        if await get_endpoint(session, wanted) is None:
            raise not_found("endpoint")
        page = await deliveries.list_deliveries(session, wanted, status=query.status, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    data = [endpoint_shapes.delivery(row) for row in page.rows]
    return answer(shapes.page(data, limit=query.limit, cursor=cursor, total=None))


def _id(text: str) -> UUID:
    return id_in_path(text, "endpoint")
