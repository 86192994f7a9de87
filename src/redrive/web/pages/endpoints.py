"""Endpoints: how each is doing, what was delivered to it, and everything a person does with one."""

from dataclasses import dataclass
from uuid import UUID

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from redrive.api import endpoint_shapes
from redrive.api.context import ApiContext, Context
from redrive.api.cursors import ListPlace
from redrive.api.endpoint_view import endpoint_view
from redrive.api.problems import not_found
from redrive.api.queries import id_in_path
from redrive.api.shapes import Shape
from redrive.core.broker import RABBITMQ_KIND
from redrive.core.channels import APPRISE_KIND, MAIL_KIND, SUGGESTED_TYPES
from redrive.core.inbound import Scheme
from redrive.store import deliveries, endpoints, pausing
from redrive.store.db import Record, Session
from redrive.store.endpoint_health import EndpointHealth, health_of, health_of_many
from redrive.store.endpoint_history import history_of
from redrive.store.endpoint_names import endpoint_called, offered_names
from redrive.store.endpoint_states import EndpointState, get_state, get_states
from redrive.store.endpoints import RELAY, get_endpoint
from redrive.store.lanes import Lane, list_lanes
from redrive.store.pausing import Pause
from redrive.store.policies import list_policies
from redrive.store.workers import list_workers
from redrive.web.endpoint_chart import drawn_history
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS, operations_to_show
from redrive.web.render import render
from redrive.web.search import MAX_VALUE_CHARS
from redrive.web.visitor import PageRoute, Visitor

