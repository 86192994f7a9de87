"""What a worker and a consumer tell those who measure them. Pure: the engine knows no metrics, only this port."""

from collections.abc import Sequence
from typing import Protocol

from redrive.core.ports import Claim, Settled


class WorkerMeter(Protocol):
    """Told once for each batch, never for each task: that must cost next to nothing."""

    def claimed(self, claim: Claim, took_s: float) -> None:
        """A claim was answered."""
        ...

    def claim_failed(self) -> None:
        """The database could not be asked, or refused."""
        ...

    def settled(self, settled: Sequence[Settled], took_s: float) -> None:
        """A batch was written. `took_s` counts from the first try to write it."""
        ...


class ConsumerMeter(Protocol):
    """Told of each message of a broker that a consumer has dealt with, by its queue."""

    def succeeded(self, queue: str, took_s: float) -> None: ...

    def retried(self, queue: str, category: str, took_s: float) -> None: ...

    def died(self, queue: str, reason: str, category: str, took_s: float | None) -> None:
        """`took_s`: None where it was not tried once more."""
        ...
