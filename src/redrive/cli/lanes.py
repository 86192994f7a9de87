"""`redrive endpoints lanes` and `resume-lane`: what waits for what. Added to the commands of cli.endpoints."""

from typing import Annotated
from uuid import UUID

import typer

from redrive.api.endpoint_shapes import lane as shape_of
from redrive.cli.connect import act_of, open_desk
from redrive.cli.lookup import find_endpoint
from redrive.cli.options import AsJson, Because, Called, Limit, Where, command
from redrive.cli.output import Column, emit, note, table
from redrive.cli.runner import Refused, run
from redrive.store.clock import DatabaseClock
from redrive.store.db import Session
from redrive.store.lanes import Lane, LanesPage, get_lane, list_lanes, resume_lane

COLUMNS = (
    Column("lane"),
    Column("key", gives_way=True),
    Column("halted"),
    Column("waiting"),
    Column("head"),
    Column("tries"),
    Column("error", gives_way=True),
)


def add_to(app: typer.Typer) -> None:
    command(app, "lanes")(lanes)
    command(app, "resume-lane")(resume)


def lanes(where: Where, called: Called, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List an endpoint's lanes in which something waits; the halted ones come first."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await find_endpoint(session, called)
            page = await _first(session, row["id"], limit)
        if as_json:
            for lane in page.lanes:
                emit(shape_of(lane))
            return True
        table(COLUMNS, [_cells(lane) for lane in page.lanes], empty="Nothing waits for anything else.")
        if page.next_key is not None:
            note(f"The first {len(page.lanes)} are shown. --limit shows more.")
        return True

    run(work)


async def _first(session: Session, endpoint_id: UUID, limit: int) -> LanesPage:
    """A page may be short and yet have a next one."""
    page = await list_lanes(session, endpoint_id, limit=limit)
    while len(page.lanes) < limit and page.next_key is not None:
        rest = limit - len(page.lanes)
        following = await list_lanes(session, endpoint_id, limit=rest, after=page.next_key)
        page = LanesPage([*page.lanes, *following.lanes], following.next_key)
    return page


def resume(
    where: Where,
    called: Called,
    lane: Annotated[
        UUID | None,
        typer.Argument(help="The lane's id; left out: the one lane of an ordered endpoint.", show_default=False),
    ] = None,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Lift the halt of a lane: it goes on with the next. The dead letter that halted it stays open."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await find_endpoint(session, called)
            wanted = lane or row["id"]
            changed = await resume_lane(session, row["id"], wanted, act_of(because), DatabaseClock())
            found = await get_lane(session, row["id"], wanted)
        if found is None:
            raise Refused(
                f'Endpoint "{row["name"]}" has no lane {wanted} in which anything waits. '
                "`redrive endpoints lanes` shows those there are."
            )
        if as_json:
            emit(shape_of(found))
        else:
            rest = "goes on with the next" if changed else "was not halted, and stays as it is"
            note(f'Lane {wanted} of endpoint {row["id"]} ("{row["name"]}") {rest}.')
        return True

    run(work)


def _cells(lane: Lane) -> list[object]:
    head = lane.head
    return [
        lane.lane,
        lane.ordering_key,
        lane.halted_at,
        f"{lane.waiting}{'' if lane.is_whole else '+'}",
        None if head is None else head.id,
        None if head is None else head.attempts,
        lane.halted_error if head is None else head.error_message,
    ]
