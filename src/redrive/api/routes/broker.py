"""The broker that dead letters are collected from: its queues, as collectors see them."""

from fastapi import APIRouter, Depends, Response

from redrive.api import broker_shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import Context
from redrive.api.queries import no_query
from redrive.api.schemas.base import shows
from redrive.api.schemas.broker import Broker
from redrive.store.dead_messages import list_queues

router = APIRouter(prefix="/v1/broker", tags=["broker"], dependencies=[*SCHEMES, Depends(no_query)])


@router.get("", responses=shows(Broker))
async def get_broker(caller: Reader, context: Context) -> Response:
    """Whether there is one, and its queues: those that are collected, then those that messages died in."""
    async with context.tenant(caller) as session:
        queues = await list_queues(session)
    return answer({"configured": context.has_broker(caller), "queues": [broker_shapes.queue(row) for row in queues]})
