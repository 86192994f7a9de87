"""`redrive top`: an installation at a glance, again every two seconds. On a terminal it fills the screen; elsewhere it
is a few plain lines, or JSON."""

import asyncio
import sys
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from redrive.cli import top_view
from redrive.cli.connect import open_installation
from redrive.cli.keyboard import keys
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import cell, console, emit, say
from redrive.cli.runner import LOST, Refused, run
from redrive.core.brief import words_of
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.orgs import find_org, next_org
from redrive.store.overview import Overview, overview

REFRESH_S = 2.0
MAX_REFRESH_S = 3600.0

Org = tuple[UUID, str] | None


def add_to(app: typer.Typer) -> None:
    command(app, "top")(top)


def top(
    place: Place,
    org: Annotated[str | None, typer.Option("--org", help="Only this organisation.", show_default=False)] = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.5, max=MAX_REFRESH_S, help="Seconds between two looks.")
    ] = REFRESH_S,
    once: Annotated[bool, typer.Option("--once", help="Look once, print it, and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show rates, depths, workers, the worst endpoints and what lies, live. Keys: q quit, p pause, o next org."""

    async def work() -> bool:
        async with open_installation(place) as engine:
            chosen = await _chosen(engine, org)
            if once or (not as_json and not sys.stdout.isatty()):
                _print(await overview(engine, chosen, DatabaseClock()), as_json)
            elif as_json:
                while True:
                    _print(await overview(engine, chosen, DatabaseClock()), as_json)
                    await asyncio.sleep(every_s)
            else:
                await _Screen(engine, chosen, every_s).run()
        return True

    run(work)


async def _chosen(engine: Database, name: str | None) -> Org:
    if name is None:
        return None
    org_id = await find_org(engine, name)
    if org_id is None:
        raise Refused(f'There is no org named "{name}" here.')
    return org_id, name


def _print(seen: Overview, as_json: bool) -> None:
    if as_json:
        emit(top_view.shape(seen))
        return
    for line in top_view.lines(seen, width=100, height=top_view.UNLIMITED):
        say(line.plain.rstrip())


class _Screen:
    """The terminal, drawn anew at every look and at every key."""

    def __init__(self, engine: Database, org: Org, every_s: float) -> None:
        self._engine = engine
        self._org = org
        self._every_s = every_s
        self._stirred = asyncio.Event()
        self._is_over = False
        self._is_paused = False
        self._is_turned = False
        self._seen: Overview | None = None
        self._trouble: str | None = None

    async def run(self) -> None:
        terminal = console(is_terminal=True)  # one that is gone is none any more: rich would draw nothing, for ever
        actions = {"q": self._quit, "p": self._pause, "o": self._turn}
        with keys(actions), Live(console=terminal, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            while not self._is_over:
                await self._try_to_look()
                live.update(self._drawn(terminal), refresh=True)
                self._stirred.clear()
                try:
                    async with asyncio.timeout(self._every_s):
                        await self._stirred.wait()
                except TimeoutError:
                    continue

    async def _try_to_look(self) -> None:
        """A database that is away is looked for again, under what was seen last."""
        try:
            await self._look()
            self._trouble = None
        except LOST as lost:
            if self._seen is None:
                raise
            self._trouble = cell(words_of(lost))

    async def _look(self) -> None:
        if self._is_turned:
            self._is_turned = False
            self._org = await next_org(self._engine, self._org[1] if self._org is not None else None)
        elif self._is_paused and self._seen is not None:
            return
        self._seen = await overview(self._engine, self._org, DatabaseClock())

    def _drawn(self, terminal: Console) -> Text:
        assert self._seen is not None
        size = terminal.size
        keys_line = Text("q quit  p pause  o org" + ("   PAUSED" if self._is_paused else ""), style="dim")
        if self._trouble is not None:
            keys_line = Text(f"The database does not answer, this is old: {self._trouble}", style="bold red")
        drawn = top_view.lines(self._seen, width=size.width, height=max(1, size.height - 1))
        return Text("\n", no_wrap=True, overflow="ellipsis", end="").join([*drawn, keys_line])

    def _quit(self) -> None:
        self._is_over = True
        self._stirred.set()

    def _pause(self) -> None:
        self._is_paused = not self._is_paused
        self._stirred.set()

    def _turn(self) -> None:
        self._is_turned = True
        self._stirred.set()
