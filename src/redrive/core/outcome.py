"""What happened when a task was tried: values, not exceptions. Pure.

Made by destinations and by core.classify, judged by core.decide, stored by store.tasks.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Category(StrEnum):
    """The class of a failure; the first four are what a broker calls transient."""

    TIMEOUT = "timeout"
    NETWORK = "network"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    VALIDATION = "validation"
    CONFIGURATION = "configuration"
    UNKNOWN = "unknown"


TRANSIENT: frozenset[Category] = frozenset(
    {Category.TIMEOUT, Category.NETWORK, Category.RATE_LIMITED, Category.SERVER_ERROR}
)
RETRIED_BY_DEFAULT: frozenset[Category] = TRANSIENT | {Category.UNKNOWN}


class Steer(StrEnum):
    """What a handler asked for, whatever the class of its failure."""

    GIVE_UP = "give_up"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Success:
    status_code: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A try that failed. `possible_duplicate`: the receiver may have acted on it all the same.

    `error_type` is the name of the exception's class, where there was one.
    """

    category: Category
    message: str
    status_code: int | None = None
    stack: str | None = None
    retry_after: timedelta | None = None
    steer: Steer | None = None
    possible_duplicate: bool = False
    error_type: str | None = None


Outcome = Success | Failure
