"""Options that several commands share, and how a command gets them. Pure but for the clock of relative times.

An option group is a dataclass whose fields are options. A command names the group as a parameter and gets it
filled in; the person at the terminal sees its fields as options.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints
from uuid import UUID

import typer

from redrive.core.dead_letter_lists import KINDS
from redrive.store.orgs import DEFAULT_ORG
from redrive.store.paging import MAX_PAGE_ROWS

F = TypeVar("F", bound=Callable[..., None])

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_time(text: str) -> datetime:
    """A time in ISO 8601, in UTC where it names no zone."""
    try:
        when = datetime.fromisoformat(text)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time. Write 2026-01-31 or 2026-01-31T09:00:00Z.") from None


def parse_when(text: str) -> datetime:
    """A time, or how long ago: 30m, 2h, 7d."""
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    return parse_time(text)


def parse_end(text: str) -> datetime:
    """The end of a span. The day that a date names is part of it."""
    is_date = re.fullmatch(r"\d{4}-\d\d-\d\d", text)
    return parse_when(text) + timedelta(days=1) if is_date else parse_when(text)


@dataclass(frozen=True, slots=True)
class Place:
    """Which database."""

    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder of the embedded PostgreSQL and of generated keys.", show_default=False),
    ] = None
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            help="PostgreSQL to use instead. REDRIVE_DATABASE_URL keeps the password out of the list of processes.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Where(Place):
    """Which database, and which org in it."""

    org: Annotated[str, typer.Option("--org", help="The organisation.")] = DEFAULT_ORG


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters."""

    state: Annotated[str, typer.Option("--state", help="open, replaying, resolved, ignored or deleted.")] = "open"
    kind: Annotated[str | None, typer.Option("--kind", help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.")] = None
    event_type: Annotated[str | None, typer.Option("--event-type", help="Of this type; * stands for anything.")] = None
    external_system: Annotated[str | None, typer.Option("--external-system", help="For this system.")] = None
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="For this endpoint: its id or its name.")] = None
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why it died: permanent, exhausted, expired or skipped.")
    ] = None
    category: Annotated[str | None, typer.Option("--category", help="Class of the last error, like timeout.")] = None
    fingerprint: Annotated[str | None, typer.Option("--fingerprint", help="Of this group of like failures.")] = None
    since: Annotated[
        datetime | None,
        typer.Option("--since", parser=parse_when, metavar="TIME", help="First failed then or later; 2h, 7d: ago."),
    ] = None
    until: Annotated[
        datetime | None,
        typer.Option(
            "--until", parser=parse_end, metavar="TIME", help="First failed before then; a date includes that day."
        ),
    ] = None
    q: Annotated[
        str | None, typer.Option("--q", help="The error, the event type or an id of the event holds this text.")
    ] = None
    event: Annotated[UUID | None, typer.Option("--event", metavar="EVENT_ID", help="Of this event.")] = None
    correlation: Annotated[
        str | None, typer.Option("--correlation", metavar="CORRELATION_ID", help="Of events with this correlation id.")
    ] = None


AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON, one object per line, and nothing else.")]
Because = Annotated[str | None, typer.Option("--because", help="Why; goes into the audit.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE_ROWS, help="How many at most.")]
Id = Annotated[UUID, typer.Argument(help="The id.")]
Called = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Its id or its name.")]


def command(app: typer.Typer, name: str, *, hidden: bool = False) -> Callable[[F], F]:
    """Register a function as a command, with its option groups taken apart."""

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in groups:
                parameters += _options(groups[parameter.name])
            else:
                parameters.append(
                    parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
                )

        def call(**given: Any) -> None:
            made = {
                name: group(**{field.name: given.pop(field.name) for field in fields(group)})
                for name, group in groups.items()
            }
            function(**given, **made)

        # typer reads the options from the signature and the annotations.
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__doc__ = function.__doc__
        app.command(name, hidden=hidden)(call)
        return function

    return register


def _options(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)

    def option(field: Field[Any]) -> inspect.Parameter:
        return inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )

    return [option(field) for field in fields(group)]
