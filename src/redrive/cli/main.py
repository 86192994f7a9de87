"""The command line of Redrive: `redrive …`. Puts the commands together; each noun has a module of its own."""

from typing import Annotated

import typer

from redrive.cli import (
    alerts,
    audit,
    broker,
    check,
    consume,
    dead,
    doctor,
    endpoints,
    events,
    hub,
    keys,
    login_link,
    migrate,
    notices,
    operations,
    orgs,
    pausing,
    policy,
    retention,
    retries,
    runs,
    send,
    serve,
    stats,
    tail,
    top,
    users,
    worker,
    workflows,
)
from redrive.version import __version__

app = typer.Typer(
    name="redrive",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they show local variables: secrets
    help="Reliable delivery with retries, dead letters and redrive.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"redrive {__version__}")
        raise typer.Exit


@app.callback()
def redrive(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Reliable delivery with retries, dead letters and redrive."""


for single in (
    *(serve, worker, consume, hub, migrate, check, doctor, tail, top, login_link, send, pausing, stats, broker, audit),
    notices,
):
    single.add_to(app)
for name, noun in (
    ("dead", dead),
    ("operations", operations),
    ("events", events),
    ("endpoints", endpoints),
    ("keys", keys),
    ("users", users),
    ("orgs", orgs),
    ("policy", policy),
    ("alerts", alerts),
    ("workflows", workflows),
    ("runs", runs),
    ("retention", retention),
    ("retries", retries),
):
    app.add_typer(noun.app, name=name)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
