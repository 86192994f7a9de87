"""Where a look for lanes to wake begins. Pure: the time is an argument.

Wake-ups that were done with stay in the index until vacuum may remove them, and while somebody holds a snapshot open
that is never. So a look begins behind those that were done with a while ago, by their numbers. From time to time it
begins at the start, for transactions that took their number long before they committed. Used by store.tasks.
"""

from collections import deque

LATE_S = 2.0  # between taking a number and the commit; what is later still is found from the start
FROM_START_EVERY_S = 0.5
FROM_START_PART = 20  # where that takes long it is done less often: a twentieth of the time at most
START = 0


class WakeFloor:
    def __init__(self) -> None:
        self._floor = START
        self._resumes_at: int | None = None  # behind a look that did not see all
        self._done: deque[tuple[float, int]] = deque()  # when, and up to which number all were done with
        self._from_start_at = 0.0

    def begin(self, now: float) -> int:
        """Behind which number to look now."""
        while self._done and self._done[0][0] <= now - LATE_S:
            self._floor = max(self._floor, self._done.popleft()[1])
        if self._resumes_at is not None:
            return self._resumes_at
        return START if now >= self._from_start_at else self._floor

    def note(
        self, began: float, ended: float, *, after: int, last: int | None, done_to: int | None, more: bool
    ) -> None:
        """A look behind `after` saw wake-ups up to `last`, and is done with all up to `done_to`; None: it saw none."""
        self._resumes_at = last if more else None
        if done_to is not None:
            self._done.append((ended, done_to))
        if after == START:
            self._from_start_at = ended + max(FROM_START_EVERY_S, FROM_START_PART * (ended - began))
