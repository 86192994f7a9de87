"""What no route expected: a line in the log, and an answer that says no more than it may.

Called by server and short_way, the last lines before the socket.
"""

import traceback

import structlog

from redrive.api.outage import OUTAGES, is_bad_row, reason_of
from redrive.api.problems import Problem, internal, unavailable

log = structlog.get_logger("redrive.api")


def problem_of(error: Exception, correlation_id: str) -> Problem:
    """The answer to an error. One that is no answer already is logged."""
    if isinstance(error, Problem):
        return error
    _log(error, correlation_id)
    return answer_of(error)


def answer_of(error: Exception) -> Problem:
    return unavailable(reason_of(error)) if _is_outage(error) else internal()


def _is_outage(error: Exception) -> bool:
    return isinstance(error, OUTAGES) and not is_bad_row(error)


def _log(error: Exception, correlation_id: str) -> None:
    """An outage is told as such; anything else is a bug. The error's own text may quote a payload: it is left out."""
    name = type(error).__name__
    if _is_outage(error):
        log.warning("database_unavailable", error_type=name, correlation_id=correlation_id)
    else:
        frames = "".join(traceback.format_tb(error.__traceback__))
        log.error("unhandled_error", error_type=name, stack=frames, correlation_id=correlation_id)
