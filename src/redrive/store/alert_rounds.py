"""Looks at all rules of all orgs, opens and ends incidents, and writes the notices that tell of them. As the engine.

A round is begun by one process at a time, and taken up by another where that one dies: each page of orgs is one
transaction, in which an incident changes together with its notice, so that what was done is told and what was not will
be. Called by engine.alerts through core.alerts' port AlertWatch.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec
import structlog

from redrive.core import alert_sights
from redrive.core.alert_sights import AllTerms
from redrive.core.alert_words import fired_text, fired_together, over_text, over_together
from redrive.core.alerts import LATELY_S, RULES, End, Firing, Open, Rule, Scope, Sight, Subject, Told, judge, messages
from redrive.core.brief import brief
from redrive.store import alert_readings
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.orgs import DEFAULT_ORG, new_id

PAGE_ORGS = 200
NOBODY_LOOKED_S = 60.0  # after so long without a round, and three that were missed, silence counts from the next one on
HANGS_AFTER_S = 30.0  # whoever says nothing for so long in the middle of a round has it no more
WAITS_S = 5.0  # for a lock on the tasks
MAX_FACTS_TOLD = 100  # incidents named in a notice that tells of many

log = structlog.get_logger("redrive.alerts")

_FIRST = UUID(int=0)
_ENDPOINT_RULES = frozenset(rule.name for rule in RULES.values() if rule.scope is Scope.ENDPOINT)


class RoundFailed(Exception):
    """Some orgs could not be looked at; the others were."""


class Notice(NamedTuple):
    """A row of redrive.notice to be."""

    org_id: UUID
    id: UUID
    kind: str
    severity: str
    subject_id: UUID | None  # the incident; None: it tells of several
    text: str
    facts: str


class _Incident(NamedTuple):
    """A change, with what is written of it."""

    id: UUID
    text: str
    notice_id: UUID
    change: Open | End


class _Lately(NamedTuple):
    """What people were told of a rule lately."""

    fired: Told
    ended: Told


class AlertRounds:
    """core.alerts.AlertWatch on PostgreSQL. `every_s`: how often all processes together look."""

    def __init__(self, engine: Database, clock: Clock, *, every_s: float) -> None:
        self._db = engine
        self._clock = clock
        self._every_s = every_s

    async def look(self) -> int | None:
        """A round, unless somebody else had one just now or is still at it: None. How many incidents began or ended."""
        unwatched_s = max(NOBODY_LOOKED_S, 3 * self._every_s)
        begun = await self._db.fetchrow("begin_alert_round", self._clock.now(), self._every_s, unwatched_s)
        if begun is None:
            return None
        due = await self._due(begun["now"])
        changed, is_whole, problem, after = 0, True, None, _FIRST
        while True:
            page = await self._db.fetch("alert_orgs", after, PAGE_ORGS)
            if not page:
                break
            after = page[-1]["org_id"]
            try:
                found = await self._look_at(page, due, begun["watched_s"])
                changed, is_whole = changed + (found or 0), is_whole and found is not None
            except (ValueError, LookupError) as error:  # of what one org has: the others are looked at all the same
                problem = error
        if problem is not None:
            raise RoundFailed("Some orgs could not be looked at for alerts.") from problem
        return changed if is_whole else None

    async def _due(self, now: datetime) -> alert_readings.Due:
        """Where somebody keeps a lock on the tasks, how late they are is not known. The other rules are looked at all
        the same: they tell of what that lock does.
        """
        try:
            async with self._db.transaction() as session:
                await session.execute("wait_briefly", WAITS_S)
                return await alert_readings.due(session, now)
        except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError) as error:
            log.warning("due_not_seen", error=brief(error))
            return alert_readings.Due({}, is_whole=False)

    async def _look_at(self, page: Sequence[Record], due: alert_readings.Due, watched_s: float) -> int | None:
        """How much changed; None where a round before this one is still at it."""
        terms = {row["org_id"]: alert_readings.terms_of(row["specs"]) for row in page}
        default = next((row["org_id"] for row in page if row["name"] == DEFAULT_ORG), None)
        async with self._db.transaction() as session:
            leads = await session.fetchrow("lead_alerts", HANGS_AFTER_S)
            if leads is None or not leads["ours"]:
                return None
            firing = _by_org(await session.fetch("firing_alerts", list(terms)))
            troubled = await alert_readings.endpoints(session, list(terms), _endpoints_of(firing))
            readings = await alert_readings.of_orgs(session, self._clock.now(), terms, due, troubled)
            sights = {reading.org_id: alert_sights.of_org(reading, terms[reading.org_id]) for reading in readings}
            if default is not None:
                whole = await alert_readings.of_installation(
                    session, self._clock, terms[default], work_s=due.work_s, watched_s=watched_s
                )
                sights[default] |= alert_sights.of_installation(whole, terms[default])
            changes = {org_id: _changes(terms[org_id], firing.get(org_id, ()), seen) for org_id, seen in sights.items()}
            return await self._write(session, changes)

    async def _write(self, session: Session, changes: Mapping[UUID, Sequence[Open | End]]) -> int:
        """Incidents and their notices. Only what really changed is told: an index has the last word."""
        openings: list[tuple[Any, ...]] = []
        endings: list[tuple[Any, ...]] = []
        told: list[tuple[Notice, set[UUID]]] = []
        for (org_id, name), lately in (await self._told(session, changes)).items():
            of_rule = [change for change in changes[org_id] if change.rule.name == name]
            opened = _opened(org_id, [change for change in of_rule if isinstance(change, Open)], lately.fired)
            ended = _ended(org_id, [change for change in of_rule if isinstance(change, End)], lately.ended)
            told += [(notice, {incident.id for incident in those}) for notice, those in (*opened, *ended)]
            openings += [_opening(org_id, one) for _, those in opened for one in those]
            endings += [(org_id, *one[:3]) for _, those in ended for one in those]
        now = self._clock.now()
        changed: set[UUID] = set()
        if openings:
            changed |= {row["id"] for row in await session.fetch("open_alerts", now, *_columns(openings))}
        if endings:
            changed |= {row["id"] for row in await session.fetch("end_alerts", now, *_columns(endings))}
        notices = [notice for notice, ids in told if ids & changed]
        if notices:
            await session.execute("tell_alerts", now, *_columns(notices))
        return len(changed)

    async def _told(
        self, session: Session, changes: Mapping[UUID, Sequence[Open | End]]
    ) -> dict[tuple[UUID, str], _Lately]:
        """Of the rules in which something changes: how often people were told of them lately."""
        pairs = list(dict.fromkeys((org_id, one.rule.name) for org_id, in_org in changes.items() for one in in_org))
        rows = await session.fetch("alerts_told", self._clock.now(), LATELY_S, *_columns(pairs)) if pairs else []
        return {
            (row["org_id"], row["rule"]): _Lately(
                Told(row["fired"], row["fired_s"]), Told(row["ended"], row["ended_s"])
            )
            for row in rows
        }


def _changes(terms: AllTerms, firing: Sequence[Firing], sights: Mapping[str, Sequence[Sight]]) -> list[Open | End]:
    """Of the rules that the org has; and of one that it had (it was called "default" then), that this is over."""
    had = [incident.rule for incident in firing if incident.rule in RULES]
    return [
        change
        for name in dict.fromkeys([*sights, *had])
        for change in judge(
            RULES[name], terms[name], [incident for incident in firing if incident.rule == name], sights.get(name, ())
        )
    ]


def _endpoints_of(firing: Mapping[UUID, Sequence[Firing]]) -> list[tuple[UUID, UUID]]:
    return [
        (org_id, incident.subject.id)
        for org_id, incidents in firing.items()
        for incident in incidents
        if incident.rule in _ENDPOINT_RULES and incident.subject.id is not None
    ]


_Messages = list[tuple[Notice, list[_Incident]]]


def _opened(org_id: UUID, openings: Sequence[Open], told: Told) -> _Messages:
    found: _Messages = []
    for those in messages(openings, told):
        notice_id = new_id()
        incidents = [_Incident(new_id(), fired_text(opening), notice_id, opening) for opening in those]
        rule, sight = those[0]
        if len(those) == 1:
            facts = _facts(rule, sight.subject, alert_id=incidents[0].id, saw=sight.saw)
            notice = _notice(org_id, incidents[0], "alert.fired", rule.severity, facts)
        else:
            text = fired_together(rule, [opening.sight for opening in those])
            notice = _of_many(org_id, notice_id, "alert.fired", rule.severity, rule, text, incidents)
        found.append((notice, incidents))
    return found


def _ended(org_id: UUID, endings: Sequence[End], told: Told) -> _Messages:
    found: _Messages = []
    for those in messages(endings, told):
        notice_id = new_id()
        incidents = [_Incident(end.firing.id, over_text(end), notice_id, end) for end in those]
        end = those[0]
        if len(those) == 1:
            saw = end.sight.saw if end.sight else {}
            since = end.firing.opened_at
            facts = _facts(end.rule, end.firing.subject, alert_id=end.firing.id, saw=saw, since=since)
            notice = _notice(org_id, incidents[0], "alert.over", "info", facts)
        else:
            text = over_together(end.rule, those)
            notice = _of_many(org_id, notice_id, "alert.over", "info", end.rule, text, incidents)
        found.append((notice, incidents))
    return found


def _facts(
    rule: Rule, subject: Subject, *, alert_id: UUID, saw: Mapping[str, object], since: datetime | None = None
) -> dict[str, object]:
    return {
        "alert_id": alert_id,
        "rule": rule.name,
        "subject": {"kind": subject.kind, "id": subject.id, "name": subject.name},
        "saw": {name: value for name, value in saw.items() if name != "threshold"},
        "threshold": saw.get("threshold"),
        "since": since,
    }


def _notice(org_id: UUID, incident: _Incident, kind: str, severity: str, facts: Mapping[str, object]) -> Notice:
    return Notice(org_id, incident.notice_id, kind, severity, incident.id, incident.text, _json(facts))


def _of_many(
    org_id: UUID, notice_id: UUID, kind: str, severity: str, rule: Rule, text: str, incidents: Sequence[_Incident]
) -> Notice:
    named = [
        {"alert_id": one.id, "subject": {"kind": subject.kind, "id": subject.id, "name": subject.name}}
        for one, subject in ((one, _subject(one.change)) for one in incidents[:MAX_FACTS_TOLD])
    ]
    facts = {"rule": rule.name, "more": len(incidents), "alerts": named}
    return Notice(org_id, notice_id, kind, severity, None, text, _json(facts))


def _subject(change: Open | End) -> Subject:
    return change.sight.subject if isinstance(change, Open) else change.firing.subject


def _opening(org_id: UUID, incident: _Incident) -> tuple[Any, ...]:
    assert isinstance(incident.change, Open)
    rule, sight = incident.change
    told = (incident.text, _json(sight.saw), incident.notice_id)
    return (org_id, incident.id, rule.name, rule.severity, *sight.subject, *told)


def _by_org(rows: Sequence[Record]) -> dict[UUID, list[Firing]]:
    found: defaultdict[UUID, list[Firing]] = defaultdict(list)
    for row in rows:
        subject = Subject(row["subject_kind"], row["subject_id"], row["subject_name"])
        found[row["org_id"]].append(Firing(row["id"], row["rule"], subject, row["opened_at"]))
    return found


def _columns(rows: Sequence[Sequence[object]]) -> Iterator[list[object]]:
    return (list(column) for column in zip(*rows, strict=True))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
