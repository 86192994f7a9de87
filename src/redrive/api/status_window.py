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
from redrive.api.auth import Authenticator, key_in
from redrive.api.problems import not_found
from redrive.api.status_desk import StatusDesk
from redrive.core.permissions import Action
from redrive.store.keys import Caller

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
        caller = self._caller(headers)
        if caller is None:
            return None
        row = await self._desk.status(caller, UUID(asked[1]))
        if row is None:
            raise not_found("event")
        return _encode(shapes.event_status(row))

    def _caller(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        key = key_in(headers.get(b"x-api-key"), headers.get(b"authorization"))
        if key is None or b"x-redrive-org" in headers:
            return None
        caller = self._authenticator.remembered(key)
        if caller is None or not caller.may(Action.READ):
            return None
        # Last: a request that goes the long way after all is counted there.
        return None if self._authenticator.meters.wait_s(caller) else caller
