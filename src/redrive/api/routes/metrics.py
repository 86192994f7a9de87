"""Numbers for Prometheus. From the machine itself without a key, from elsewhere with one that owns the installation."""

from ipaddress import ip_address

from fastapi import APIRouter, Depends, Request, Response

from redrive.api.auth import allowed
from redrive.api.browser import FORWARDED
from redrive.api.metrics_desk import MetricsDesk
from redrive.api.queries import no_query
from redrive.core.permissions import Action

router = APIRouter(tags=["health"], dependencies=[Depends(no_query)])


_let_in = allowed(Action.WATCH)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
)
async def metrics(request: Request) -> Response:
    """Numbers of this process and its workers and, of one server at a time, of the installation. In Prometheus' text
    format, or as OpenMetrics where that is accepted. Without a key only from the machine itself; from elsewhere with
    one of the role OWNER, which may be limited to reading: the numbers are of all orgs.
    """
    if not _is_from_here(request):
        await _let_in(request)
    desk: MetricsDesk = request.app.state.metrics
    text, content_type = await desk.text(request.headers.get("accept", ""))
    return Response(text, media_type=None, headers={"content-type": content_type})


def _is_from_here(request: Request) -> bool:
    """What a proxy on this machine hands on comes from elsewhere."""
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False
