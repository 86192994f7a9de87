"""Calling what a user registered: within its time, and whatever it raises is a failure, not an exception.

Called by destinations.python and by the consumer of a broker's queue.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from redrive.core.classify import failure_of
from redrive.core.outcome import Failure


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


async def call_handler(call: Callable[[], Awaitable[Any]], name: str, timeout_s: float) -> Returned | Failure:
    """Call a handler within its time. Whatever it raises is a failed try, even SystemExit: that would end the loop."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return Returned(await call())
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _told_to_stop():
            raise
        if isinstance(error, TimeoutError) and limit.expired():
            # A thread cannot be stopped: it may still act after this.
            message = f"The handler {name!r} did not finish within {timeout_s:g} s."
            return replace(failure_of(error, traceback.format_exc()), message=message, possible_duplicate=True)
        return failure_of(error, traceback.format_exc())


def _told_to_stop() -> bool:
    """Whether this try itself is being cancelled. Else a CancelledError comes from something the handler waited for."""
    this = asyncio.current_task()
    return this is not None and this.cancelling() > 0
