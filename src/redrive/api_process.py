"""The API's process: the routes and the pages on uvicorn, with connections of their own. Run by the command line.

Beside app.py, which it uses, so that a worker does not load what only the API needs.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from redrive.api.server import ApiContext, create_app
from redrive.api.short_way import with_short_way
from redrive.app import open_stores, rest_collector, sealer_of
from redrive.core.address import AddressRules
from redrive.engine.operations import run_operations
from redrive.settings import Settings
from redrive.store.clock import DatabaseClock
from redrive.store.operation_steps import OperationSteps
from redrive.version import __version__
from redrive.web.site import Site

STOP_S = 5


async def run_api(settings: Settings, url: str, stop: asyncio.Event, *, listener: socket.socket) -> None:
    """Serve the API on a bound socket until `stop`."""
    async with open_stores(url, name="redrive-api", pooler=settings.pooler) as stores:
        context = ApiContext(
            engine_db=stores.engine,
            app_db=stores.app,
            sealer=sealer_of(settings),
            clock=DatabaseClock(),
            rules=AddressRules(settings.allow_networks),
            version=__version__,
            trust_proxy=settings.trust_proxy,
            public_url=settings.public_url,
        )
        api = create_app(context, Site(context))
        config = uvicorn.Config(
            api,
            http=with_short_way(api.front_door),
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_S,
            timeout_keep_alive=75,
        )
        server = _Server(config)
        rest_collector()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopped = asyncio.create_task(stop.wait())
        moving = asyncio.create_task(run_operations(OperationSteps(stores.engine, context.clock)))
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            server.should_exit = True
            api.close_streams()
            await serving
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn, but for the signals: those are the process's own business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
