"""`redrive send`: hand in one event, as a producer would."""

import json
from pathlib import Path
from typing import Annotated, NoReturn
from uuid import UUID

import typer

from redrive.cli.connect import act_of, open_desk
from redrive.cli.given import STDIN, read_source
from redrive.cli.lookup import find_endpoint
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import emit, note, say
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.store.clock import DatabaseClock
from redrive.store.events import MAX_PAYLOAD_BYTES, NewEvent, accept, new_correlation_id
from redrive.store.orgs import new_id

MAX_TEXT_CHARS = 200


def add_to(app: typer.Typer) -> None:
    command(app, "send")(send)


def send(
    where: Where,
    event_type: Annotated[str, typer.Argument(help="Its type, like invoice.paid.")],
    source: Annotated[str | None, typer.Argument(metavar="[-]", help="- reads the payload from stdin.")] = None,
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help="The payload.")] = None,
    payload_file: Annotated[Path | None, typer.Option("--payload-file", help="Read the payload from a file.")] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="Only to this endpoint: its id or name.")] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="Retry by this policy.")] = None,
    event_id: Annotated[UUID | None, typer.Option("--event-id", help="Its id: the same twice is one event.")] = None,
    external_system: Annotated[str | None, typer.Option("--external-system", help="The system behind it.")] = None,
    ordering_key: Annotated[str | None, typer.Option("--ordering-key", help="What must stay in order.")] = None,
    correlation_id: Annotated[str | None, typer.Option("--correlation-id", help="Goes into logs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hand in an event. Without a payload it is {}."""

    async def work() -> bool:
        body = payload_of(source, payload, payload_file)
        for text in (event_type, policy, external_system, ordering_key, correlation_id):
            if text is not None and (not 1 <= len(text) <= MAX_TEXT_CHARS or not text.isprintable()):
                raise WrongUsage(f"Event types, names and keys have 1 to {MAX_TEXT_CHARS} printable characters.")
        async with open_desk(where) as desk:
            chosen = None
            if endpoint is not None:
                async with desk.session() as session:
                    chosen = (await find_endpoint(session, endpoint))["id"]
            event = NewEvent(
                desk.org_id,
                event_id or new_id(),
                event_type,
                body,
                endpoint_id=chosen,
                policy=policy,
                external_system=external_system,
                ordering_key=ordering_key,
                correlation_id=correlation_id or new_correlation_id(),
                submitted_by=act_of().actor,
            )
            [receipt] = await accept(desk.engine, [event], DatabaseClock())
        if receipt.verdict not in ("accepted", "duplicate"):
            _refuse(receipt.verdict, event)
        duplicate = receipt.verdict == "duplicate"
        if as_json:
            emit({"event_id": event.id, "status": receipt.status, "deduplicated": duplicate})
            return True
        say(str(event.id))
        if duplicate:
            note("It was known already and was not stored again.")
        elif receipt.status == "received":
            note(f'No endpoint takes "{event_type}": the event waits in the inbox.')
        return True

    run(work)


def payload_of(source: str | None, given: str | None, file: Path | None) -> bytes:
    if sum(way is not None for way in (source, given, file)) > 1:
        raise WrongUsage("Give the payload once: --payload, --payload-file, or - for stdin.")
    if source not in (None, STDIN):
        raise WrongUsage(f'"{source}" is not expected. A payload goes with --payload or --payload-file.')
    if source == STDIN:
        body = read_source(STDIN, MAX_PAYLOAD_BYTES)
    elif file is not None:
        body = read_source(str(file), MAX_PAYLOAD_BYTES)
    else:
        body = (given if given is not None else "{}").encode("utf-8", "surrogateescape")
    if len(body) > MAX_PAYLOAD_BYTES:
        raise WrongUsage(f"A payload has at most {MAX_PAYLOAD_BYTES} bytes.")
    try:
        json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise WrongUsage(f"The payload is not JSON: {problem}.") from None
    return body


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _refuse(verdict: str, event: NewEvent) -> NoReturn:
    why = {
        "conflict": f"Event {event.id} is known with another type or payload. Leave --event-id out for a new one.",
        "no_endpoint": "The endpoint was deleted in this moment.",
        "no_policy": f'There is no policy "{event.policy}". `redrive policy list` shows those there are.',
        "no_org": "The org does not exist any more.",
    }
    raise Refused(why[verdict])
