"""The real command, in a process of its own, with nothing of ours in its environment but what a test says.

`redrive` runs one to its end, begun by support.begun; COMMAND is the same for tests that begin it themselves.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.begun import begin, own_env

from .world import SECRET_KEY

COMMAND = (sys.executable, "-m", "redrive.cli.main")
WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """stdout as JSON lines: fails on anything else."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        [only] = self.objects
        return only


def clean_env(**own: str) -> dict[str, str]:
    return own_env(**{"COLUMNS": "80", **own})


async def redrive(
    *words: str,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> Ended:
    """Run `redrive …` to its end. `url` names the database, by the environment."""
    database = {"REDRIVE_DATABASE_URL": url, "REDRIVE_SECRET_KEY": SECRET_KEY} if url is not None else {}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        streams = [stream.fileno() for stream in (given, out, err)]
        running = await begin(words, streams, env=clean_env(**{**database, **(env or {})}), cwd=cwd or "/")
        try:
            code = await asyncio.wait_for(running.wait(), WITHIN_S)
        except TimeoutError:
            running.kill()
            raise
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode(), err.read().decode())
