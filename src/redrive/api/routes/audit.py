"""The audit: who did what to which thing, when, from where and why. Read only: nobody writes it by hand."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Reader
from redrive.api.context import ApiContext, Context
from redrive.api.cursors import ListPlace
from redrive.api.queries import AuditExportQuery, AuditQuery
from redrive.api.schemas.audit import AuditEntry
from redrive.api.schemas.base import Page, shows
from redrive.core.permissions import Action
from redrive.store import audit
from redrive.store.audit import AuditFilter
from redrive.store.db import Record
from redrive.store.keys import Caller

EXPORT_BATCH_ROWS = 1_000
MAX_EXPORT_ROWS = 1_000_000

COLUMNS = (
    *("id", "at", "actor", "action", "subject_kind", "subject_id"),
    *("because", "source", "correlation_id", "before", "after"),
)
OF_PEOPLE = ("user", "session")
_FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet take a cell for a formula

LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One line per entry",
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"id": "0190c1a2-7b3c-7d4e-8f50-…\n'},
            "text/csv": {"schema": {"type": "string"}, "example": ",".join(COLUMNS) + "\r\n"},
        },
    }
}

router = APIRouter(prefix="/v1/audit", tags=["audit"], dependencies=SCHEMES)


@router.get("", responses=shows(Page[AuditEntry]))
async def list_audit(query: Annotated[AuditQuery, Query()], caller: Reader, context: Context) -> Response:
    """Newest first. It is never counted (`total_count` is null): it only grows."""
    place = ListPlace("audit", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    async with context.tenant(caller) as session:
        page = await audit.list_audit(session, query.chosen(), limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    rows = [entry(row, whole=caller.may(Action.ADMIT)) for row in page.rows]
    return answer(shapes.page(rows, limit=query.limit, cursor=cursor, total=None))


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=LINES,
)
async def export_audit(query: Annotated[AuditExportQuery, Query()], caller: Reader, context: Context) -> Response:
    """All that matches, newest first, as CSV or NDJSON; of more than a million entries the newest million."""
    write, media_type = (_csv_lines, "text/csv; charset=utf-8")
    if query.format == "ndjson":
        write, media_type = (_json_lines, "application/x-ndjson")
    return StreamingResponse(
        _export(context, caller, query.chosen(), write),
        media_type=media_type,
        headers={"content-disposition": f'attachment; filename="audit.{query.format}"'},
    )


async def _export(
    context: ApiContext, caller: Caller, chosen: AuditFilter, write: Callable[[Sequence[shapes.Shape], bool], bytes]
) -> AsyncIterator[bytes]:
    """Batch by batch, each in a transaction of its own: whoever reads slowly holds nothing up."""
    after: tuple[object, ...] | None = None
    for start in range(0, MAX_EXPORT_ROWS, EXPORT_BATCH_ROWS):
        async with context.tenant(caller) as session:
            page = await audit.list_audit(session, chosen, limit=EXPORT_BATCH_ROWS, after=after)
        yield write([entry(row, whole=caller.may(Action.ADMIT)) for row in page.rows], start == 0)
        after = page.next_key
        if after is None:
            return


def entry(row: Record, *, whole: bool) -> shapes.Shape:
    """An entry. E-mails and addresses of people are for those who may see the people themselves."""
    hidden = () if whole else ("source", *(("before", "after") if row["subject_kind"] in OF_PEOPLE else ()))
    return {column: None if column in hidden else _value(row, column) for column in COLUMNS}


def _value(row: Record, column: str) -> object:
    return _document(row[column]) if column in ("before", "after") else row[column]


def _document(stored: str | None) -> object:
    return None if stored is None else msgspec.Raw(stored.encode())


def _json_lines(rows: Sequence[shapes.Shape], is_first: bool) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def _csv_lines(rows: Sequence[shapes.Shape], is_first: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    if is_first:
        writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(row[column]) for column in COLUMNS])
    return text.getvalue().encode()


def _cell(value: object) -> str:
    """Text for a spreadsheet that must not run it."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')
    return f"'{text}" if text.startswith(_FORMULA_MARKS) else text
