"""`redrive stats`: where an org stands, in numbers."""

from dataclasses import asdict

import typer

from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import emit, facts
from redrive.cli.runner import run
from redrive.store.clock import DatabaseClock
from redrive.store.stats import stats as store_stats


def add_to(app: typer.Typer) -> None:
    command(app, "stats")(stats)


def stats(where: Where, as_json: AsJson = False) -> None:
    """Show an org's numbers: events, tasks, dead letters, endpoints, what is paused, what is due longest."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            found = asdict(await store_stats(session, DatabaseClock()))
        if as_json:
            emit(found)
            return True
        facts({name.replace("_", " "): _line(value) for name, value in found.items()})
        return True

    run(work)


def _line(value: object) -> object:
    """A group of numbers in one line, its names behind them: `3 waiting, 0 leased`."""
    if not isinstance(value, dict):
        return value
    shown = {name: ("yes" if n else "no") if isinstance(n, bool) else n for name, n in value.items()}
    return ", ".join(f"{n} {name}" for name, n in shown.items())
