"""Signing in with e-mail and password. The form talks to POST /v1/session; a sign-in link needs no page."""

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from redrive.api.auth import Authenticator
from redrive.api.problems import Problem
from redrive.web.render import render
from redrive.web.visitor import SIGN_IN, PageRoute

ENDED = "Your session has ended. Sign in to go on where you were."
LINK_USED = "This sign-in link was used before, or is older than 15 minutes. Ask for a new one, or sign in here."
SAID = {
    "used": LINK_USED,
    "suspended": "The link is right, but you are suspended, or no member of its org any more. An ADMIN of the org can"
    " change that. Then ask for a new link, or sign in here.",
}
STAY = ("link", "anew")  # with these in the address, whoever is signed in sees the page all the same

_IN_ADDRESSES = "/?&=%#:;,+@!$'()*~[]"  # escaped already, where it has to be

router = APIRouter(route_class=PageRoute, include_in_schema=False)


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
    """Whoever is signed in already goes on, but to sign in as somebody else."""
    asked = request.query_params
    wanted = safe_next(asked.get("next", "/"))
    if not any(name in asked for name in STAY) and await _is_known(request):
        return Response(status_code=303, headers={"location": quote(wanted, safe=_IN_ADDRESSES)})
    said = SAID.get(asked["link"], LINK_USED) if "link" in asked else ENDED if "ended" in asked else None
    return render(request, "sign_in.html", SignInPage(wanted, said))


async def _is_known(request: Request) -> bool:
    authenticator: Authenticator = request.app.state.authenticator
    try:
        await authenticator.admit(dict(request.scope["headers"]), request.method)
    except Problem:  # also of those whose session would be refused everywhere: they may sign in anew
        return False
    return True
