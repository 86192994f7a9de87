"""Operations: bulk actions on many tasks. A list with live progress, and each with its course and its items."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Request, Response

from redrive.api import operation_shapes
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.operation_shapes import Shape
from redrive.api.problems import not_found
from redrive.api.queries import id_in_path
from redrive.core.operations import ENDED_STATES, OperationState
from redrive.store import operations
from redrive.store.actors import ActorName, actor_names
from redrive.store.db import Record, Session
from redrive.store.endpoint_names import endpoint_names
from redrive.store.keys import Caller
from redrive.store.operations import MAX_COUNTED
from redrive.store.orgs import as_id
from redrive.web.actors import shown_actor
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS
from redrive.web.operation_words import filter_words, headline, list_address, stages_of
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/operations"
ACTIVE = "active"  # of any state that is no end
STATES = {ACTIVE: "Not ended"} | {state.value: state.value.capitalize() for state in OperationState}
ITEM_STATES = {"waiting": "Waiting", "sent": "Under way", "succeeded": "Succeeded", "failed": "Failed"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class OperationsPage:
    frame: Frame
    state: str | None
    problem: str | None
    operations: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None

    states = STATES
    counted_to = MAX_COUNTED


@dataclass(frozen=True, slots=True)
class OperationPage:
    frame: Frame
    operation: Shape
    items: list[Shape]
    item_state: str | None
    item_counts: dict[str, int]
    next_href: str | None
    first_href: str | None

    item_states = ITEM_STATES

    @property
    def total(self) -> int:
        """Of the items in this state."""
        return sum(self.item_counts.values()) if self.item_state is None else self.item_counts[self.item_state]

    @property
    def path(self) -> str:
        return f"{PATH}/{self.operation['id']}"

    @property
    def has_ended(self) -> bool:
        return self.operation["finished_at"] is not None


@router.get(PATH)
async def operations_page(request: Request, visitor: Visitor, context: Context) -> Response:
    asked = request.query_params.get("state") or None
    state = asked if asked in STATES else None
    place = ListPlace("page operations", visitor.org_id, {"state": state})
    given = request.query_params.get("cursor")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        after = context.cursors.read(place, given)
        wanted = {"active": True} if state == ACTIVE else {"state": state}
        page = await operations.list_operations(session, **wanted, limit=PAGE_ROWS, after=after)
        endpoints = await _endpoints_in(session, page.rows)
    names = await actor_names(context.engine_db, visitor.org_id, [row["actor"] for row in page.rows])
    shown = OperationsPage(
        frame=frame,
        state=state,
        problem=f"“{asked}” is no state of an operation: all are shown." if asked and state is None else None,
        operations=[_shown(row, names, endpoints, visitor) for row in page.rows],
        total=page.total,
        next_href=_address(PATH, state, context.cursors.write(place, page.next_key)) if page.next_key else None,
        first_href=_address(PATH, state) if given else None,
    )
    return render(request, "operations.html", shown)


@router.get(PATH + "/{operation_id}")
async def operation_page(operation_id: str, request: Request, visitor: Visitor, context: Context) -> Response:
    wanted = id_in_path(operation_id, "operation")
    asked = request.query_params.get("state")
    state = asked if asked in ITEM_STATES else None
    place = ListPlace(f"page operation-items {wanted}", visitor.org_id, {"state": state})
    given = request.query_params.get("cursor")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        row = await operations.get_operation(session, wanted)
        if row is None:
            raise not_found("operation")
        after = context.cursors.read(place, given)
        page = await operations.list_items(session, wanted, state=state, limit=PAGE_ROWS, after=after)
        facts = await operations.item_facts(session, [item["task_id"] for item in page.rows])
        endpoints = await _endpoints_in(session, [row], [fact["endpoint_id"] for fact in facts.values()])
    names = await actor_names(context.engine_db, visitor.org_id, [row["actor"]])
    path = f"{PATH}/{wanted}"
    shown = OperationPage(
        frame=frame,
        operation=_shown(row, names, endpoints, visitor),
        items=[_item(item, facts.get(item["task_id"]), endpoints) for item in page.rows],
        item_state=state,
        item_counts=_item_counts(row),
        next_href=_address(path, state, context.cursors.write(place, page.next_key)) if page.next_key else None,
        first_href=_address(path, state) if given else None,
    )
    return render(request, "operation.html", shown)


def _shown(row: Record, names: Mapping[str, ActorName], endpoints: dict[UUID, str], visitor: Caller) -> Shape:
    shape = operation_shapes.operation(row)
    return shape | {
        "actor": shown_actor(row["actor"], names, visitor),
        "headline": headline(row["action"], row["subject"], row["total"], row["collected"]),
        "filter_words": filter_words(shape["filter"], endpoints),
        "list_href": list_address(row["subject"], shape["filter"]),
        "stages": stages_of(row),
        "is_active": row["finished_at"] is None and row["state"] not in ENDED_STATES,
    }


def _item(item: Record, fact: Record | None, endpoints: dict[UUID, str]) -> Shape:
    shape = operation_shapes.item(item)
    if fact is None:
        return shape | {"event_type": None}
    return shape | {
        "event_type": fact["event_type"],
        "endpoint": endpoints.get(fact["endpoint_id"]),
        "task_state": fact["state"],
        "error_message": fact["error_message"],
        "category": fact["category"],
    }


def _item_counts(row: Record) -> dict[str, int]:
    """Out of the sums: a million items are not counted one by one."""
    return {
        "waiting": row["total"] - row["dispatched"],
        "sent": row["dispatched"] - row["done"],
        "succeeded": row["succeeded"],
        "failed": row["failed"],
    }


async def _endpoints_in(
    session: Session, rows: list[Record], others: list[UUID | None] | None = None
) -> dict[UUID, str]:
    """Names of the endpoints that the filters speak of, and of others."""
    ids = list(others or [])
    for row in rows:
        chosen = operation_shapes.operation(row)["filter"]
        if isinstance(chosen, dict):
            ids.append(as_id(str(chosen.get("endpoint_id"))))
    return await endpoint_names(session, ids)


def _address(path: str, state: str | None, cursor: str | None = None) -> str:
    pairs = {name: value for name, value in (("state", state), ("cursor", cursor)) if value}
    return f"{path}?{urlencode(pairs)}" if pairs else path
