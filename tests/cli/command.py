"""The real command, in a process of its own, with nothing of ours in its environment but what a test says."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {**kept, "COLUMNS": "80", **own}


async def redrive(
    *words: str,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> Ended:
    """Run `redrive …` to its end. `url` names the database, by the environment."""
    database = {"REDRIVE_DATABASE_URL": url, "REDRIVE_SECRET_KEY": SECRET_KEY} if url is not None else {}
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_env(**{**database, **(env or {})}),
        cwd=cwd or Path("/"),
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), WITHIN_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())
