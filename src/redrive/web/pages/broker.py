"""The broker that dead letters are collected from: its queues, as collectors last saw them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter, Request, Response

from redrive.api import broker_shapes
from redrive.api.context import Context
from redrive.api.shapes import Shape
from redrive.store.dead_messages import list_queues
from redrive.web.frame import Frame, load_frame
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/broker"
SILENT_AFTER = timedelta(minutes=2)  # collectors tell of their queues some times a minute

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class BrokerPage:
    frame: Frame
    is_connected: bool
    queues: list[Shape]

    def state(self, queue: Shape) -> tuple[str, str]:
        """The colour and the word of a badge."""
        seen_at = queue["seen_at"]
        assert isinstance(seen_at, datetime)
        if queue["problem"]:
            return "bad", "in trouble"
        if self.frame.now - seen_at > SILENT_AFTER:
            return "warn", "not seen lately"
        if queue["is_source"]:
            return "ok", "collected"
        return ("warn", "nobody consumes it") if queue["consumers"] == 0 else ("quiet", "messages died in it")


@router.get(PATH)
async def broker_page(request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        queues = [broker_shapes.queue(row) for row in await list_queues(session)]
    return render(request, "broker.html", BrokerPage(frame, context.has_broker(visitor), queues))
