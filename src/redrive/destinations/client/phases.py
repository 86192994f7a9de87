"""The phases of a request with their times, as the error stack of a failed attempt shows them. No I/O.

Moments are noted where phases end, and put into words only after a failure: a delivery that succeeds pays for the
notes alone.
"""

from collections.abc import Iterator, Sequence

from redrive.core.address import Ip

MAX_CHAIN = 8
_NAME_CHARS = 10
_TIME_CHARS = 10


class Opening:
    """How a connection was opened. Moments are those of `monotonic`; a phase that has not ended has none."""

    __slots__ = ("address", "began", "connected", "failed", "label", "resolved", "resolved_at", "secured_at", "tls")

    def __init__(self, label: str, began: float) -> None:
        self.label = label
        self.began = began
        self.resolved: Sequence[Ip] = ()
        self.resolved_at: float | None = None
        self.failed: list[
            tuple[str, float, float, str]
        ] = []  # addresses that could not be connected to: since, until, why
        self.address: str | None = None
        self.connected: tuple[float, float] | None = None
        self.tls: str | None = None
        self.secured_at: float | None = None

    def lines(self, now: float) -> Iterator[str]:
        """Phase by phase; `now` ends the one that has not ended."""
        if self.resolved_at is None:
            yield _phase("resolve", now - self.began, "not finished")
            return
        yield _phase("resolve", self.resolved_at - self.began, ", ".join(map(str, self.resolved)))
        for address, since, until, why in self.failed:
            yield _phase("connect", until - since, f"{address}: {why}")
        if self.connected is None:
            if self.address is not None:
                since = self.failed[-1][2] if self.failed else self.resolved_at
                yield _phase("connect", now - since, f"{self.address}: not finished")
            return
        since, until = self.connected
        yield _phase("connect", until - since, str(self.address))
        if self.secured_at is not None:
            yield _phase("TLS", self.secured_at - until, self.tls or "")
        elif self.label.startswith("https:"):
            yield _phase("TLS", now - until, "not finished")


def exchange_lines(
    opening: Opening,
    opened_s_ago: float | None,
    *,
    send_s: float,
    first_byte_s: float | None,
    rest_s: float,
    wire_bytes: int,
) -> Iterator[str]:
    """The phases of a request on a connection that was opened for it (`opened_s_ago` None) or before."""
    if opened_s_ago is None:
        yield from opening.lines(opening.began)
    else:
        yield f"  reused connection to {opening.address}, opened {opened_s_ago:.1f} s before"
    yield _phase("send", send_s)
    if first_byte_s is None:
        yield _phase("first byte", rest_s, "none came")
    else:
        yield _phase("first byte", first_byte_s)
        yield _phase("body", rest_s, f"{wire_bytes} bytes with the headers")


def stack_of(label: str, lines: Iterator[str], end: str) -> str:
    return "\n".join([label, *lines, end])


def chain_of(error: BaseException) -> str:
    """An exception with those that caused it, one per line."""
    told: list[str] = []
    found: BaseException | None = error
    while found is not None and len(told) < MAX_CHAIN:
        told.append(f"{'caused by ' if told else ''}{type(found).__name__}: {found}")
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "\n".join(told)


def _phase(name: str, took_s: float, detail: str = "") -> str:
    return f"  {name:<{_NAME_CHARS}} {took_s * 1000:>{_TIME_CHARS}.1f} ms  {detail}".rstrip()
