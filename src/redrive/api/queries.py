"""Queries and small bodies of the routes: what may be asked for, and in which words.

A parameter that is not known is refused (400): a misspelt filter must not read as "everything".
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from redrive.api.cursors import MAX_CURSOR_CHARS
from redrive.api.problems import FieldError, bad_query, not_found
from redrive.core.outcome import Category
from redrive.store.audit import AuditFilter
from redrive.store.dead_letters import DeadLetterFilter, Order
from redrive.store.logs import LogFilter
from redrive.store.paging import MAX_PAGE_ROWS
from redrive.store.retry_queue import RetryQueueFilter

DEFAULT_PAGE_ROWS = 50
MAX_FILTER_CHARS = 200
MAX_BECAUSE_CHARS = 1_000

_NUMBER = re.compile(r"[+-]?[0-9._]+(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Text without control characters."""
    if _CONTROL.search(text):
        raise ValueError("must not hold control characters")
    return text


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not hold NUL")
    return text


def _not_a_number(given: object) -> object:
    """A number would be read as seconds or milliseconds since 1970, by its size."""
    if isinstance(given, str) and _NUMBER.fullmatch(given.strip()):
        raise ValueError("must be a time in ISO 8601, as in 2026-11-15T17:58:01Z")
    return given


def _to_the_end_of_a_day(given: object) -> object:
    if isinstance(given, str) and _DATE.fullmatch(given.strip()):
        try:
            return datetime.fromisoformat(given.strip()).replace(tzinfo=UTC) + timedelta(days=1)
        except (ValueError, OverflowError):
            return given  # refused as no date
    return given


def _utc(at: datetime) -> datetime:
    """A time without an offset is taken as UTC."""
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of range") from None


Text = Annotated[str, Field(min_length=1, max_length=MAX_FILTER_CHARS), AfterValidator(plain)]
Moment = Annotated[
    datetime, BeforeValidator(_not_a_number), AfterValidator(_utc), Field(examples=["2026-11-15T17:58:01Z"])
]


# The day that a date names is part of the span that it ends.
EndMoment = Annotated[
    datetime,
    BeforeValidator(_to_the_end_of_a_day),
    BeforeValidator(_not_a_number),
    AfterValidator(_utc),
    Field(examples=["2026-11-15T17:58:01Z"]),
]


# Columns, as SORTS in store.retry_queue, store.logs and store.dead_letters names them; with a minus they descend.
SortOfQueue = Literal[
    "next_retry_at",
    "-next_retry_at",
    "created_at",
    "-created_at",
    "event_type",
    "-event_type",
    "external_system",
    "-external_system",
    "retry_count",
    "-retry_count",
]
SortOfLogs = Literal[
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "event_type",
    "-event_type",
    "external_system",
    "-external_system",
    "status",
    "-status",
    "attempt_count",
    "-attempt_count",
]
SortOfLetters = Literal[
    "created_at",
    "-created_at",
    "failed_at",
    "-failed_at",
    "event_type",
    "-event_type",
    "external_system",
    "-external_system",
    "error",
    "-error",
    "retry_count",
    "-retry_count",
]


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS)] = DEFAULT_PAGE_ROWS
    cursor: Annotated[str, Field(max_length=MAX_CURSOR_CHARS)] | None = None

    def filters(self) -> dict[str, object]:
        """What a cursor is bound to."""
        return self.model_dump(exclude={"limit", "cursor"})


class EventsQuery(PageQuery):
    status: Literal["received", "queued", "delivered", "failed"] | None = None
    event_type: Text | None = None


class InboxQuery(PageQuery):
    status: Literal["received", "failed"] = "received"
    event_type: Text | None = None


class RetryQueueQuery(PageQuery):
    status: Literal["pending", "in_progress"] | None = None
    event_type: Text | None = None
    external_system: Text | None = None
    endpoint_id: UUID | None = None
    category: Category | None = None
    q: Text | None = None
    sort: SortOfQueue = "next_retry_at"

    def chosen(self) -> RetryQueueFilter:
        return RetryQueueFilter(**self.model_dump(exclude={"limit", "cursor", "sort"}))


class DeadLettersQuery(PageQuery):
    state: Literal["open", "replaying", "resolved", "ignored"] = "open"
    kind: Text | None = None
    event_type: Text | None = None
    external_system: Text | None = None
    endpoint_id: UUID | None = None
    reason: Literal["permanent", "exhausted", "expired", "skipped"] | None = None
    category: Category | None = None
    fingerprint: Text | None = None
    since: Moment | None = None
    until: EndMoment | None = None
    q: Text | None = None
    event_id: UUID | None = None
    correlation_id: Text | None = None
    failed_since: Moment | None = None
    failed_until: EndMoment | None = None
    sort: SortOfLetters = "-created_at"

    def chosen(self) -> DeadLetterFilter:
        return DeadLetterFilter(**self.model_dump(exclude={"limit", "cursor", "sort"}))


class LogsQuery(PageQuery):
    status: Literal["pending", "error", "success"] | None = None
    event_type: Text | None = None
    external_system: Text | None = None
    endpoint_id: UUID | None = None
    event_id: UUID | None = None
    since: Moment | None = None
    until: EndMoment | None = None
    sort: SortOfLogs = "-created_at"

    def chosen(self) -> LogFilter:
        return LogFilter(**self.model_dump(exclude={"limit", "cursor", "sort"}))


class AuditExportQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    actor: Text | None = None
    action: Text | None = None
    subject_kind: Text | None = None
    subject_id: UUID | None = None
    since: Moment | None = None
    until: EndMoment | None = None
    format: Literal["csv", "ndjson"] = "ndjson"

    def chosen(self) -> AuditFilter:
        return AuditFilter(**self.model_dump(exclude={"limit", "cursor", "format"}))


class AuditQuery(PageQuery, AuditExportQuery):
    format: Literal["json"] = "json"  # type: ignore[assignment]


class NoticesQuery(PageQuery):
    kind: Text | None = None


class AlertsQuery(PageQuery):
    state: Literal["firing", "over"] | None = None
    rule: Text | None = None
    since: Moment | None = None


class BecauseIn(BaseModel):
    """Why a person does this: kept in the audit."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"because": "booked by hand"}]}
    )

    because: Annotated[str, Field(max_length=MAX_BECAUSE_CHARS), AfterValidator(_no_nul)] | None = None


class RetryIn(BecauseIn):
    """`now`: due at once, instead of in the policy's first delay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"now": True, "because": "the receiver is back"}]})

    now: bool = False


class RedriveIn(RetryIn):
    """As a retry. `order`: where in its lane it goes, of one that is in a lane."""

    order: Order | None = None


def each_once(query: bytes) -> None:
    """Problem 400 where a parameter is given twice: of two filters one would be passed over in silence."""
    if b"&" not in query:
        return
    seen: set[str] = set()
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in seen:
            raise bad_query(FieldError(("query", name[:MAX_FILTER_CHARS]), "is given more than once"))
        seen.add(name)


async def no_query(request: Request) -> None:
    """A dependency of routes that take no parameters."""
    names = list(request.query_params)
    if names:
        raise bad_query(*(FieldError(("query", name[:MAX_FILTER_CHARS]), "unknown parameter") for name in names))


def id_in_path(text: str, noun: str) -> UUID:
    """What is no id names nothing: 404, as for an id that does not exist."""
    try:
        return UUID(text)
    except ValueError:
        raise not_found(noun) from None
