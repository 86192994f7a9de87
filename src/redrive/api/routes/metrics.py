"""The installation's numbers for Prometheus. From the machine itself without a key, from elsewhere with one."""

from ipaddress import ip_address

from fastapi import APIRouter, Depends, Request, Response

from redrive.api.auth import Authenticator
from redrive.api.browser import FORWARDED
from redrive.api.context import Context
from redrive.api.queries import no_query
from redrive.observe.metrics import CONTENT_TYPE, COUNTERS, QUEUE_METRICS, exposition
from redrive.store.counters import totals
from redrive.store.dead_messages import queues_everywhere

router = APIRouter(tags=["health"], dependencies=[Depends(no_query)])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
)
async def metrics(request: Request, context: Context) -> Response:
    """Totals of the installation, in Prometheus' text format. Without a key only from the machine itself."""
    if not _is_from_here(request):
        authenticator: Authenticator = request.app.state.authenticator
        await authenticator.admit(dict(request.scope["headers"]), request.method)
    counts = await totals(context.engine_db, [counter.kept_as for counter in COUNTERS])
    queues = await queues_everywhere(context.engine_db)
    told = [(row["queue"], {metric.told_as: row[metric.told_as] for metric in QUEUE_METRICS}) for row in queues]
    return Response(exposition(counts, told), media_type=CONTENT_TYPE)


def _is_from_here(request: Request) -> bool:
    """What a proxy on this machine hands on comes from elsewhere."""
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False