PATH = "/endpoints"
HTTP_KIND = "http"
DELIVERIES_SHOWN = 25
LANES_SHOWN = 10
POLICIES_OFFERED = 100
STATUSES = {
    "": "All",
    "pending": "Pending",
    "delivered": "Delivered",
    "failed": "Not worth retrying",
    "dead_letter": "Dead letters",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class EndpointRow:
    shape: Shape
    health: EndpointHealth
    state: EndpointState
    hubs: int | None


@dataclass(frozen=True, slots=True)
class EndpointsPage:
    frame: Frame
    endpoints: list[EndpointRow]
    total: int | None
    next_href: str | None
    first_href: str | None
    names: list[str]
    unknown: str | None  # what was searched for in vain


@dataclass(frozen=True, slots=True)
class EndpointPage:
    frame: Frame
    shape: Shape
    health: EndpointHealth
    state: EndpointState
    hubs: int | None  # of a relay: connected to this process
    lacks_worker: bool  # none that is at work can serve its kind: no broker, no mail server, no apprise
    chart: Markup | None  # None where there was no try for a day
    pause: Pause
    lanes: list[Lane]
    more_lanes_href: str | None
    first_lanes_href: str | None
    deliveries: list[Shape]
    status: str
    next_href: str | None
    first_href: str | None
    operations: list[Shape]

    statuses = STATUSES

    @property
    def path(self) -> str:
        return f"{PATH}/{self.shape['id']}"


@dataclass(frozen=True, slots=True)
class EndpointFormPage:
    """`shape` is None for one that is being made."""

    frame: Frame
    shape: Shape | None
    policies: list[str]
    kind: str
    offers_broker: bool = False
    offers_mail: bool = False
    offers_apprise: bool = False

    path = PATH
    suggested = SUGGESTED_TYPES
    schemes = tuple(Scheme)


@router.get(PATH)
async def endpoints_page(request: Request, visitor: Visitor, context: Context) -> Response:
    given = request.query_params.get("cursor")
    called = request.query_params.get("q", "").strip()[:MAX_VALUE_CHARS]
    place = ListPlace("page endpoints", visitor.org_id, {})
    async with context.tenant(visitor) as session:
        if called and (found := await _called(session, called)) is not None:
            return Response(status_code=303, headers={"location": f"{PATH}/{found}"})
        frame = await load_frame(session, visitor, context, PATH)
        page = await endpoints.list_endpoints(session, limit=PAGE_ROWS, after=context.cursors.read(place, given))
        ids = [row["id"] for row in page.rows]
        health, states = await health_of_many(session, ids, context.clock), await get_states(session, ids)
        names = await offered_names(session)
    shown = EndpointsPage(
        frame=frame,
        endpoints=[
            EndpointRow(
                endpoint_view(request, context, visitor, row),
                health[row["id"]],
                states[row["id"]],
                context.hubs_of(row["kind"], row["id"]),
            )
            for row in page.rows
        ],
        total=page.total,
        next_href=f"{PATH}?cursor={context.cursors.write(place, page.next_key)}" if page.next_key else None,
        first_href=PATH if given else None,
        names=names,
        unknown=called or None,
    )
    return render(request, "endpoints.html", shown)


async def _called(session: Session, called: str) -> UUID | None:
    """One that is there, by its name or id."""
    found = await endpoint_called(session, called) if called.isprintable() else None
    return found if found is not None and await get_endpoint(session, found) is not None else None


@router.get(f"{PATH}/new")
async def new_endpoint_page(request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        offered = await _policies(session)
    offers_broker = context.broker_org is not None and context.broker_org == visitor.org_name
    offers = {
        RABBITMQ_KIND: offers_broker,
        MAIL_KIND: context.has_mail,
        APPRISE_KIND: context.judge_service is not None,
    }
    asked = request.query_params.get("kind", HTTP_KIND)
    kind = asked if asked == RELAY or offers.get(asked) else HTTP_KIND
    return render(request, "endpoint_form.html", EndpointFormPage(frame, None, offered, kind, *offers.values()))


@router.get(f"{PATH}/{{endpoint_id}}/edit")
async def edit_endpoint_page(endpoint_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        row = await _endpoint(session, endpoint_id)
        offered = await _policies(session)
    shape = endpoint_view(request, context, visitor, row)
    return render(request, "endpoint_form.html", EndpointFormPage(frame, shape, offered, row["kind"]))


async def _lacks_worker(session: Session, context: ApiContext, kind: str) -> bool:
    """Whether its kind needs what not every worker has, and none that is at work has it."""
    if kind not in (RABBITMQ_KIND, MAIL_KIND, APPRISE_KIND):
        return False
    workers = await list_workers(session, context.clock)
    return not any(kind in worker.queues and not worker.is_silent for worker in workers)


async def _policies(session: Session) -> list[str]:
    return [row["name"] for row in (await list_policies(session))[:POLICIES_OFFERED]]


async def _endpoint(session: Session, text: str) -> Record:
    row = await get_endpoint(session, id_in_path(text, "endpoint"))
    if row is None:
        raise not_found("endpoint")
    return row


@router.get(f"{PATH}/{{endpoint_id}}")
async def endpoint_page(endpoint_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    status = request.query_params.get("status", "")
    status = status if status in STATUSES else ""
    given = request.query_params.get("cursor")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        row = await _endpoint(session, endpoint_id)
        place = ListPlace(f"page deliveries {row['id']}", visitor.org_id, {"status": status})
        page = await deliveries.list_deliveries(
            session,
            row["id"],
            status=status or None,
            limit=DELIVERIES_SHOWN,
            after=context.cursors.read(place, given),
        )
        pause = await pausing.endpoint_pause(session, row["id"], context.clock)
        state = await get_state(session, row["id"])
        assert pause is not None
        assert state is not None
        history = await history_of(session, row["id"], context.clock)
        lanes_place = ListPlace(f"page lanes {row['id']}", visitor.org_id, {})
        lanes_after = request.query_params.get("lanes")
        after = context.cursors.read(lanes_place, lanes_after)
        lanes = await list_lanes(session, row["id"], limit=LANES_SHOWN, after=after)
        more_lanes = context.cursors.write(lanes_place, lanes.next_key) if lanes.next_key else None
        path = f"{PATH}/{row['id']}?" + (f"status={status}&" if status else "")
        shown = EndpointPage(
            frame=frame,
            shape=endpoint_view(request, context, visitor, row),
            health=await health_of(session, row["id"], context.clock),
            state=state,
            hubs=context.hubs_of(row["kind"], row["id"]),
            lacks_worker=await _lacks_worker(session, context, row["kind"]),
            chart=drawn_history(history.points, frame.now) if history.points else None,
            pause=pause,
            lanes=lanes.lanes,
            more_lanes_href=f"{PATH}/{row['id']}?lanes={more_lanes}#order" if more_lanes else None,
            first_lanes_href=f"{PATH}/{row['id']}#order" if lanes_after else None,
            deliveries=[endpoint_shapes.delivery(each) for each in page.rows],
            status=status,
            next_href=f"{path}cursor={context.cursors.write(place, page.next_key)}" if page.next_key else None,
            first_href=path.rstrip("?&") if given else None,
            operations=await operations_to_show(session, request, visitor),
        )
    return render(request, "endpoint.html", shown)
