"""Standard error as log lines need it: writing raises nothing, and keeps nobody waiting for long.

A line that cannot be written must not undo what it tells of, nor stop the deliveries. Its reader may be gone, its disk
full, or the pipe full that nobody reads: then lines are left out, counted, and told of once there is room. Used by
observe.logs.
"""

import os
import select
import stat
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE_S = 1.0  # whoever takes nothing for so long is not waited for again until they do
PIECE_BYTES = select.PIPE_BUF  # a pipe takes them whole: lines of several processes do not mix
FILE_PIECE_BYTES = 256 * 1024  # a file takes more whole, and keeps nobody waiting for a reader
BUSY_S = 0.001


class StandardError:
    """Binary, unbuffered. `lost_line` makes the line that says how many are missing; `count_lost` hears at once."""

    def __init__(
        self, fd: int, lost_line: Callable[[int], bytes], count_lost: Callable[[int], object] = lambda _: None
    ) -> None:
        self._fd = fd
        self._lost_line = lost_line
        self._count_lost = count_lost
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._is_file = _is_file(fd)
        self._piece_bytes = FILE_PIECE_BYTES if self._is_file else PIECE_BYTES
        self._is_stuck = False
        self._is_torn = False  # what was written last is the beginning of a line
        self._lost = 0
        self._until: float | None = None  # how long the write that is under way may wait, once it does

    def write(self, data: bytes) -> int:
        with self._lock:
            self._until = None
            for piece in (data,) if len(data) <= self._piece_bytes else _pieces(data, self._piece_bytes):
                if self._lost or self._is_torn:
                    told = self._lost_line(self._lost) if self._lost else b""
                    left = self._put((b"\n" if self._is_torn else b"") + told + piece)
                else:
                    left = self._put(piece)
                if len(left) > len(piece):  # not even the line that tells of those before was written
                    left, before = piece, self._lost
                else:
                    before = 0
                lost = _lines_in(left)
                self._lost = before + lost
                if lost:
                    self._count_lost(lost)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def _put(self, piece: bytes) -> bytes:
        """What of it was not written. It may begin in the middle of a line."""
        while piece and (self._is_file or self._poll.poll(0) or self._has_room_soon()):
            self._is_stuck = False
            try:
                written = os.write(self._fd, piece if len(piece) <= self._piece_bytes else piece[: self._piece_bytes])
            except BlockingIOError:  # somebody made it so for all who share it, and there is a little room only
                if self._left_s() <= 0:
                    return piece
                time.sleep(BUSY_S)
                continue
            except OSError:
                return piece
            self._is_torn = written < len(piece) and not piece.endswith(b"\n", 0, written)
            piece = piece[written:]
        return piece

    def _has_room_soon(self) -> bool:
        self._is_stuck = self._is_stuck or not self._poll.poll(self._left_s() * 1000)
        return not self._is_stuck

    def _left_s(self) -> float:
        """How long this write may wait yet."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + PATIENCE_S
        return max(0.0, self._until - now)


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


def _is_file(fd: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


def _lines_in(left: bytes) -> int:
    """With those of which only an end is there, or a beginning."""
    return left.count(b"\n") + bool(left and not left.endswith(b"\n"))


def _pieces(data: bytes, most: int) -> Iterator[bytes]:
    """As many whole lines as are written at once; a longer line is one piece."""
    start = 0
    while start < len(data):
        end = len(data)
        if end - start > most:
            end = data.rfind(b"\n", start, start + most) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
