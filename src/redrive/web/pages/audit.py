"""The audit log: who did what to which thing, when, from where and why. Read only, and exported from here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Request, Response

from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.routes.audit import entry
from redrive.api.shapes import Shape
from redrive.core.ids import time_of
from redrive.core.permissions import Action
from redrive.store import audit
from redrive.store.actors import ActorName, actor_names, member_called
from redrive.store.audit import AuditFilter
from redrive.store.db import Record, Session
from redrive.store.endpoint_names import endpoint_names
from redrive.store.keys import Caller, Kind
from redrive.store.orgs import as_id
from redrive.web.actors import shown_actor
from redrive.web.audit_words import ACTIONS, SUBJECTS, changes, name_in, subject_page
from redrive.web.frame import Frame, load_frame
from redrive.web.lists import PAGE_ROWS, Asked, FilterBuilder, Term, searched, terms_of
from redrive.web.render import render
from redrive.web.search import Search
from redrive.web.visitor import PageRoute, Visitor
from redrive.web.words import iso

PATH = "/audit"
QUALIFIERS = ("actor", "action", "subject", "id", "since", "until")
ME = "me"
NOBODY = UUID(int=0)  # in the place of an id that is none: the list is empty rather than whole

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class AuditPage:
    frame: Frame
    asked: Asked
    entries: list[Shape]
    next_href: str | None
    first_href: str | None
    csv_href: str
    ndjson_href: str
    path: str = PATH

    actions = ACTIONS
    subjects = SUBJECTS


@router.get(PATH)
async def audit_page(request: Request, visitor: Visitor, context: Context) -> Response:
    search = searched(request, QUALIFIERS)
    if isinstance(search, Response):
        return search
    place = ListPlace("page audit", visitor.org_id, dict(search.terms) | {"q": search.text})
    given = request.query_params.get("cursor")
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        chosen = await _chosen(session, search, frame, visitor)
        after = context.cursors.read(place, given)
        page = await audit.list_audit(session, AuditFilter(**chosen.filter), limit=PAGE_ROWS, after=after)  # type: ignore[arg-type]
        endpoints = await endpoint_names(session, _subjects(page.rows, "endpoint"))
    people = [f"{kind}:{id_}" for kind in (Kind.USER, Kind.KEY) for id_ in _subjects(page.rows, kind)]
    names = await actor_names(context.engine_db, visitor.org_id, [*(row["actor"] for row in page.rows), *people])
    shown = AuditPage(
        frame=frame,
        asked=Asked(search, chosen.filter, tuple(chosen.problems), _terms(search, chosen, names, visitor)),
        entries=_folded([_shown(row, names, endpoints, visitor) for row in page.rows], search),
        next_href=search.address(PATH, cursor=context.cursors.write(place, page.next_key)) if page.next_key else None,
        first_href=search.address(PATH) if given else None,
        csv_href=_export(chosen.filter, "csv"),
        ndjson_href=_export(chosen.filter, "ndjson"),
    )
    return render(request, "audit.html", shown)


async def _chosen(session: Session, search: Search, frame: Frame, visitor: Caller) -> FilterBuilder:
    chosen = FilterBuilder(search, frame.now)
    chosen.text("action", "action")
    chosen.text("subject", "subject_kind")
    chosen.time("since")
    chosen.time("until")
    if called := search.get("id") or search.text:
        chosen.filter["subject_id"] = as_id(called) or NOBODY
        if as_id(called) is None:
            chosen.problems.append(
                f"“{called}” is no id. The audit log is searched by actor:, action:, subject:, since: and until:, "
                "or by the id of a thing."
            )
    if (actor := search.get("actor")) is not None:
        chosen.filter["actor"] = await _actor(session, actor, chosen, visitor)
    return chosen


async def _actor(session: Session, called: str, chosen: FilterBuilder, visitor: Caller) -> str:
    """As it is stored. Who may see the people of the org may call them by their e-mails."""
    if called == ME:
        return visitor.actor
    if "@" not in called:
        return called
    if not visitor.may(Action.ADMIT):
        chosen.problems.append("Only those who admit people may look them up by e-mail. Follow a name in the list.")
        return called
    found = await member_called(session, called)
    if found is None:
        chosen.problems.append(f"No member of this org has the e-mail “{called}”.")
    return found or called


def _folded(entries: Sequence[Shape], search: Search) -> list[Shape]:
    """What one operation did to one thing after another stands on one line: the operation's page has each of them."""
    folded: list[Shape] = []
    for one in entries:
        last = folded[-1] if folded else None
        operation = one["operation_id"]
        if last and operation is not None and (operation, one["action"]) == (last["operation_id"], last["action"]):
            last["more_alike"] += 1  # type: ignore[operator]
        else:
            began = None if operation is None else iso(time_of(UUID(str(operation))))
            folded.append(one | {"more_alike": 0, "before_href": search.address(PATH, until=began)})
    return folded


def _shown(row: Record, names: Mapping[str, ActorName], endpoints: Mapping[UUID, str], visitor: Caller) -> Shape:
    shape = entry(row, whole=visitor.may(Action.ADMIT))
    before, after = (_read(row[side]) if shape[side] is not None else None for side in ("before", "after"))
    lines, more = changes(row["action"], before, after)
    kind, subject_id = row["subject_kind"], row["subject_id"]
    known = names.get(f"{kind}:{subject_id}")
    own_name = visitor.org_name if subject_id == visitor.org_id else None
    return shape | {
        "operation_id": after.get("operation_id") if isinstance(after, Mapping) else None,
        "who": shown_actor(row["actor"], names, visitor),
        "lines": lines,
        "more_lines": more,
        "subject_name": known.name if known else endpoints.get(subject_id) or own_name or name_in(before, after),
        "subject_href": subject_page(kind, subject_id, name_in(before, after)),
        "actor_href": _address(actor=row["actor"]),
        "action_href": _address(action=row["action"]),
        "thing_href": _address(id=str(subject_id)),
    }


def _read(stored: str | None) -> object:
    # The standard library's: it keeps integers of any size.
    return None if stored is None else json.loads(stored)


def _subjects(rows: Sequence[Record], kind: str) -> list[UUID]:
    return [row["subject_id"] for row in rows if row["subject_kind"] == kind and row["subject_id"] is not None]


def _terms(search: Search, chosen: FilterBuilder, names: Mapping[str, ActorName], visitor: Caller) -> tuple[Term, ...]:
    """The actor by name, where the list knows it."""
    stored = str(chosen.filter.get("actor"))
    return terms_of(search, PATH, {"actor": shown_actor(stored, names, visitor).text} if stored in names else {})


def _export(chosen: Mapping[str, object], form: str) -> str:
    """The same entries, all of them, from the API."""
    pairs = {name: iso(value) if isinstance(value, datetime) else str(value) for name, value in chosen.items()}
    return f"/v1/audit/export?{urlencode(pairs | {'format': form})}"


def _address(**terms: str) -> str:
    return f"{PATH}?{urlencode(terms, safe=':')}"
