"""Exceptions that a handler raises to steer its task. Pure; public as redrive.GiveUp and redrive.RetryLater.

Read by core.classify.failure_of; any other exception is classified by its kind.
"""

import math
from datetime import timedelta

from redrive.core.outcome import Category
from redrive.core.policy import MAX_DELAY_S


class GiveUp(Exception):
    """Do not try this task again: it is a dead letter at once.

    `category`: the class that its dead letter shows, `unknown` unless given. Another word counts as not given: a slip
    of the pen must not turn the wish to give up into another exception.
    """

    def __init__(self, *args: object, category: Category | str | None = None) -> None:
        super().__init__(*args)
        self.category = Category(category) if category in set(Category) else None


class RetryLater(Exception):
    """Try this task again, whatever its policy thinks of the error, as long as retries are left.

    `after` (seconds or a timedelta) is a floor for the next delay, cut to the policy's max_retry_after_s.
    """

    def __init__(self, *args: object, after: float | timedelta | None = None) -> None:
        super().__init__(*args)
        self.after = _bounded(after)


def _bounded(after: float | timedelta | None) -> timedelta | None:
    """A senseless delay must not turn the wish to retry into another exception, so it is bent into range."""
    if after is None:
        return None
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    bent = min(max(seconds, 0.0), MAX_DELAY_S)  # first: isnan refuses integers that no float holds
    return None if math.isnan(bent) else timedelta(seconds=bent)
