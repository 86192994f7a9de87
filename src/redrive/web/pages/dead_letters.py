"""Dead letters: what failed for good, newest first. At two addresses, since two systems promised one each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from textwrap import shorten

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from redrive.api import shapes
from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.shapes import Shape
from redrive.core.dead_letter_lists import KINDS
from redrive.store import dead_letters
from redrive.store.choices import event_types
from redrive.store.db import Session
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.endpoint_names import endpoint_names, offered_names
from redrive.store.operations import DEAD_LETTERS
from redrive.store.paging import MAX_COUNTED, Sort
from redrive.web import words
from redrive.web.charts import Series, lines
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import (
    PAGE_ROWS,
    Asked,
    FilterBuilder,
    Sorting,
    after,
    operations_to_show,
    searched,
    sort_of,
    terms_of,
    thing_with_id,
)
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor
from redrive.web.words import CATEGORIES, REASONS

PATH = "/integrations/logs/dead-letter-queue"
ADMIN_PATH = "/app/admin/dlq"
QUALIFIERS = ("state", "type", "system", "endpoint", "error", "reason", "kind", "group", "since", "until")
DAY = timedelta(days=1)
QUARTERS = 96
MAX_GROUP_CHARS = 60  # of the error that a group is called by
KIND_CHOICES = {kind: words.kind(kind) for kind in KINDS}
REASON_CHOICES = {reason: reason.capitalize() for reason in REASONS}
STATES = {"open": "Open", "replaying": "Replaying", "resolved": "Resolved", "ignored": "Ignored"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class DeadLettersPage:
    frame: Frame
    path: str
    asked: Asked
    sorting: Sorting
    letters: list[Shape]
    total: int | None
    next_href: str | None
    first_href: str | None
    event_types: Sequence[str]  # to choose from
    endpoint_names: Sequence[str]
    operations: list[Shape]
    arrivals: Markup
    arrivals_note: str

    states = STATES
    kinds = KIND_CHOICES
    reasons = REASON_CHOICES
    categories = CATEGORIES
    counted_to = MAX_COUNTED

    @property
    def has_runs(self) -> bool:
        return any(letter["run_id"] for letter in self.letters)

    @property
    def state(self) -> str:
        return str(self.asked.filter.get("state", "open"))

    @property
    def bulk_filter(self) -> dict[str, object]:
        """All that match, but none that came since: nobody has seen those."""
        return {"state": "open", "failed_until": after(self._newest)} | dict(self.asked.filter)

    @property
    def watched(self) -> dict[str, object] | None:
        """What is new and belongs to this list: it died after what is shown."""
        if self.first_href is not None or self.state != "open":
            return None
        return dict(self.asked.filter) | {"failed_since": after(self._newest)}

    @property
    def _newest(self) -> datetime:
        """When the page was made, or a letter on it died: one may have come while it was."""
        died = [letter["failed_at"] for letter in self.letters]
        return max([self.frame.now, *(at for at in died if isinstance(at, datetime))])


async def _arrivals(session: Session, chosen: DeadLetterFilter, now: datetime) -> tuple[Markup, str]:
    """When those that match came, over the last day; and what to say where only the newest could be looked at."""
    trend = await dead_letters.arrivals(session, chosen, since=now - DAY, until=now, buckets=QUARTERS)
    chart = lines(
        "Dead letters per 15 minutes", [Series("failed", "dead letters", trend.counts)], start="24 h ago", height=92
    )
    return chart, "" if trend.is_whole else f" · of the newest {dead_letters.MAX_ARRIVALS:,}"


@router.get(PATH)
@router.get(ADMIN_PATH)
async def dead_letters_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    path = request.url.path
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        if (way := await thing_with_id(session, search)) is not None:
            return way
        chosen = FilterBuilder(search, frame.now)
        chosen.choice("state", "state", STATES)
        chosen.choice("error", "category", CATEGORIES)
        chosen.choice("reason", "reason", REASONS)
        chosen.choice("kind", "kind", dict.fromkeys(KINDS, ""))
        for name, field in (("type", "event_type"), ("system", "external_system"), ("group", "fingerprint")):
            chosen.text(name, field)
        chosen.time("since")
        chosen.time("until")
        await chosen.endpoint(session)
        chosen.free_text()
        chosen.nothing_if_unclear()
        sort = sort_of(request, dead_letters.SORTS, dead_letters.FIRST_FAILED)
        terms = dict(search.terms) | {"q": search.text, "sort": sort}
        place = ListPlace("page dead-letters", visitor.org_id, terms)
        given = request.query_params.get("cursor")
        page = await dead_letters.list_dead_letters(
            session,
            DeadLetterFilter(**chosen.filter),  # type: ignore[arg-type]
            limit=PAGE_ROWS,
            after=context.cursors.read(place, given),
            sort=sort,
        )
        usual = dead_letters.FIRST_FAILED
        sorting = Sorting(search, path, sort, usual, Sort("failed_at", descends=True), page.is_by_time)
        drawn, note = await _arrivals(session, DeadLetterFilter(**chosen.filter), frame.now)  # type: ignore[arg-type]
        names = await endpoint_names(session, [row["endpoint_id"] for row in page.rows])
        if page.rows and "fingerprint" in chosen.filter:  # what all of a group have in common
            chosen.words["group"] = shorten(page.rows[0]["error_message"], MAX_GROUP_CHARS, placeholder="…")
        shown = DeadLettersPage(
            frame=frame,
            path=path,
            asked=Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search, path, chosen.words)),
            sorting=sorting,
            letters=[shapes.dead_letter(row) | {"endpoint": names.get(row["endpoint_id"])} for row in page.rows],
            total=page.total,
            next_href=search.address(path, sort=sorting.carried, cursor=context.cursors.write(place, page.next_key))
            if page.next_key
            else None,
            first_href=search.address(path, sort=sorting.carried) if given else None,
            event_types=(
                await event_types(session, DEAD_LETTERS, state=str(chosen.filter.get("state", "open")))
            ).values,
            endpoint_names=await offered_names(session),
            operations=await operations_to_show(session, request, visitor),
            arrivals=drawn,
            arrivals_note=note,
        )
    return render(request, "dead_letters.html", shown)
