"""What browsers bring along: the session's cookie, where a page comes from, and what stands in front of us. Pure.

Used by auth for requests that come with a cookie, and by the routes that begin and end a session.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request, Response

from redrive.api.problems import Problem
from redrive.store.sessions import SESSION_LASTS_AT_MOST

COOKIE = "redrive_session"
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")  # what proxies say of whom they speak for
MAX_TOKEN_CHARS = 128
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS = (b"same-origin", b"none")  # none: typed in, or a bookmark

Headers = Mapping[bytes, bytes]


def token_in(cookies: bytes | None) -> str | None:
    """The session's token in a Cookie header."""
    for part in (cookies or b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE.encode() and value and len(value) <= MAX_TOKEN_CHARS:
            return value.decode("latin-1")
    return None


def token_of(request: Request) -> str | None:
    """Of the session whose cookie came along."""
    return token_in(dict(request.scope["headers"]).get(b"cookie"))


def is_from_elsewhere(headers: Headers) -> bool | None:
    """Whether a page of another site made the request; None where the browser does not say, or it is none."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in _OURS
    origin = headers.get(b"origin")
    if origin is None:
        return None
    try:
        return urlsplit(origin).netloc.lower() != headers.get(b"host", b"").lower()
    except ValueError:
        return True


def refuse_foreign_pages(headers: Headers, *, unless_silent: bool = False) -> None:
    """A cookie comes along whoever asks: what changes something must come from our own pages. Problem 403."""
    elsewhere = is_from_elsewhere(headers)
    if elsewhere or (elsewhere is None and not unless_silent):
        raise Problem(
            403,
            "A request that changes something with a session's cookie must come from a page of this installation: with "
            "its own Origin, or Sec-Fetch-Site: same-origin. Programs use an API key.",
        )


def client_address(request: Request) -> str:
    """Where a request comes from. What a proxy says of it counts only where the settings trust one."""
    direct = request.client.host if request.client else "unknown"
    if not request.app.state.context.trust_proxy:
        return direct
    # The last one: our own proxy wrote it. The others are what the client claims.
    said = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    try:
        return str(ip_address(said))
    except ValueError:
        return direct


def is_secure(request: Request) -> bool:
    if request.url.scheme == "https":
        return True
    said = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
    return bool(request.app.state.context.trust_proxy) and said == "https"


def give_cookie(response: Response, request: Request, token: str) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(SESSION_LASTS_AT_MOST.total_seconds()),
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="lax",
    )


def take_cookie(response: Response, request: Request) -> None:
    response.delete_cookie(COOKIE, path="/", secure=is_secure(request), httponly=True, samesite="lax")
