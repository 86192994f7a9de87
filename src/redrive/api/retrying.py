"""What a person's retry came to by the time of the answer: whether a try began. Used by the routes that retry one."""

import asyncio
from typing import Literal

from redrive.api.context import ApiContext
from redrive.store import retry_queue
from redrive.store.db import Record
from redrive.store.keys import Caller

BEGINS_WITHIN_S = 1.0
FIRST_LOOK_S = 0.01
LOOKS_GROW_BY = 1.6

Warned = Literal["no_worker"] | None


async def retried(context: ApiContext, caller: Caller, row: Record) -> tuple[Record, Warned]:
    """The task as it stands once its try has begun, or when that takes too long; and what stands in the way.

    `row` is the task as it was when the person's wish was written down. One that is not due now is not waited for.
    """
    async with context.tenant(caller) as session:
        if not await retry_queue.is_served(session, row["queue"], context.clock):
            return row, "no_worker"
    if not row["expedited"]:
        return row, None
    pause_s = FIRST_LOOK_S
    try:
        async with asyncio.timeout(BEGINS_WITHIN_S):
            while True:
                await asyncio.sleep(pause_s)
                pause_s *= LOOKS_GROW_BY
                async with context.tenant(caller) as session:
                    now = await retry_queue.get_entry(session, row["id"])
                if now is None or now["fence"] != row["fence"] or not now["expedited"]:
                    return now or row, None
    except TimeoutError:
        return row, None
