"""The processes that `redrive serve` runs, without the other commands: `python -m redrive.cli.child api`, or worker.

Whoever waits for a server to come up, or for a process that is started again, waits for what is loaded here.
"""

import gc
import sys
from importlib import import_module

import typer

from redrive.cli import serve, worker


def main() -> None:
    gc.disable()  # all that is loaded stays: to look through it for what is not needed takes a tenth of the time
    import_module("redrive.api_process" if sys.argv[1:] == ["api"] else "redrive.app")
    gc.enable()
    commands = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    for each in (serve, worker):
        each.add_to(commands)
    commands()


if __name__ == "__main__":
    main()
