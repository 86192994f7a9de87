"""What an answer of a receiver means, and how it is shown. Used by the destinations of webhooks."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from json import dumps

from redrive.core.classify import classify_status, parse_http_date, parse_retry_after
from redrive.core.outcome import Category, Failure, Outcome, Steer, Success
from redrive.core.ports import NO_EXCHANGE, Exchange, Try
from redrive.core.redact import redact_headers

NO_ENDPOINT = "The task's endpoint does not exist."


def outcome_of(status: int, retry_after: str | None, date: str | None, now: datetime) -> Outcome:
    """`retry_after` and `date` are the answer's headers of these names."""
    category = classify_status(status)
    if category is None:
        return Success(status)
    return Failure(
        category,
        f"HTTP {status} {_phrase(status)}".rstrip(),
        status_code=status,
        retry_after=_retry_after(retry_after, date, now) if retry_after else None,
    )


def impossible(why: str | None, url: str | None) -> Try:
    """No try can be made of it, now or later, whatever the policy says of the class."""
    failure = Failure(Category.CONFIGURATION, why or NO_ENDPOINT, steer=Steer.GIVE_UP)
    return Try(failure, Exchange(url) if url is not None else NO_EXCHANGE)


def shown_headers(headers: Mapping[str, str]) -> str | None:
    """Headers as they are stored: JSON, redacted."""
    shown = redact_headers(headers)
    return dumps(shown) if shown else None


def _retry_after(asked: str, date: str | None, now: datetime) -> timedelta | None:
    """A date counts from the receiver's own clock, where it tells it: two clocks are one too many."""
    their_now = parse_http_date(date) if date is not None else None
    return parse_retry_after(asked, their_now or now)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
