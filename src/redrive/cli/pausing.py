"""`redrive pause`, `redrive resume`: the kill switch, for an endpoint, an org or the whole installation."""

from typing import Annotated

import typer

from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.lookup import find_endpoint
from redrive.cli.options import AsJson, Because, Where, command
from redrive.cli.output import emit, note
from redrive.cli.runner import WrongUsage, run
from redrive.store import pausing
from redrive.store.clock import DatabaseClock
from redrive.store.pausing import Pause, PauseScope

CLOCK = DatabaseClock()

Endpoint = Annotated[str | None, typer.Option("--endpoint", help="Only this endpoint: its id or its name.")]
Installation = Annotated[bool, typer.Option("--installation", help="Every org of this installation.")]


def add_to(app: typer.Typer) -> None:
    command(app, "pause")(pause)
    command(app, "resume")(resume)


def pause(
    where: Where,
    endpoint: Endpoint = None,
    installation: Installation = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Pause an org, an endpoint or everything: tasks are held as they fall due, no try is spent, nothing is lost."""
    switch(where, _scope(endpoint, installation), endpoint, because, as_json, paused=True)


def resume(
    where: Where,
    endpoint: Endpoint = None,
    installation: Installation = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Let what was paused go on. Held tasks are released where they stood, unless something else holds them."""
    switch(where, _scope(endpoint, installation), endpoint, because, as_json, paused=False)


def _scope(endpoint: str | None, installation: bool) -> PauseScope:
    if endpoint is not None and installation:
        raise typer.BadParameter("--endpoint and --installation exclude each other: name one of them, or neither.")
    if installation:
        return PauseScope.INSTALLATION
    return PauseScope.ORG if endpoint is None else PauseScope.ENDPOINT


def switch(
    where: Where, scope: PauseScope, called: str | None, because: str | None, as_json: bool, *, paused: bool
) -> None:
    """Pause or resume, and tell how it stands then. Also for `redrive endpoints pause` and `resume`."""

    async def work() -> bool:
        async with open_desk(where) as desk:
            state = await _switched(desk, scope, called, because, paused=paused)
        if as_json:
            emit(_shape(state))
        else:
            note(_sentence(state, where.org))
        return True

    run(work)


async def _switched(desk: Desk, scope: PauseScope, called: str | None, because: str | None, *, paused: bool) -> Pause:
    endpoint_id = None
    async with desk.session() as session:
        if scope is PauseScope.ENDPOINT:
            if called is None:
                raise WrongUsage("Say which endpoint: its id or its name.")
            endpoint_id = (await find_endpoint(session, called))["id"]
        act = act_of(because)
        change = pausing.pause if paused else pausing.resume
        await change(session, scope, act, CLOCK, endpoint_id)
    if not paused:
        org_id = None if scope is PauseScope.INSTALLATION else desk.org_id
        await pausing.release(desk.engine, org_id, CLOCK, within_s=None)
    async with desk.session() as session:
        if endpoint_id is not None:
            state = await pausing.endpoint_pause(session, endpoint_id, CLOCK)
            assert state is not None
            return state
        installation, org = await pausing.pauses(session, CLOCK)
    return org if scope is PauseScope.ORG else installation


def _shape(state: Pause) -> dict[str, object]:
    return {
        "scope": state.scope,
        "id": state.id,
        "name": state.name,
        "paused": state.paused,
        "paused_at": state.paused_at,
        "paused_by": state.paused_by,
        "because": state.because,
        "held": state.held,
    }


def _sentence(state: Pause, org: str) -> str:
    what = {
        PauseScope.INSTALLATION: "The installation",
        PauseScope.ORG: f'The org "{org}"',
        PauseScope.ENDPOINT: f'Endpoint {state.id} ("{state.name}")',
    }[state.scope]
    held = "" if state.held is None else f" {state.held} tasks are held."
    return f"{what} is {'paused' if state.paused else 'not paused'}.{held}"
