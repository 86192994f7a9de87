"""How work that runs beside other work is ended: cancelled until it has ended. Imports nothing of ours.

Called by whoever started it, at every depth: loops that go on after errors end by a cancellation alone.
"""

import asyncio
from typing import Any

CANCEL_AGAIN_S = 1.0


async def end(*works: "asyncio.Future[Any]", again_s: float = CANCEL_AGAIN_S) -> None:
    """Cancel them, and again: libraries lose a cancellation that meets the end of a connection. What came of them, or
    went wrong, is not raised here.
    """
    while pending := [work for work in works if not work.done()]:
        for work in pending:
            work.cancel()
        await asyncio.wait(pending, timeout=again_s)
