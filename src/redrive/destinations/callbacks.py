"""What a Python program registered to be told of dead letters, made ready to be awaited.

Put together by app for engine.callbacks. Plain functions run in daemon threads, as plain handlers do.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from redrive.core.notices import DeadLetterNotice
from redrive.destinations.threads import DaemonThreads

MAX_THREADS = 20  # as many calls as are made at once

Callback = Callable[[DeadLetterNotice], Awaitable[Any] | Any]


def awaitable(callback: Callback) -> Callable[[DeadLetterNotice], Awaitable[None]]:
    threads = DaemonThreads(MAX_THREADS, name="redrive-callback")

    async def call(notice: DeadLetterNotice) -> None:
        if inspect.iscoroutinefunction(callback):
            await callback(notice)
            return
        await threads.take()  # who waits too long for it has failed, like one who takes too long
        answer = await threads.run(partial(copy_context().run, callback, notice))
        if inspect.isawaitable(answer):
            await answer

    return call
