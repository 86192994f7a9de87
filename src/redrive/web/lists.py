"""What the lists of tasks have in common: the terms of a search made a filter, badges, operations under way, pages.

Used by the pages of lists; what they filter by, they say themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from uuid import UUID

from fastapi import Request, Response

from redrive.api import operation_shapes
from redrive.api.shapes import Shape
from redrive.store import operations
from redrive.store.db import Session
from redrive.store.dead_letters import get_dead_letter
from redrive.store.endpoint_names import endpoint_called, endpoint_names
from redrive.store.events import get_event
from redrive.store.keys import Caller
from redrive.store.logs import get_log
from redrive.store.orgs import as_id
from redrive.store.paging import Page, Sort
from redrive.store.runs import get_run
from redrive.web.search import Search, asked, moment, quoted

PAGE_ROWS = 50
NOBODY = UUID(int=0)  # no endpoint has this id
MAX_OPERATIONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a search, as a badge that can be edited and taken away."""

    name: str
    value: str
    typed: str  # what comes back into the box to be edited
    without: str  # the address of the list without it


@dataclass(frozen=True, slots=True)
class Sorting:
    """How a list is sorted, and the ways to other orders. `is_by_time`: too many rows match for the one asked for."""

    search: Search
    path: str
    by: Sort
    usual: Sort
    by_time: Sort
    is_by_time: bool = False

    @property
    def shown(self) -> Sort:
        return self.by_time if self.is_by_time else self.by

    @property
    def carried(self) -> str | None:
        """What an address must say of it."""
        return None if self.by == self.usual else str(self.by)

    def href(self, column: str, *, descends: bool = False) -> str:
        """What a click on the header of a column does: it turns the order round, or begins with `descends`."""
        wanted = Sort(column, not self.by.descends if column == self.by.column else descends)
        return self.search.address(self.path, sort=None if wanted == self.usual else str(wanted))

    def aria(self, column: str) -> str | None:
        return ("descending" if self.shown.descends else "ascending") if column == self.shown.column else None


def sort_of(request: Request, columns: Sequence[str], usual: Sort) -> Sort:
    """What the address asks for; what is no column of the list means the usual order."""
    asked_for = Sort.read(request.query_params.get("sort", ""))
    return asked_for if asked_for.column in columns else usual


@dataclass(frozen=True, slots=True)
class Asked:
    """A search as the store and the API take it. `problems`: what of it means nothing, in words."""

    search: Search
    filter: Mapping[str, object]
    problems: tuple[str, ...]
    terms: tuple[Term, ...]


def searched(request: Request, names: tuple[str, ...]) -> Search | Response:
    """What the address asks for, or the way to the address that says the same in the one way."""
    search, is_plain = asked(request.query_params, names)
    if is_plain:
        return search
    return Response(status_code=303, headers={"location": search.address(request.url.path)})


def terms_of(search: Search, path: str, words: Mapping[str, str] = MappingProxyType({})) -> tuple[Term, ...]:
    """The badges of a search. `words`: what to show of a qualifier instead of its value, which may be an id."""
    shown = [
        Term(name, words.get(name, value), quoted(name, value), search.without(name).address(path))
        for name, value in search.terms.items()
    ]
    if search.text:
        shown.append(Term("text", search.text, search.text, search.without("q").address(path)))
    return tuple(shown)


def known_total(page: Page, *, is_first: bool) -> int | None:
    """How many there are. A list that ends on its first page needs no counting."""
    return len(page.rows) if is_first and page.next_key is None else page.total


async def thing_with_id(session: Session, search: Search) -> Response | None:
    """The way to a task, an event or a run, where nothing but its id was searched for: as a receiver's log has it."""
    wanted = as_id(search.text) if not search.terms else None
    if wanted is None:
        return None
    if await get_dead_letter(session, wanted) is not None:
        return Response(status_code=303, headers={"location": f"/app/admin/dlq/{wanted}"})
    if await get_log(session, wanted) is not None:
        return Response(status_code=303, headers={"location": f"/integrations/logs/{wanted}"})
    if await get_event(session, wanted) is not None:
        return Response(status_code=303, headers={"location": f"/events/{wanted}"})
    if await get_run(session, wanted) is not None:
        return Response(status_code=303, headers={"location": f"/runs/{wanted}"})
    return None


def after(at: datetime) -> str:
    """Just after a moment, as the API takes it: a limit that still includes it, or no longer does."""
    return (at + timedelta(microseconds=1)).isoformat()


class FilterBuilder:
    """Collects a filter in the API's words out of a search, and what was wrong with it."""

    def __init__(self, search: Search, now: datetime) -> None:
        self.filter: dict[str, object] = {}
        self.words: dict[str, str] = {}  # for the badges of what was given by its id
        self.problems = [
            f"“{name}:” is no qualifier of this list; it is searched for as text." for name in search.unknown
        ]
        self._search = search
        self._now = now
        self._is_unclear = False

    def text(self, name: str, field: str) -> None:
        if value := self._search.get(name):
            self.filter[field] = value

    def choice(self, name: str, field: str, choices: Mapping[str, str]) -> None:
        value = self._search.get(name)
        if value is None:
            return
        if value in choices:
            self.filter[field] = value
        else:
            self._refuse(f"{name}:{value} is not known: {', '.join(choices)} are.")

    def time(self, name: str, field: str | None = None) -> None:
        value = self._search.get(name)
        if value is None:
            return
        at = moment(value, self._now, end=name == "until")
        if at is None:
            self._refuse(f"{name}:{value} is no time: write 2h, 3d, 2026-11-16 or 2026-11-16T09:30Z.")
        else:
            self.filter[field or name] = at

    def free_text(self) -> None:
        if self._search.text:
            self.filter["q"] = self._search.text

    async def endpoint(self, session: Session) -> None:
        value = self._search.get("endpoint")
        if value is None:
            return
        found = await endpoint_called(session, value)
        if found is None:
            self._refuse(f"There is no endpoint called “{value}”.")
        else:
            self.filter["endpoint_id"] = found
            names = await endpoint_names(session, [found]) if as_id(value) else {}
            self.words["endpoint"] = names.get(found, value)

    def nothing_if_unclear(self) -> None:
        """A filter that means nothing matches nothing: shown as everything, a bulk action would take everything."""
        if self._is_unclear:
            self.filter["endpoint_id"] = NOBODY

    def _refuse(self, problem: str) -> None:
        self._is_unclear = True
        self.problems.append(problem)


async def operations_to_show(session: Session, request: Request, caller: Caller) -> list[Shape]:
    """What the caller has begun and is not done, and the operation that the address names: bars survive a reload."""
    page = await operations.list_operations(
        session, state=None, active=True, by=caller.actor, limit=MAX_OPERATIONS_SHOWN, after=None
    )
    rows = {row["id"]: row for row in page.rows}
    named = as_id(request.query_params.get("op", ""))
    if named is not None and named not in rows:
        row = await operations.get_operation(session, named)
        rows |= {} if row is None else {named: row}
    return [operation_shapes.operation(row) for row in rows.values()]
