"""`redrive endpoints`: where deliveries go. Headers and certificates are set through the API."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from redrive.api.endpoint_input import (
    MAX_BLOCK_S,
    MAX_IN_FLIGHT,
    MAX_RATE_PER_S,
    MIN_BLOCK_S,
    MIN_RATE_PER_S,
)
from redrive.cli import endpoint_change, endpoint_health, lanes, shapes
from redrive.cli.connect import act_of, open_desk
from redrive.cli.endpoint_given import APPRISE_VARIABLE, check_place, check_route, check_texts, given_url
from redrive.cli.lookup import find_endpoint, require_one_of
from redrive.cli.options import AsJson, Because, Called, Where, command
from redrive.cli.output import Column, cell, emit, note, say, table
from redrive.cli.pausing import switch
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.cli.send import payload_of
from redrive.core.broker_route import route_text
from redrive.core.channels import APPRISE_KIND, MAIL_KIND
from redrive.core.policy import MAX_TIMEOUT_S, MIN_TIMEOUT_S
from redrive.store import endpoints as store
from redrive.store import pausing
from redrive.store.clock import DatabaseClock
from redrive.store.endpoints import DEFAULT_OVERLAP_S, MAX_OVERLAP_S, Endpoints, EndpointSpec, NameTaken
from redrive.store.events import NewEvent, accept_test, new_correlation_id
from redrive.store.orgs import new_id
from redrive.store.paging import MAX_PAGE_ROWS
from redrive.store.pausing import PauseScope
from redrive.store.policies import get_policy

MAX_TEXT_CHARS = 200
CLOCK = DatabaseClock()

app = typer.Typer(
    no_args_is_help=True,
    help="Endpoints: list, show, add, update, pause, disable, resume their lanes, rotate secrets, test, delete.",
)

endpoint_health.add_to(app)
endpoint_change.add_to(app)
lanes.add_to(app)


@dataclass(frozen=True, slots=True)
class Pace:
    """In which order, and how fast."""

    ordered: Annotated[bool, typer.Option("--ordered", help="Deliver one at a time, in order: see docs/order.md.")] = (
        False
    )
    on_block: Annotated[
        str, typer.Option("--on-block", help="If an ordered delivery fails: skip, or halt until a person acts.")
    ] = "skip"
    max_block_s: Annotated[
        float | None,
        typer.Option("--max-block-s", min=MIN_BLOCK_S, max=MAX_BLOCK_S, help="Seconds one may keep others waiting."),
    ] = None
    max_in_flight: Annotated[
        int | None, typer.Option("--max-in-flight", min=1, max=MAX_IN_FLIGHT, help="Deliveries at the same time.")
    ] = None
    rate_per_s: Annotated[
        float | None,
        typer.Option("--rate-per-s", min=MIN_RATE_PER_S, max=MAX_RATE_PER_S, help="Deliveries per second."),
    ] = None


@dataclass(frozen=True, slots=True)
class Route:
    """Where to, if not to a URL."""

    kind: Annotated[
        str, typer.Option("--kind", help="http; rabbitmq: an exchange of RabbitMQ; mail; apprise: chat and the like.")
    ] = "http"
    exchange: Annotated[
        str | None, typer.Option("--exchange", help='Of RabbitMQ; "" is the default exchange, whose keys are queues.')
    ] = None
    routing_key: Annotated[
        str | None, typer.Option("--routing-key", help="For that exchange; without it the event's type is the key.")
    ] = None
    to: Annotated[list[str] | None, typer.Option("--to", help="An address, for --kind mail. Repeatable.")] = None
    apprise_url: Annotated[
        str | None,
        typer.Option(
            "--apprise-url",
            help=f"Of the service, for --kind apprise. A secret: - reads it from {APPRISE_VARIABLE}, else from stdin.",
        ),
    ] = None


@command(app, "list")
def list_(where: Where, as_json: AsJson = False) -> None:
    """List the endpoints of an org, oldest first."""

    async def work() -> bool:
        found: list[shapes.Shape] = []
        after: tuple[object, ...] | None = None
        async with open_desk(where) as desk, desk.session() as session:
            while True:
                page = await store.list_endpoints(session, limit=MAX_PAGE_ROWS, after=after)
                found += [shapes.endpoint(row) for row in page.rows]
                if page.next_key is None:
                    break
                after = page.next_key
        if as_json:
            for endpoint in found:
                emit(endpoint)
            return True
        titles = ("id", "name", "url", "event types", "policy", "disabled", "paused")
        rows = [
            [
                *(e["id"], e["name"], _place(e), " ".join(map(str, _listed(e["event_types"])))),
                *(e["policy"], e["disabled_at"], e["paused_at"]),
            ]
            for e in found
        ]
        empty = "There are no endpoints. `redrive endpoints add` makes one."
        table([Column(title, gives_way=title in ("url", "event types")) for title in titles], rows, empty=empty)
        return True

    run(work)


@command(app, "add")
def add(
    where: Where,
    name: Annotated[str, typer.Option("--name", help="Display name.")],
    url: Annotated[str | None, typer.Argument(help="Where to deliver, https://…")] = None,
    event_types: Annotated[
        list[str] | None, typer.Option("--event-type", help="Event types to deliver; * matches any text. Repeatable.")
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="Its retry policy.")] = None,
    external_system: Annotated[str | None, typer.Option("--external-system", help="The system behind it.")] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout-s", min=MIN_TIMEOUT_S, max=MAX_TIMEOUT_S, help="Seconds a try may take.")
    ] = None,
    *,
    route: Route,
    pace: Pace,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Add an endpoint and show the secret that signs its deliveries, this once."""

    async def work() -> bool:
        spec = EndpointSpec(
            name=name,
            url=url,
            event_types=tuple(event_types or ["*"]),
            policy=policy,
            external_system=external_system,
            timeout_s=timeout_s,
            **asdict(route)
            | {"to": tuple(route.to) if route.to else None, "apprise_url": given_url(route.apprise_url)},
            **asdict(pace),
        )
        check_texts(spec)
        check_route(spec)
        require_one_of("value of --on-block", pace.on_block, ("skip", "halt"))
        async with open_desk(where) as desk:
            await check_place(desk, spec)
            sealer = await desk.sealer()
            async with desk.session() as session:
                if policy is not None and await get_policy(session, policy) is None:
                    raise Refused(f'There is no policy "{policy}". `redrive policy list` shows those there are.')
                try:
                    row, secret = await Endpoints(sealer).create(session, spec, act_of(because))
                except NameTaken:
                    raise Refused(f'There is an endpoint named "{name}" already. Choose another name.') from None
        if as_json:
            emit(shapes.endpoint(row) | {"secret": secret})
        elif route.kind in (MAIL_KIND, APPRISE_KIND):  # which sign nothing
            say(str(row["id"]))
            note(f'This is the id of endpoint "{name}". `redrive endpoints test` sends it something.')
        else:
            say(secret)
            note(f'This is the secret of endpoint {row["id"]} ("{name}"). It is not shown again.')
        return True

    run(work)


