"""Failed logins, counted in the database so that every process knows of them: by e-mail and by address.

A try is counted as failed before the password is looked at, and forgiven where it was right: a hundred tries at the
same moment are counted as a hundred. Called by the API's login.
"""

import hashlib
from datetime import timedelta

from redrive.core import throttle
from redrive.store.clock import Clock
from redrive.store.db import Database

_WINDOW = timedelta(seconds=throttle.WINDOW_S)


def _subject(kind: str, value: str) -> bytes:
    return hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogatepass")).digest()


async def begin(db: Database, email: str, address: str, clock: Clock) -> float:
    """Count a try. Seconds to wait before one may be made: 0.0 where this one may."""
    subjects = [_subject("email", email), _subject("address", address)]
    now = clock.now()
    async with db.transaction() as session:
        await session.execute("open_attempts", subjects, now, _WINDOW)
        rows = await session.fetch("lock_attempts", subjects, now)
        wait_s = max((throttle.wait_s(row["failures"], row["since_s"]) for row in rows), default=0.0)
        if wait_s == 0.0:
            for row in rows:
                failures = throttle.failures_after(row["failures"], row["since_s"])
                await session.execute("count_attempt", row["subject"], failures, now)
    return wait_s


async def forgive(db: Database, email: str, address: str, clock: Clock) -> None:
    """It succeeded: the e-mail's failures are forgotten. The address keeps those of others."""
    subjects = [_subject("email", email), _subject("address", address)]
    async with db.transaction() as session:
        await session.fetch("lock_attempts", subjects, clock.now())  # in the order of all others: no deadlock
        await session.execute("forgive_attempts", *subjects)
