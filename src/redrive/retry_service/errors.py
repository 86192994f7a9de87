"""What the retry service raises where something is not done, in the sentences of the HTTP API."""

from uuid import UUID

from redrive.api.routes.retry_queue import explained
from redrive.store.clock import Clock
from redrive.store.db import Session
from redrive.store.retry_queue import Refusal

Id = UUID | str


class RetryServiceError(Exception):
    """What was asked for was not done. The message says why, and what to do."""


class NotFound(RetryServiceError):
    """There is no such thing, or it belongs to another org."""


class NotPossible(RetryServiceError):
    """It cannot be done now, or not with this."""


async def error_of(session: Session, task_id: UUID, refusal: Refusal, noun: str, clock: Clock) -> RetryServiceError:
    """The sentence that a caller of the HTTP API would get."""
    problem = await explained(session, task_id, refusal, noun, clock)
    return NotFound(problem.detail) if problem.status == 404 else NotPossible(problem.detail)


def id_of(given: Id, noun: str) -> UUID:
    """What is no id names nothing."""
    if isinstance(given, UUID):
        return given
    try:
        return UUID(given)
    except ValueError:
        raise NotFound(f"There is no such {noun}.") from None
