"""GET /v1/events/{id}/status without the framework, where nothing is out of the ordinary: what producers ask most.

Called by server before the routes. Any doubt, and whoever must be looked up first, is left to the route in
routes.events, which answers the same.
"""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from redrive.api import shapes
from redrive.api.auth import Authenticator
from redrive.api.problems import not_found
from redrive.api.status_desk import StatusDesk
from redrive.core.permissions import Action
from redrive.observe import traces
from redrive.observe.process_metrics import STATUS_QUERIES

_PATH = re.compile(r"/v1/events/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/status")

_encode = msgspec.json.Encoder().encode


class StatusWindow:
    def __init__(self, authenticator: Authenticator, desk: StatusDesk) -> None:
        self._authenticator = authenticator
        self._desk = desk

    async def answer(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> bytes | None:
        """The body of a 200, or Problem 404. None: not for this window."""
        asked = _PATH.fullmatch(scope["path"])
        if asked is None or scope["method"] != "GET" or scope["query_string"]:
            return None
        caller = self._authenticator.remembered(headers, Action.READ)
        # Counted last: a request that goes the long way after all is counted there.
        if caller is None or self._authenticator.meters.wait_s(caller):
            return None
        STATUS_QUERIES.add()
        entry = traces.entry(headers.get(b"traceparent"), headers.get(b"tracestate")) if traces.is_on() else None
        row = await self._desk.status(caller, UUID(asked[1]), entry)
        if row is None:
            raise not_found("event")
        return _encode(shapes.event_status(row))
