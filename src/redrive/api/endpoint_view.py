"""An endpoint as whoever asks may see it, the address of a relay included. Used by the routes and the pages."""

from fastapi import Request

from redrive.api import shapes
from redrive.api.browser import is_secure
from redrive.api.context import ApiContext
from redrive.api.shapes import Shape
from redrive.core.permissions import Action
from redrive.core.redact import redact_url
from redrive.store.db import Record
from redrive.store.keys import Caller

HOOKS_PATH = "/v1/hooks/"


def endpoint_view(request: Request, context: ApiContext, caller: Caller, row: Record) -> Shape:
    """Addresses may hold credentials: they are whole only for those who may change it."""
    whole = caller.may(Action.MANAGE)
    token = context.endpoints.hook_token(row)
    hook_url = None
    if token is not None:
        address = f"{_base(request, context)}{HOOKS_PATH}{token}"
        hook_url = address if whole else redact_url(address)
    return shapes.endpoint(
        row,
        context.endpoints.spec_of(row),
        whole_url=whole,
        problem=context.endpoints.problem_of(row),
        hook_url=hook_url,
    )


def _base(request: Request, context: ApiContext) -> str:
    """Where senders reach us: as the settings say, or else as this request did."""
    if context.public_url is not None:
        return context.public_url
    scheme = "https" if is_secure(request) else "http"
    return f"{scheme}://{request.headers.get('host', 'localhost')}"
