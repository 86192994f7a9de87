"""What tests of the lists begin with: tasks that failed, letters that died."""

from typing import Any

from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Receiver

RETRIES_S = (5, 30, 300)


async def failed(redrive: Installation, receiver: Receiver, count: int = 1, **endpoint: object) -> dict[str, Any]:
    """An endpoint whose receiver refuses for the time being, with so many entries in the retry queue."""
    receiver.usual = 503
    made = await redrive.api.endpoint(receiver.url, **{"external_system": "SAP", **endpoint})
    await redrive.api.batch(made["id"], count)
    await redrive.work()
    return made


async def died(
    redrive: Installation, receiver: Receiver, clock: ManualClock, count: int = 1, **endpoint: object
) -> dict[str, Any]:
    """The same after the last retry."""
    made = await failed(redrive, receiver, count, **endpoint)
    for seconds in RETRIES_S:
        clock.advance(seconds)
        await redrive.work()
    return made
