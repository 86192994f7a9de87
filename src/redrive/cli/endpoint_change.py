"""`redrive endpoints update`: change what an endpoint is called, where it leads, what it gets and how fast."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import typer

from redrive.api.endpoint_input import (
    MAX_BLOCK_S,
    MAX_IN_FLIGHT,
    MAX_RATE_PER_S,
    MIN_BLOCK_S,
    MIN_RATE_PER_S,
)
from redrive.cli import shapes
from redrive.cli.connect import act_of, open_desk
from redrive.cli.endpoint_given import check_place, check_route, check_texts
from redrive.cli.lookup import find_endpoint, require_one_of
from redrive.cli.options import AsJson, Because, Called, Where, command
from redrive.cli.output import emit, note
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.policy import MAX_TIMEOUT_S, MIN_TIMEOUT_S
from redrive.store.endpoints import Endpoints, NameTaken, lock_endpoint
from redrive.store.policies import get_policy

RELAY_KIND = "relay"
CLEARABLE = {
    "policy": "policy",
    "external-system": "external_system",
    "timeout-s": "timeout_s",
    "max-in-flight": "max_in_flight",
    "rate-per-s": "rate_per_s",
    "max-block-s": "max_block_s",
}


@dataclass(frozen=True, slots=True)
class Changes:
    """Fields to change. Missing fields stay as they are."""

    name: Annotated[str | None, typer.Option("--name", help="Display name.")] = None
    url: Annotated[str | None, typer.Option("--url", help="Where to deliver, https://…")] = None
    event_types: Annotated[
        list[str] | None, typer.Option("--event-type", help="Event types to deliver; * matches any text. Repeatable.")
    ] = None
    policy: Annotated[str | None, typer.Option("--policy", help="Its retry policy.")] = None
    external_system: Annotated[str | None, typer.Option("--external-system", help="The system behind it.")] = None
    timeout_s: Annotated[
        float | None, typer.Option("--timeout-s", min=MIN_TIMEOUT_S, max=MAX_TIMEOUT_S, help="Seconds a try may take.")
    ] = None
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--unordered", help="Deliver one at a time, in order: see docs/order.md.")
    ] = None
    on_block: Annotated[str | None, typer.Option("--on-block", help="If an ordered delivery fails: skip, or halt.")] = (
        None
    )
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


def add_to(app: typer.Typer) -> None:
    command(app, "update")(update)


def update(
    where: Where,
    called: Called,
    changes: Changes,
    clear: Annotated[
        list[str] | None, typer.Option("--clear", help=f"Clear a field: {', '.join(CLEARABLE)}. Repeatable.")
    ] = None,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Change the fields given; the others stay as they are."""

    async def work() -> bool:
        given = _given(changes, clear or ())
        async with open_desk(where) as desk:
            sealer = await desk.sealer()
            endpoints = Endpoints(sealer)
            async with desk.session() as session:
                found = await find_endpoint(session, called)
                row = await lock_endpoint(session, found["id"])
                if row is None:
                    raise Refused(f'There is no endpoint "{called}" in this org any more.')
                spec = replace(endpoints.spec_of(row), **given)
                check_texts(spec)
                if spec.kind == RELAY_KIND and "url" in given:
                    raise WrongUsage("A relay has no URL: its webhooks come in at its hook_url.")
                if spec.kind != RELAY_KIND:
                    check_route(spec)
                if "url" in given:
                    await check_place(desk, spec)
                if changes.policy is not None and await get_policy(session, changes.policy) is None:
                    raise Refused(
                        f'There is no policy "{changes.policy}". `redrive policy list` shows those there are.'
                    )
                try:
                    updated = await endpoints.update(session, found["id"], given, act_of(because))
                except NameTaken:
                    raise Refused(
                        f'There is an endpoint named "{changes.name}" already. Choose another name.'
                    ) from None
        assert updated is not None, "it is locked in this transaction"
        if as_json:
            emit(shapes.endpoint(updated))
        else:
            note(f'Endpoint {updated["id"]} ("{updated["name"]}") is updated.')
        return True

    run(work)


def _given(changes: Changes, clear: Sequence[str]) -> dict[str, Any]:
    """By field, what it is from now on."""
    require_one_of("value of --on-block", changes.on_block, ("skip", "halt"))
    given = {field.name: getattr(changes, field.name) for field in fields(changes)}
    given = {name: value for name, value in given.items() if value is not None}
    if "event_types" in given:
        given["event_types"] = tuple(given["event_types"])
    for name in clear:
        require_one_of("field to clear", name, CLEARABLE)
        if CLEARABLE[name] in given:
            raise WrongUsage(f"--{name} and --clear {name} exclude each other.")
        given[CLEARABLE[name]] = None
    if not given:
        raise WrongUsage("Give at least one field to change: --url, --name, --event-type, --policy …")
    return given
