"""Signing in with e-mail and password. The form talks to POST /v1/session; a sign-in link needs no page."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.web.render import render
from redrive.web.visitor import SIGN_IN, PageRoute

LINK_USED = "This sign-in link was used before, or is older than 15 minutes. Ask for a new one, or sign in here."

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class SignInPage:
    next: str  # where to afterwards
    said: str | None = None  # why somebody was sent here


def safe_next(wanted: str) -> str:
    """A path of ours, or the first page: an address elsewhere would make our sign-in a trap's first half."""
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_ours else "/"


@router.get(SIGN_IN)
async def sign_in_page(request: Request) -> Response:
    said = LINK_USED if "link" in request.query_params else None
    return render(request, "sign_in.html", SignInPage(safe_next(request.query_params.get("next", "/")), said))
