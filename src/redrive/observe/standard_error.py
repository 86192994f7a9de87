"""Standard error as log lines need it: writing raises nothing, and keeps nobody waiting for long.

A line that cannot be written must not undo what it tells of, nor stop the deliveries. Its reader may be gone, its disk
full, or the pipe full that nobody reads: then lines are left out, counted, and told of once there is room. Used by
observe.logs.
"""

import os
import select
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE_S = 1.0  # whoever takes nothing for so long is not waited for again until they do
PIECE_BYTES = select.PIPE_BUF  # a pipe takes them whole: lines of several processes do not mix
BUSY_S = 0.001


class StandardError:
    """Binary, unbuffered. `lost_line` makes the line that says how many are missing."""

    def __init__(self, fd: int, lost_line: Callable[[int], bytes]) -> None:
        self._fd = fd
        self._lost_line = lost_line
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._is_stuck = False
        self._is_torn = False  # what was written last is the beginning of a line
        self._lost = 0

    def write(self, data: bytes) -> int:
        with self._lock:
            until = time.monotonic() + (0.0 if self._is_stuck else PATIENCE_S)
            for piece in _pieces(data):
                told = self._lost_line(self._lost) if self._lost else b""
                if self._put((b"\n" if self._is_torn else b"") + told + piece, until):
                    self._lost = 0
                else:
                    self._lost += max(1, piece.count(b"\n"))
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def _put(self, piece: bytes, until: float) -> bool:
        """Whether all of it was written. Of a line longer than a pipe takes at once, a part may have been."""
        rest = memoryview(piece)
        while rest:
            self._is_stuck = not self._poll.poll(max(0.0, until - time.monotonic()) * 1000)
            if self._is_stuck:
                return False
            try:
                written = os.write(self._fd, rest[:PIECE_BYTES])
            except BlockingIOError:  # somebody made it so for all who share it, and there is a little room only
                if time.monotonic() >= until:
                    return False
                time.sleep(BUSY_S)
                continue
            except OSError:
                return False
            rest = rest[written:]
            self._is_torn = bool(rest)
        return True


class AsText:
    """The same for whoever writes text."""

    def __init__(self, binary: StandardError, encoding: str) -> None:
        self._binary = binary
        self._encoding = encoding

    def write(self, text: str) -> int:
        self._binary.write(text.encode(self._encoding, "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""


def _pieces(data: bytes) -> Iterator[bytes]:
    """As many whole lines as are written at once; a longer line is one piece."""
    start = 0
    while start < len(data):
        end = len(data)
        if end - start > PIECE_BYTES:
            end = data.rfind(b"\n", start, start + PIECE_BYTES) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
