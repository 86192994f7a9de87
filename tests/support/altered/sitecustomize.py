"""Builds of Redrive that are wrong on purpose, to see whether the tests would notice; and a machine with a wrong clock.

Python imports this file at the start of a process that has this folder in PYTHONPATH; ALTERED says what to break.
Put there by support.processes.altered.
"""

import os

CLOCK_OFF_S = 86_400.0
COMMIT_LATE_S = 0.3


def forget_the_fence() -> None:
    """Settle whoever holds the lease now."""
    from redrive.store import db

    plain = db.query

    def query(name: str) -> str:
        text = plain(name)
        if not name.startswith("settle_"):
            return text
        without = text.replace(" AND t.fence = r.fence", "")
        assert without != text, f"{name} has no fence to forget"
        return without

    db.query = query  # type: ignore[assignment]


def answer_before_the_commit() -> None:
    """Say accepted at once, store a little later. Every other request only: some events are there after the crash."""
    import asyncio
    import itertools
    from collections.abc import Sequence
    from typing import Any

    from redrive.api.committer import Committer, Told
    from redrive.store.events import NewEvent, Receipt

    plain = Committer.hand_in
    requests = itertools.count()

    def hand_in(
        self: Committer,
        events: Sequence[NewEvent],
        tell: Told,
        *,
        alone: bool = False,
        **more: Any,
    ) -> None:
        if next(requests) % 2 == 0:
            plain(self, events, tell, alone=alone, **more)
            return

        def store() -> None:
            plain(self, events, lambda _: None, alone=alone, **more)

        loop = asyncio.get_running_loop()
        loop.call_later(COMMIT_LATE_S, store)
        loop.call_soon(tell, [Receipt("accepted", "queued") for _ in events])

    Committer.hand_in = hand_in  # type: ignore[method-assign]


def shift_the_clock() -> None:
    """Tomorrow, for whoever of Redrive asks this process for the time of day."""
    import datetime
    import sys
    import time

    import redrive.app  # noqa: F401  # first, or its types would be built on a datetime that is not the real one

    true_time, plain = time.time, datetime.datetime

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Shifted":
            return cls.fromtimestamp(true_time() + CLOCK_OFF_S, tz)

    time.time = lambda: true_time() + CLOCK_OFF_S
    datetime.datetime = Shifted  # type: ignore[misc]
    for name, module in list(sys.modules.items()):
        if name.startswith("redrive") and getattr(module, "datetime", None) is plain:
            module.datetime = Shifted  # type: ignore[attr-defined]


def acknowledge_before_the_copy() -> None:
    """Take a message from the broker at once, and publish its copy a little later."""
    import asyncio

    from redrive.broker.publisher import Outgoing
    from redrive.sources.delivery import Delivery
    from redrive.sources.onward import Onward

    copying: set[asyncio.Task[None]] = set()

    async def hand_over(self: Onward, delivery: Delivery, copy: Outgoing) -> None:
        async def publish() -> None:
            await asyncio.sleep(COMMIT_LATE_S)
            await self._publisher.publish(copy, None)

        await self.acknowledge(delivery)
        copying.add(asyncio.create_task(publish()))

    Onward._hand_over = hand_over  # type: ignore[method-assign]


def collect_before_the_commit() -> None:
    """Take dead messages from the broker at once, and store them a little later."""
    import asyncio

    from redrive.sources import collector
    from redrive.sources.collector import Collector

    async def store(self: Collector, subscription: collector._Subscription) -> None:
        while True:
            batch = await collector._batch(subscription.inbox)
            await collector._acknowledge(subscription, batch)
            await asyncio.sleep(COMMIT_LATE_S)
            await self._kept(subscription, batch)

    Collector._store = store  # type: ignore[method-assign]


BUILDS = {
    "no_fence": forget_the_fence,
    "early_answer": answer_before_the_commit,
    "early_acknowledgement": acknowledge_before_the_copy,
    "early_collection": collect_before_the_commit,
    "clock_off": shift_the_clock,
}

if "ALTERED" in os.environ:
    BUILDS[os.environ["ALTERED"]]()
