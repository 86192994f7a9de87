"""One request on its way: waiting for a connection, opening one, or on one. No I/O of its own.

Made by `Client`, queued by the pool, carried by a connection. Whoever began it hears of its end by a callback, and
not by a future or a task: hundreds are in flight at once, and each of those would cost as much as the writing does.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from .messages import Request, Response

if TYPE_CHECKING:
    from .pool import Origin, Pool
    from .protocol import Connection

Answer = Response | Exception
"""How a call ends: a TransferError where there is no answer that could be judged, any other exception is a bug."""


class Call:
    """Ends once, by its deadline at the latest, unless it is cancelled: then nobody hears of it any more."""

    __slots__ = (
        "_ended",
        "connect_ms",
        "connection",
        "data",
        "deadline",
        "number",
        "opening",
        "origin",
        "request",
        "waits_in",
    )

    def __init__(self, request: Request, data: bytes, deadline: float, ended: Callable[[Answer], None]) -> None:
        self.request = request
        self.data = data
        self.deadline = deadline
        self._ended = ended
        self.connect_ms: float | None = None
        self.waits_in: Pool | None = None
        self.opening: asyncio.Task[None] | None = None
        self.connection: Connection | None = None

    # Set by the pool when the call must wait: where, and as which one in all.
    origin: "Origin"
    number: int

    @property
    def unwanted(self) -> bool:
        """Whether it was cancelled and has yet to say so; a turn would be wasted on it."""
        return False

    def end(self, answer: Answer) -> None:
        """Tell whoever began it. What goes wrong there is reported by the loop, as for any callback: the connection
        and the timer that call this have others to serve.
        """
        try:
            self._ended(answer)
        except Exception as error:  # noqa: BLE001 - see above
            context = {"message": "the end of a request could not be handled", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def cancel(self) -> None:
        """Its answer is wanted no more. A request that was written cannot be called back: its connection is closed."""
        self._ended = _nobody_hears
        if self.connection is not None:
            self.connection.abandon(self)
        elif self.opening is not None:
            self.opening.cancel()
        elif self.waits_in is not None:
            self.waits_in.leave(self)


class AwaitedCall(Call):
    """A call whose answer somebody awaits."""

    __slots__ = ("answer",)

    def __init__(self, request: Request, data: bytes, deadline: float) -> None:
        super().__init__(request, data, deadline, self._resolve)
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    @property
    def unwanted(self) -> bool:
        return self.answer.done()  # cancelled, but its task has not run yet

    def _resolve(self, answer: Answer) -> None:
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


def _nobody_hears(answer: Answer) -> None:
    """The end of a cancelled call."""