@command(app, "disable")
def disable(where: Where, called: Called, because: Because = None, as_json: AsJson = False) -> None:
    """Disable an endpoint. Its tasks are held as they fall due: no try is spent, nothing is lost."""
    _set_disabled(where, called, True, because, as_json)


@command(app, "enable")
def enable(where: Where, called: Called, because: Because = None, as_json: AsJson = False) -> None:
    """Enable an endpoint again. Its held tasks go on where they stood."""
    _set_disabled(where, called, False, because, as_json)


@command(app, "pause")
def pause(where: Where, called: Called, because: Because = None, as_json: AsJson = False) -> None:
    """Pause an endpoint. Its tasks are held as they fall due: no try is spent, nothing is lost."""
    switch(where, PauseScope.ENDPOINT, called, because, as_json, paused=True)


@command(app, "resume")
def resume(where: Where, called: Called, because: Because = None, as_json: AsJson = False) -> None:
    """Resume an endpoint. Its held tasks go on where they stood."""
    switch(where, PauseScope.ENDPOINT, called, because, as_json, paused=False)


@command(app, "rotate-secret")
def rotate_secret(
    where: Where,
    called: Called,
    overlap_s: Annotated[
        float, typer.Option("--overlap-s", min=0, max=MAX_OVERLAP_S, help="Seconds that the old secret signs too.")
    ] = DEFAULT_OVERLAP_S,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint a new secret and show it, this once."""

    async def work() -> bool:
        async with open_desk(where) as desk:
            sealer = await desk.sealer()
            async with desk.session() as session:
                found = await find_endpoint(session, called)
                rotated = await Endpoints(sealer).rotate_secret(session, found["id"], overlap_s, act_of(because), CLOCK)
        assert rotated is not None
        row, secret = rotated
        until = row["previous_secret_until"]
        if as_json:
            emit({"id": row["id"], "secret": secret, "previous_valid_until": until})
        else:
            say(secret)
            rest = f"The one before it signs too until {cell(until)}." if until else "The one before it signs no more."
            note(f'This is the new secret of endpoint {row["id"]} ("{row["name"]}"). It is not shown again. {rest}')
        return True

    run(work)


@command(app, "test")
def send_test(
    where: Where,
    called: Called,
    event_type: Annotated[str, typer.Option("--event-type", help="The event's type.")] = "redrive.test",
    payload: Annotated[str, typer.Option("--payload", help="The event's payload: JSON.")] = '{"test": true}',
    as_json: AsJson = False,
) -> None:
    """Send an event to this endpoint and no other, once; prints its id."""

    async def work() -> bool:
        if not 1 <= len(event_type) <= MAX_TEXT_CHARS or not event_type.isprintable():
            raise WrongUsage(f"An event type has 1 to {MAX_TEXT_CHARS} printable characters.")
        async with open_desk(where) as desk:
            async with desk.session() as session:
                endpoint_id = (await find_endpoint(session, called))["id"]
            act = act_of()
            event = NewEvent(
                desk.org_id,
                new_id(),
                event_type,
                payload_of(None, payload, None),
                endpoint_id=endpoint_id,
                correlation_id=new_correlation_id(),
                submitted_by=act.actor,
            )
            async with desk.engine.tenant(desk.org_id) as session:
                receipt = await accept_test(session, event, act, CLOCK)
        if receipt.verdict != "accepted":
            raise Refused(f'Endpoint "{called}" was deleted meanwhile.')
        if as_json:
            emit({"event_id": event.id, "status": receipt.status})
        else:
            say(str(event.id))
            note(f"`redrive events history {event.id}` tells what becomes of it.")
        return True

    run(work)


@command(app, "delete")
def delete(
    where: Where,
    called: Called,
    yes: Annotated[bool, typer.Option("--yes", help="Really.")] = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Delete an endpoint. What was accepted for it becomes dead letters."""

    async def work() -> bool:
        if not yes:
            raise Refused("An endpoint's open tasks die with it, as dead letters. Say that it is meant with --yes.")
        async with open_desk(where) as desk:
            async with desk.session() as session:
                row = await find_endpoint(session, called)
                await store.delete_endpoint(session, row["id"], act_of(because))
            await pausing.release(desk.engine, desk.org_id, CLOCK, within_s=None)
        if as_json:
            emit({"id": row["id"], "deleted": True})
        else:
            note(f'Endpoint {row["id"]} ("{row["name"]}") is deleted.')
        return True

    run(work)


def _set_disabled(where: Where, called: str, disabled: bool, because: str | None, as_json: bool) -> None:
    async def work() -> bool:
        async with open_desk(where) as desk:
            sealer = await desk.sealer()
            async with desk.session() as session:
                found = await find_endpoint(session, called)
                row = await Endpoints(sealer).set_disabled(session, found["id"], disabled, act_of(because))
            if not disabled:
                await pausing.release(desk.engine, desk.org_id, CLOCK, within_s=None)
        assert row is not None
        if as_json:
            emit(shapes.endpoint(row))
        else:
            note(f'Endpoint {row["id"]} ("{row["name"]}") is {"disabled" if disabled else "enabled"}.')
        return True

    run(work)


def _place(endpoint: shapes.Shape) -> object:
    """Its URL, or what it has instead."""
    if endpoint["to"] is not None:
        return ", ".join(map(str, _listed(endpoint["to"])))
    if endpoint["apprise_url"] is not None:
        return endpoint["apprise_url"]
    exchange, key = endpoint["exchange"], endpoint["routing_key"]
    return endpoint["url"] if exchange is None else route_text(str(exchange), None if key is None else str(key))


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value
