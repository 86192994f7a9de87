"""Reading what a person hands to a command: in its words, from a file, or on stdin. Bounded.

Called by `redrive send`, `redrive workflows` and `redrive runs`.
"""

import sys
from pathlib import Path

from redrive.api.json_rules import BadJson, decode_strictly
from redrive.cli.runner import WrongUsage

STDIN = "-"
FILE_MARK = "@"


def read_source(source: str, most: int) -> bytes:
    """What a file holds, or stdin for -: up to one byte more than may be."""
    if source == STDIN:
        return sys.stdin.buffer.read(most + 1)
    try:
        with Path(source).open("rb") as stream:
            return stream.read(most + 1)
    except OSError as problem:
        raise WrongUsage(f"{source} cannot be read: {problem.strerror}.") from None


def json_of(given: str, what: str, most: int) -> bytes:
    """JSON as it was given: itself, or - for stdin, or @ and the name of a file. Its bytes are kept as they came."""
    if given == STDIN or given.startswith(FILE_MARK):
        body = read_source(given.removeprefix(FILE_MARK), most)
    else:
        body = given.encode("utf-8", "surrogateescape")
    value_of(body, what, most)
    return body


def value_of(body: bytes, what: str, most: int) -> object:
    """What a JSON text says. `what` names it to the person: “The input”."""
    if len(body) > most:
        raise WrongUsage(f"{what} has at most {most} bytes.")
    try:
        return decode_strictly(body)
    except BadJson as problem:
        place = ".".join(map(str, problem.place))
        where = f" ({place})" if place else ""
        raise WrongUsage(f"{what} is not JSON{where}: {problem.message}.") from None
