"""How a command ends: its exit code, and what a person is told when it cannot be carried out.

    0  done                              2  wrong usage: flags, settings, arguments
    1  refused, or problems were found   3  the database cannot be reached or used
                                         4  what is to be printed cannot be written

Called by every command; the only place that turns exceptions into messages.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TextIO

import asyncpg
import typer

from redrive.observe.logs import set_up_logs
from redrive.observe.traces import TracesUnavailable
from redrive.settings import SettingsError
from redrive.store.migrate import MigrationError
from redrive.store.postgres_errors import EmbeddedError
from redrive.store.seal import SealError

DONE = 0
REFUSED = 1
WRONG_USAGE = 2
UNREACHABLE = 3
UNWRITABLE = 4
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
NO_ANSWER = (
    "The database did not answer in time: it is overloaded, or something holds a lock (`redrive doctor` says who). "
    "If something was to be changed, it is not known whether it was: look before you try again."
)

Work = Coroutine[Any, Any, bool]

# A database that is away for a while: whatever looks on looks for it again.
LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class CliError(Exception):
    """A command that cannot be carried out. The message says what happened, why, and what to do."""

    code = REFUSED


class Refused(CliError):
    """What was asked is not possible as things are."""


class WrongUsage(CliError):
    """What was asked makes no sense."""

    code = WRONG_USAGE


class Unreachable(CliError):
    """The database cannot be reached, or is not one of ours."""

    code = UNREACHABLE


class Unwritable(CliError):
    """What is to be printed cannot be written. No OSError: those are taken for a database, or an edge, that is lost."""

    code = UNWRITABLE


class ReaderGone(Exception):
    """Whoever read our output has seen enough. No OSError either."""


def run(work: Callable[[], Work], *, level: str = "warning") -> None:
    """Carry out a command; it answers whether all is well. Ends the program. `level`: of the lines that are shown."""
    set_up_logs("console", level, service="redrive-cli")
    run_service(work, asyncio.run)


def run_service(work: Callable[[], Work], runner: Callable[[Work], bool]) -> None:
    """`run` for the processes that stay: they set up their own logs, and choose their event loop."""
    raise typer.Exit(_code_of(work, runner))


def _code_of(work: Callable[[], Work], runner: Callable[[Work], bool]) -> int:
    try:
        return DONE if runner(work()) else REFUSED
    except Unwritable as problem:
        leave(sys.stdout)
        return _told(str(problem), problem.code)
    except CliError as problem:
        return _told(str(problem), problem.code)
    except SettingsError as problem:
        return _told(str(problem), WRONG_USAGE)
    except (MigrationError, SealError, TracesUnavailable) as problem:
        return _told(str(problem), REFUSED)
    except EmbeddedError as problem:
        return _told(str(problem), UNREACHABLE)
    except (ReaderGone, BrokenPipeError):
        leave(sys.stdout)
        return DONE
    except asyncpg.InsufficientPrivilegeError as problem:
        return _told(f"The database user may not do this: {problem}. Use the one that ran `redrive migrate`.", REFUSED)
    except (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError):
        return _told(NO_ANSWER, UNREACHABLE)
    except (
        ConnectionError,
        asyncpg.PostgresConnectionError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    ) as problem:
        return _told(
            f"The connection to the database was lost: {problem}. What was done before stays done; try again.",
            UNREACHABLE,
        )
    except KeyboardInterrupt:
        return INTERRUPTED


def _told(message: str, code: int) -> int:
    try:
        typer.echo(message, err=True)
    except OSError:  # as full, or as closed, as stdout
        leave(sys.stderr)
    return code


def leave(stream: TextIO) -> None:
    """What it could not take must not be tried again when Python ends: that would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
