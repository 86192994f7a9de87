"""`redrive tail`: what happens at this moment, in all processes and by all people, line by line."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from redrive.cli.connect import STATEMENT_WITHIN_S, reach, settings_of
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import cell, console, emit, note
from redrive.cli.runner import LOST, Refused, WrongUsage, run
from redrive.core.brief import words_of
from redrive.core.watching import WORDS, Wish
from redrive.settings import Settings
from redrive.store.db import Database
from redrive.store.orgs import find_org
from redrive.store.tail import Line, Tail, endpoints_called, open_tail

ANSWER_WITHIN_S = 3.0
LOOK_S = 0.1
ANSWER_AGAIN_WITHIN_S = 12.0  # after a loss: processes look for the database too, up to 5 s apart; we call every 4 s
OTHERS_WITHIN_S = 0.5
AGAIN_S = 1.0
MAX_FILTER_CHARS = 200
STYLES = {
    "accepted": "cyan",
    "delivered": "green",
    "failed": "yellow",
    "dead": "bold red",
    "lost": "yellow",
    "breaker": "magenta",
    "disabled": "bold magenta",
    "run": "blue",
}
# A try that failed may be the last one: who asks for what failed wants both.
MEANT = {"failed": ("failed", "dead")}

Status = Annotated[
    list[str] | None,
    typer.Option("--status", help=f"Only this: {', '.join(WORDS)}. May be given again.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    command(app, "tail")(tail)


def tail(
    place: Place,
    org: Annotated[str | None, typer.Option("--org", help="Only this organisation.", show_default=False)] = None,
    event_type: Annotated[str | None, typer.Option("--event-type", help="Of this type; * stands for anything.")] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="For this endpoint: its id or its name.")] = None,
    event: Annotated[UUID | None, typer.Option("--event", help="Only this event.")] = None,
    correlation: Annotated[str | None, typer.Option("--correlation", help="Of this correlation id.")] = None,
    status: Status = None,
    as_json: AsJson = False,
) -> None:
    """Follow transitions as they happen, in every process: events, retries, dead letters, runs, what people do."""

    async def work() -> bool:
        words = _words(status)
        _refuse_long({"--event-type": event_type, "--correlation": correlation, "--endpoint": endpoint})
        settings = settings_of(place)
        async with reach(settings) as url:
            direct = _direct(settings, url)
            org_id = await _org_id(settings, url, org)
            ids = None if endpoint is None else await endpoints_called(direct, org_id, endpoint)
            if ids == []:
                raise Refused(f'There is no endpoint with the id or name "{endpoint}" here.')
            wish = Wish(
                org_id=None if org_id is None else str(org_id),
                event_id=None if event is None else str(event),
                correlation_id=correlation,
                event_type=event_type,
                endpoint_ids=None if ids is None else tuple(map(str, ids)),
                words=words,
            )
            await _keep_following(direct, wish, as_json=as_json, names_org=org is None)
        return True

    run(work)


def _words(status: list[str] | None) -> tuple[str, ...] | None:
    if not status:
        return None
    if unknown := [word for word in status if word not in WORDS]:
        raise WrongUsage(f'There is no status "{unknown[0]}". There are: {", ".join(WORDS)}.')
    return tuple(meant for word in status for meant in MEANT.get(word, (word,)))


def _refuse_long(filters: Mapping[str, str | None]) -> None:
    """A filter is sent to all processes, in a notification, which is short."""
    for name, given in filters.items():
        if given is not None and (len(given) > MAX_FILTER_CHARS or not given.isprintable()):
            raise WrongUsage(f"{name} takes at most {MAX_FILTER_CHARS} characters, all of them printable.")


def _direct(settings: Settings, url: str) -> str:
    direct = settings.direct_url(url)
    if direct is None:
        raise Refused(
            "The database is reached through a pooler, which hands no notifications on: there is nothing to be seen."
            " Set "
            "REDRIVE_DATABASE_DIRECT_URL to the server itself, here and for the workers and API servers."
        )
    return direct


async def _org_id(settings: Settings, url: str, org: str | None) -> UUID | None:
    if org is None:
        return None
    engine = await Database.open(
        url,
        role="redrive_engine",
        size=1,
        name="redrive-tail",
        pooler=settings.pooler,
        command_timeout_s=STATEMENT_WITHIN_S,
    )
    try:
        org_id = await find_org(engine, org)
    finally:
        await engine.close()
    if org_id is None:
        raise Refused(f'There is no org named "{org}" here.')
    return org_id


async def _keep_following(direct: str, wish: Wish, *, as_json: bool, names_org: bool) -> None:
    """For ever. A database that was there is looked for again: who watches it restart wants to see what follows."""
    is_lost = was_there = False
    while True:
        try:
            async with open_tail(direct, wish) as watching:
                if is_lost:
                    note("The database is there again. What happened meanwhile was not seen.")
                within_s = ANSWER_AGAIN_WITHIN_S if was_there else ANSWER_WITHIN_S
                is_lost, was_there = False, True
                await _follow(watching, within_s, as_json=as_json, names_org=names_org)
        except LOST as lost:
            if not was_there:
                raise
            if not is_lost:
                note(f"The connection to the database was lost: {_sentence(lost)} It is looked for again.")
            is_lost = True
        await asyncio.sleep(AGAIN_S)


def _sentence(lost: Exception) -> str:
    return f"{cell(words_of(lost)).rstrip('. ')}."


async def _follow(watching: Tail, within_s: float, *, as_json: bool, names_org: bool) -> None:
    paper = console(soft_wrap=True)
    greeting = asyncio.create_task(_greet(watching, within_s))
    try:
        async for line in watching.lines():
            await _room()
            if as_json:
                emit(line)
            elif "missed" in line:
                note(f"… and {line['missed']} more, faster than they can be shown. A filter shows what you look for.")
            else:
                paper.print(_shown(line, names_org=names_org))
    finally:
        greeting.cancel()


async def _room() -> None:
    """Wait until whoever reads takes more. Writing would wait too, but hear nothing meanwhile: lines must be counted,
    and a server that cannot hand over its notifications keeps those of everybody.
    """
    loop, handle, is_free = asyncio.get_running_loop(), sys.stdout.fileno(), asyncio.Event()
    try:
        loop.add_writer(handle, is_free.set)
    except PermissionError:  # a file takes everything
        return
    try:
        await is_free.wait()
    finally:
        loop.remove_writer(handle)


async def _greet(watching: Tail, within_s: float) -> None:
    """Say who is watched, and who joins: where nobody is, silence would be taken for peace."""
    for _ in range(round(within_s / LOOK_S)):
        await asyncio.sleep(LOOK_S)
        if watching.processes:
            await asyncio.sleep(OTHERS_WITHIN_S)
            break
    else:
        note(
            "No worker and no API answers: only what people do is seen. Where some run, they may reach the database"
            " through a "
            "pooler without REDRIVE_DATABASE_DIRECT_URL, be of an older version, or be watched by too many already."
        )
    told: set[str] = set()
    while True:
        if new := watching.processes - told:
            note(f"{'Watching also' if told else 'Watching'} {_processes(new)}.")
            told |= new
        await asyncio.sleep(OTHERS_WITHIN_S)


def _processes(names: set[str]) -> str:
    return f"{len(names)} process{'es' * (len(names) > 1)}: {', '.join(map(cell, sorted(names)))}"


def _shown(line: Line, *, names_org: bool) -> Text:
    word = cell(line["what"])
    text = Text.assemble((_clock(line.get("at")), "dim"), " ", (f"{word:<10}", STYLES.get(word, "bold")))
    if names_org and line.get("org"):
        text.append(f" {cell(line['org'])}", style="dim")
    for part in (line.get("event_type") or line.get("workflow"), line.get("event_id") or line.get("run_id")):
        if part is not None:
            text.append(f" {cell(part)}")
    if line.get("endpoint"):
        text.append(f" → {cell(line['endpoint'])}")
    if said := _said(word, line):
        text.append(f"  {said}", style="dim" if word in ("accepted", "delivered") else "")
    return text


def _said(word: str, line: Mapping[str, Any]) -> str:
    attempt = line.get("attempt")
    match word:
        case "delivered":
            return f"at try {attempt}" if isinstance(attempt, int) and attempt > 1 else ""
        case "failed":
            what = f"try {attempt}: {cell(line.get('error'))}" if attempt else "lost with its worker"
            return f"{what}; again {_in(line.get('retry_in_ms'))}"
        case "dead":
            return f"{cell(line.get('reason'))}: {cell(line.get('last_error'))}"
        case "breaker":
            return f"{cell(line.get('old_state'))} → {cell(line.get('new_state'))}" + _because(line.get("why"))
        case "run":
            return f"{cell(line.get('old_status') or 'begins')} → {cell(line.get('new_status'))}"
        case "disabled":
            return _because(line.get("why")).lstrip(": ")
    if line.get("event") == "person_acted":
        did = "" if word != "acted" else f"{cell(line.get('action'))} "
        return f"{did}by {cell(line.get('user_id'))}" + _because(line.get("because"))
    return ""


def _because(why: object) -> str:
    return f": {cell(why)}" if why else ""


def _in(delay_ms: object) -> str:
    return f"in {delay_ms / 1000:g} s" if isinstance(delay_ms, int | float) else "when somebody says so"


def _clock(at: object) -> str:
    """The time of day: whoever watches knows the date."""
    return cell(at)[11:19]
