"""Calls what a Python program registered for dead letters. Run beside a worker whose program has such a callback.

Meets the store through core.ports. A notice is taken for a while, so that of many such workers one makes the call, and
another one where the first is killed meanwhile: the callback hears of it at least once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from redrive.core.brief import brief
from redrive.core.jobs import JobRecord
from redrive.core.notices import Call, DeadLetterNotice
from redrive.core.ports import NoticeStore
from redrive.engine.looking import keep_looking

LOOK_EVERY_S = 1.0
BATCH_CALLS = 20  # at once
CALL_TIMEOUT_S = 30.0
TAKEN_S = 60.0  # longer than a call may take
MOST_CALLS = 5
FIRST_PAUSE_S = 5.0  # after a call that failed; doubled with each
NEVER_ENDED = "Nothing was heard of the last call: its process died, or could not say."

log = structlog.get_logger("redrive.callbacks")

Callback = Callable[[DeadLetterNotice], Awaitable[None]]


class Callbacks:
    """`given_up` counts the notices that this process has given up."""

    def __init__(
        self,
        store: NoticeStore,
        callback: Callback,
        *,
        every_s: float = LOOK_EVERY_S,
        timeout_s: float = CALL_TIMEOUT_S,
        job: JobRecord | None = None,
    ) -> None:
        self._store = store
        self._callback = callback
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._job = job
        self.given_up = 0

    async def run(self) -> None:
        """Until cancelled."""
        await keep_looking(
            self.look, batch=BATCH_CALLS, every_s=self._every_s, log=log, failed="callbacks_failed", job=self._job
        )

    async def look(self) -> int:
        """Make the calls that are due, a batch at most; how many that were."""
        calls = await self._store.take_calls(limit=BATCH_CALLS, most_calls=MOST_CALLS, lease_s=TAKEN_S)
        for call in calls:
            if call.is_over:
                self._give_up(call, NEVER_ENDED)
        await asyncio.gather(*(self._call(call) for call in calls if not call.is_over))
        return len(calls)

    async def _call(self, call: Call) -> None:
        again_in_s: float | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._callback(DeadLetterNotice.of(call.notice))
        except Exception as error:  # noqa: BLE001 - the program's own: it must not stop the other calls
            again_in_s = self._after_failure(call, error)
        try:
            await self._store.end_call(call, again_in_s=again_in_s)
        except Exception as error:  # noqa: BLE001 - the database may be away: the call is made again when its time is up
            log.warning("callbacks_failed", error=brief(error), again_in_s=TAKEN_S)

    def _after_failure(self, call: Call, error: Exception) -> float | None:
        if call.calls < MOST_CALLS:
            pause_s: float = FIRST_PAUSE_S * 2 ** (call.calls - 1)
            log.warning("callback_failed", **_facts(call, brief(error)), again_in_s=pause_s)
            return pause_s
        self._give_up(call, brief(error))
        return None

    def _give_up(self, call: Call, error: str) -> None:
        self.given_up += 1
        log.error("callback_given_up", **_facts(call, error), given_up=self.given_up)


def _facts(call: Call, error: str) -> dict[str, Any]:
    return {"notice_id": str(call.notice.id), "org": call.notice.org, "calls": call.calls, "error": error}
