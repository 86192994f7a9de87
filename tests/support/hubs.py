"""`redrive hub` as a real process, connected.

async with hub(redrive.base_url, endpoint["id"], receiver.url) as program: ...
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.processes import ADMIN_KEY, START_WITHIN_S, Program, program, until


def told(running: Program, beginning: str) -> list[str]:
    """Remarks that begin like this."""
    return [text for line in running.log if (text := str(line.get("text", ""))).startswith(beginning)]


def forwarded(running: Program) -> list[dict[str, Any]]:
    """What it forwarded, as it says itself."""
    return [json.loads(line) for line in running.out]


@asynccontextmanager
async def hub(
    edge: str, endpoint_id: str, forward: str, *words: str, key: str = ADMIN_KEY, connected: bool = True
) -> AsyncIterator[Program]:
    where = ("--edge", edge, "--endpoint", endpoint_id, "--forward", forward)
    async with program("hub", "--json", *where, *words, env={"REDRIVE_KEY": key}) as running:
        if connected:
            await until(lambda: bool(told(running, "Connected")), within_s=START_WITHIN_S, why=lambda: running.log)
        yield running
