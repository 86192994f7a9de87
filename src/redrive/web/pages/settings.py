"""Settings: the org one is in, what is paused, and one's own account. Others: pages.people, pages.orgs."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from redrive.api.browser import token_of
from redrive.api.context import ApiContext, Context
from redrive.api.routes.orgs import shape_of as org_shape
from redrive.api.routes.retries import as_seen_by
from redrive.api.routes.users import shape_of as user_shape
from redrive.api.shapes import Shape
from redrive.core.permissions import Action
from redrive.store import orgs, pausing, users
from redrive.store.actors import actor_names
from redrive.store.keys import Caller, Kind
from redrive.store.passwords import MIN_PASSWORD_CHARS
from redrive.store.pausing import MAX_PAUSED_SHOWN, Pause
from redrive.store.sessions import password_to_prove
from redrive.store.workers import WorkerSeen, list_workers
from redrive.version import __version__
from redrive.web.actors import Actor, shown_actor
from redrive.web.frame import Frame, load_frame
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/settings"
ACCOUNT_PATH = "/settings/account"

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of an org, as the form has it. `used`: how much of it is, where that is known."""

    name: str
    label: str
    hint: str
    in_bytes: bool = False
    used: str | None = None


LIMITS = (
    Limit("requests_per_s", "Requests per second", "Of each API process."),
    Limit("burst", "Burst", "Requests that may come at once before that rate counts."),
    Limit("max_payload_bytes", "Largest payload", "Bytes of one event.", in_bytes=True),
    Limit("max_stored_bytes", "Stored payloads", "Bytes of all events together.", in_bytes=True, used="stored_bytes"),
    Limit("max_endpoints", "Endpoints", "", used="endpoints"),
)


@dataclass(frozen=True, slots=True)
class ShownPause:
    """`by`: None where it is not for the visitor to know."""

    pause: Pause
    by: Actor | None
    offered: bool  # to pause and resume


@dataclass(frozen=True, slots=True)
class SettingsPage:
    frame: Frame
    org: Shape
    pauses: tuple[ShownPause, ...]  # of the installation, of the org
    endpoints: list[Pause]
    more_endpoints: bool
    workers: list[WorkerSeen]
    tab: str = PATH

    limits = LIMITS
    version = __version__

    @property
    def at_work(self) -> int:
        return sum(not worker.is_silent for worker in self.workers)


@dataclass(frozen=True, slots=True)
class AccountPage:
    """`account`: None for whoever has none here: a link that names nobody, a key, an OWNER who is no member."""

    frame: Frame
    account: Shape | None
    must_prove: bool  # that one knows the present password, to set a new one
    tab: str = ACCOUNT_PATH

    min_password_chars = MIN_PASSWORD_CHARS

    @property
    def kind(self) -> str:
        return self.frame.caller.kind


@router.get(PATH)
async def settings_page(request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        installation, org = await pausing.pauses(session, context.clock)
        endpoints = await pausing.paused_endpoints(session, context.clock)
        workers = await list_workers(session, context.clock)
    row = await orgs.get_org(context.engine_db, visitor.org_id)
    assert row is not None, "orgs are never deleted"
    shown = SettingsPage(
        frame=frame,
        org=org_shape(row),
        pauses=await _pauses(context, visitor, await as_seen_by(visitor, context, installation), org),
        endpoints=endpoints[:MAX_PAUSED_SHOWN],
        more_endpoints=len(endpoints) > MAX_PAUSED_SHOWN,
        workers=workers,
    )
    return render(request, "settings.html", shown)


async def _pauses(context: ApiContext, visitor: Caller, installation: Pause, org: Pause) -> tuple[ShownPause, ...]:
    names = await actor_names(context.engine_db, visitor.org_id, [installation.paused_by, org.paused_by])
    return tuple(
        ShownPause(
            pause,
            shown_actor(pause.paused_by, names, visitor) if pause.paused_by is not None else None,
            offered=visitor.may(action),
        )
        for pause, action in ((installation, Action.OWN), (org, Action.MANAGE))
    )


@router.get(ACCOUNT_PATH)
async def account_page(request: Request, visitor: Visitor, context: Context) -> Response:
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        row = await users.get_user(session, visitor.id) if visitor.kind is Kind.USER else None
    token = token_of(request)
    asked = await password_to_prove(context.engine_db, token, context.clock) if row and token else None
    must_prove = asked is not None and asked["password_hash"] is not None
    return render(request, "settings_account.html", AccountPage(frame, user_shape(row) if row else None, must_prove))
