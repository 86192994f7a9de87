"""What commands print. Results go to stdout: JSON lines for machines, tables for people; remarks go to stderr.

Text from outside (error messages, names) is shown as text: control characters and bidi marks are escaped, and
nothing is read as markup. Where stdout is no terminal, tables are plain lines of any length.

All that is written to stdout is written here, or by `writing`: a full disk is no database that went away.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any, cast
from uuid import UUID

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.cli.runner import ReaderGone, Unwritable, leave
from redrive.store.paging import Page

MAX_CELL_CHARS = 200
NEVER_YEAR = datetime.max.year  # the database's infinity
NOTHING = "–"

_NOT_ASCII = re.compile(r"[^\n -~]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading. One that may give way is cut short where the terminal is narrow; the others never are."""

    title: str
    gives_way: bool = False


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Tell what stdout does not take from all else that goes wrong in a command, most of which is an OSError too."""
    try:
        yield
    except BrokenPipeError as gone:
        raise ReaderGone from gone
    except OSError as problem:
        raise Unwritable(
            f"What is to be printed cannot be written: {problem.strerror or problem}. What was done before stays done;"
            " make room there, or let it be written elsewhere."
        ) from problem


class _Written:
    """A stream as rich writes to it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with writing():
            return self._stream.write(text)

    def flush(self) -> None:
        with writing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(*, soft_wrap: bool = False, is_terminal: bool | None = None) -> Console:
    """For texts with colours. `is_terminal`: rather than to look each time."""
    stdout: IO[str] | None = sys.stdout  # None: it was closed, and rich writes nowhere
    paper = None if stdout is None else cast(IO[str], _Written(stdout))
    return Console(file=paper, highlight=False, soft_wrap=soft_wrap, force_terminal=is_terminal)


def emit(value: object) -> None:
    """One JSON line."""
    with writing():
        typer.echo(msgspec.json.encode(value))


def say(text: str) -> None:
    """A line of the result, for people."""
    with writing():
        typer.echo(text)


def note(text: str) -> None:
    """A remark: not part of the result. Where it cannot be written, the work goes on without."""
    try:
        typer.echo(text, err=True)
    except OSError:
        leave(sys.stderr)


def moment(at: datetime | None) -> datetime | None:
    """A time, or None for one that never comes."""
    return None if at is None or at.year == NEVER_YEAR else at


def cell(value: object) -> str:
    """A value in one line, safe to print."""
    match value:
        case None:
            return NOTHING
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}Z" if moment(value) else "never"
        case UUID():
            return str(value)
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
    text = str(value)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:MAX_CELL_CHARS])
    return shown + ("…" if len(text) > MAX_CELL_CHARS else "")


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """A table, or in its place a sentence on stderr where there is nothing to show."""
    if not rows:
        note(empty)
        return
    cells = [[cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells)
    else:
        _plain_table(columns, cells)


def document(value: object) -> None:
    """A JSON value over several lines; numbers as they were written, whatever is not ASCII escaped."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    say(_NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text))


def facts(pairs: Mapping[str, object]) -> None:
    """Names and values, one per line."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        say(f"{name:<{width}}  {cell(value)}")


def _rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        longest = max(len(column.title), *(len(row[place]) for row in rows))
        shown.add_column(
            column.title, no_wrap=True, overflow="ellipsis", min_width=None if column.gives_way else longest
        )
    for row in rows:
        shown.add_row(*(Text(value) for value in row))
    console().print(shown, crop=False, no_wrap=True, overflow="ignore")


def _plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.title.upper() for column in columns], *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        say("  ".join(f"{value:<{width}}" for value, width in zip(line, widths, strict=True)).rstrip())


def note_rest(page: Page, shown: int) -> None:
    """Say where a list is longer than what is shown of it."""
    if page.next_key is not None:
        total = "many" if page.total is None else page.total
        note(f"{shown} of {total} are shown. --limit shows more, a filter fewer.")
