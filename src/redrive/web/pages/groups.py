"""Groups: dead letters by what went wrong. A person sees three causes instead of two thousand failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from redrive.api.context import Context
from redrive.api.shapes import Shape
from redrive.store import groups
from redrive.store.db import Record, Session
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.endpoint_names import endpoint_names, offered_names
from redrive.store.groups import Groups
from redrive.store.trends import Trend
from redrive.web.charts import sparkline
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import Asked, FilterBuilder, after, operations_to_show, searched, terms_of
from redrive.web.pages.dead_letters import PATH as LETTERS
from redrive.web.pages.dead_letters import STATES
from redrive.web.render import render
from redrive.web.search import Search
from redrive.web.visitor import PageRoute, Visitor
from redrive.web.words import CATEGORIES, REASONS

PATH = "/groups"
QUALIFIERS = ("state", "type", "system", "endpoint", "error", "reason", "kind", "since", "until")
MAX_SHOWN = 50
TREND = timedelta(hours=24)
TREND_BUCKETS = 24

# The button's word, what is sent, and its key.
GroupAct = tuple[str, Mapping[str, object], str]
_RETRY: GroupAct = ("Retry", {"action": "retry", "now": True}, "r")
_RESOLVE: GroupAct = ("Resolve", {"action": "resolve"}, "m")
_IGNORE: GroupAct = ("Ignore", {"action": "ignore"}, "i")
_REOPEN: GroupAct = ("Reopen", {"action": "reopen"}, "z")
ACTS = {
    "open": (_RETRY, _RESOLVE, _IGNORE),
    "ignored": (_RETRY, _RESOLVE, _REOPEN),
    "resolved": (_RETRY, _REOPEN),
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Group:
    fingerprint: str
    count: int
    is_whole: bool  # whether all were counted: else there are at least so many
    first_at: datetime
    last_at: datetime
    category: str
    reason: str
    event_type: str
    place: str  # what fails: the external system, or the endpoint
    error_message: str
    sample_id: UUID
    trend: Markup
    href: str

    @property
    def counted(self) -> str:
        return f"{self.count:,}" if self.is_whole else f"{self.count:,}+"


@dataclass(frozen=True, slots=True)
class GroupsPage:
    frame: Frame
    asked: Asked
    groups: list[Group]
    total: int | None
    has_more: bool
    endpoint_names: list[str]
    operations: list[Shape]
    path: str = PATH

    states = STATES
    categories = CATEGORIES

    @property
    def state(self) -> str:
        return str(self.asked.filter.get("state", "open"))

    @property
    def acts(self) -> Sequence[GroupAct]:
        """What may be done with a whole group: nothing with one that is being replayed."""
        return ACTS.get(self.state, ())

    @property
    def summary(self) -> str:
        """What makes the page worth its place."""
        letters = sum(group.count for group in self.groups)
        is_whole = all(group.is_whole for group in self.groups) and not self.has_more
        failures = f"{letters:,}{'' if is_whole else ' or more'} failure{'' if letters == 1 else 's'}"
        if self.total is None:
            return f"{failures}, of more than {groups.MAX_GROUPS_LOOKED:,} kinds"
        return (
            f"{failures} {'is' if letters == 1 else 'are'} really {self.total:,} error{'' if self.total == 1 else 's'}"
        )

    def bulk_filter(self, group: Group) -> dict[str, object]:
        """All of it, but none that came since the page was made."""
        until = after(max(group.last_at, self.frame.now))
        return (
            {"state": self.state, "failed_until": until} | dict(self.asked.filter) | {"fingerprint": group.fingerprint}
        )


@router.get(PATH)
async def groups_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        chosen = FilterBuilder(search, frame.now)
        chosen.choice("state", "state", STATES)
        chosen.choice("error", "category", CATEGORIES)
        chosen.choice("reason", "reason", REASONS)
        for name, field in (("type", "event_type"), ("system", "external_system"), ("kind", "kind")):
            chosen.text(name, field)
        chosen.time("since", "failed_since")
        chosen.time("until", "failed_until")
        await chosen.endpoint(session)
        chosen.free_text()
        chosen.nothing_if_unclear()
        wanted = DeadLetterFilter(**chosen.filter)  # type: ignore[arg-type]
        found = await groups.list_groups(session, wanted, limit=MAX_SHOWN)
        shown = await shown_groups(session, found, search, frame.now, wanted.state)
        offered = await offered_names(session)
        under_way = await operations_to_show(session, request, visitor)
    asked = Asked(search, chosen.filter, tuple(chosen.problems), terms_of(search, PATH, chosen.words))
    return render(
        request, "groups.html", GroupsPage(frame, asked, shown, found.total, found.has_more, offered, under_way)
    )


async def shown_groups(session: Session, found: Groups, search: Search, now: datetime, state: str) -> list[Group]:
    rows = found.rows
    names = await endpoint_names(session, [row["endpoint_id"] for row in rows])
    trends = await groups.trends(
        session, [row["fingerprint"] for row in rows], since=now - TREND, until=now, buckets=TREND_BUCKETS, state=state
    )
    return [_group(row, names, trends[row["fingerprint"]], search) for row in rows]


def _group(row: Record, names: Mapping[UUID, str], trend: Trend, search: Search) -> Group:
    said = f"{trend.total:,}{'' if trend.is_whole else ' or more'} in the last 24 hours"
    return Group(
        fingerprint=row["fingerprint"],
        count=row["n"],
        is_whole=row["is_whole"],
        first_at=row["first_at"],
        last_at=row["last_at"],
        category=row["category"],
        reason=row["reason"],
        event_type=row["event_type"],
        place=row["external_system"] or names.get(row["endpoint_id"]) or row["kind"],
        error_message=row["error_message"],
        sample_id=row["sample_id"],
        trend=sparkline(said, trend.counts, name="failed"),
        href=search.changed("group", row["fingerprint"]).address(LETTERS),
    )
