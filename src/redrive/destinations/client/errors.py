"""What can go wrong between us and a destination, as one exception with a kind. No I/O.

Raised by the delivering client; its callers turn it into an outcome.
"""

from enum import StrEnum


class FailureKind(StrEnum):
    """At which step the transfer failed."""

    DNS = "dns"
    REFUSED_ADDRESS = "refused_address"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    RESET = "reset"
    MALFORMED = "malformed"
    CLOSED = "closed"
    BUSY = "busy"  # no connection came free: nothing was tried


class TransferError(Exception):
    """No answer that could be judged. `sent` says whether the destination may have seen the request.

    The message is for people. It names scheme, host and port at most: paths and queries carry secrets.
    """

    __slots__ = ("kind", "message", "sent", "stack")

    def __init__(self, kind: FailureKind, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.sent = sent
        self.stack: str | None = None  # the phases with their times, and what caused it

    def __repr__(self) -> str:
        return f"TransferError({self.kind.value}, {self.message!r}, sent={self.sent})"
