"""`redrive endpoints show` and `close-breaker`: how an endpoint does. Added to the commands of cli.endpoints."""

import typer

from redrive.api.endpoint_shapes import health
from redrive.cli import shapes
from redrive.cli.connect import act_of, open_desk
from redrive.cli.lookup import find_endpoint
from redrive.cli.options import AsJson, Because, Called, Where, command
from redrive.cli.output import emit, facts, note
from redrive.cli.runner import run
from redrive.store.clock import DatabaseClock
from redrive.store.endpoint_history import History, history_of
from redrive.store.endpoint_states import EndpointState, get_state, ramp_by_hand
from redrive.store.endpoints import RELAY

CLOCK = DatabaseClock()


def add_to(app: typer.Typer) -> None:
    command(app, "show")(show)
    command(app, "close-breaker")(close_breaker)


def show(where: Where, called: Called, as_json: AsJson = False) -> None:
    """Show an endpoint: its terms, its breaker, and how the tries of a day went."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await find_endpoint(session, called)
            state = await get_state(session, row["id"])
            history = await history_of(session, row["id"], CLOCK)
        assert state is not None
        shape = shapes.endpoint(row)
        if as_json:
            emit(shape | {"health": health(state, history)})
        else:
            facts({name.replace("_", " "): _text(value) for name, value in shape.items()} | _told(state, history))
            if state.kind == RELAY:
                note("Whether a hub is connected is known to the API's process: its page tells, or GET …/health.")
        return True

    run(work)


def close_breaker(where: Where, called: Called, because: Because = None, as_json: AsJson = False) -> None:
    """Close the breaker of an endpoint: its tasks resume at a growing rate."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await find_endpoint(session, called)
            changed = await ramp_by_hand(session, row["id"], act_of(because), CLOCK)
            state = await get_state(session, row["id"])
        assert state is not None
        if as_json:
            emit({"id": row["id"], "breaker": state.breaker})
        else:
            rest = "its tasks resume at a growing rate" if changed else "it holds nothing, and stays as it is"
            note(f'The breaker of endpoint {row["id"]} ("{row["name"]}") is {state.breaker}: {rest}.')
        return True

    run(work)


def _told(state: EndpointState, history: History) -> dict[str, object]:
    succeeded = sum(point.succeeded for point in history.points)
    failed = sum(point.failed for point in history.points)
    return {
        "breaker": state.breaker,
        "breaker since": state.breaker_since,
        "breaker reason": state.breaker_reason,
        "last success": state.last_success_at,
        "last failure": state.last_failure_at,
        "failing since": state.failing_since,
        "failures since": state.failures,
        "tries of a day": f"{succeeded} succeeded, {failed} failed",
    }


def _text(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value
