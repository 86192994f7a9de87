"""The delivering HTTP client: HTTP/1.1 over asyncio and httptools, pooled, bounded, guarded.

Used by the HTTP destination. `Client` is the way in; everything else here is what it takes and gives.
"""

from .call import Answer, Call
from .client import Client
from .errors import FailureKind, TransferError
from .messages import CLIENT_HEADERS, BadHeader, Request, Response, Timings, build_head
from .pool import ClientStats
from .resolve import Resolver, SystemResolver

__all__ = [
    "CLIENT_HEADERS",
    "Answer",
    "BadHeader",
    "Call",
    "Client",
    "ClientStats",
    "FailureKind",
    "Request",
    "Resolver",
    "Response",
    "SystemResolver",
    "Timings",
    "TransferError",
    "build_head",
]
