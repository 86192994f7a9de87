"""Alerts, as people see and set them: incidents, the rules of their org, and who is told. Called by the API, the pages
and the command line; the incidents themselves are store.alert_rounds' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec

from redrive.core import alert_sights
from redrive.core.alert_sights import AllTerms
from redrive.core.alerts import Rule, Scope, Sight, Standing, Terms, default_terms, rules_of, stored_terms
from redrive.store import alert_readings, audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session
from redrive.store.orgs import DEFAULT_ORG
from redrive.store.paging import Page, page_of

MAX_SUBSCRIBERS_SHOWN = 100
ALERT_TYPES = ("redrive.alert.fired", "redrive.alert.over", "redrive.alert.test")


@dataclass(frozen=True, slots=True)
class AlertFilter:
    state: str | None = None  # "firing" or "over"
    rule: str | None = None
    since: datetime | None = None  # opened then or later


@dataclass(frozen=True, slots=True)
class RuleSeen:
    """A rule as an org has it. `seen`: what it sees now; of the installation's, where the engine was asked."""

    rule: Rule
    terms: Terms
    is_set: bool  # by the org, otherwise than by default
    updated_at: datetime | None
    seen: Sequence[Sight]


@dataclass(frozen=True, slots=True)
class FiringRule:
    """A rule of an org that fires, `n` times: for so many subjects."""

    rule: str
    severity: str
    n: int


@dataclass(frozen=True, slots=True)
class Subscriber:
    """An endpoint that alerts are sent to."""

    id: UUID
    name: str
    kind: str
    is_disabled: bool


async def list_alerts(
    session: Session, chosen: AlertFilter, *, limit: int, after: Sequence[object] | None = None
) -> Page:
    """Newest first."""
    terms = (chosen.state, chosen.rule, chosen.since)
    rows = await session.fetch("list_alerts", session.org_id, *terms, *(after or (None, None)), limit + 1)
    return page_of(rows, limit, ("opened_at", "id"))


async def get_alert(session: Session, alert_id: UUID) -> Record | None:
    return await session.fetchrow("get_alert", session.org_id, alert_id)


async def firing_now(session: Session) -> list[FiringRule]:
    """What fires in an org, by rule."""
    rows = await session.fetch("firing_now", session.org_id)
    return [FiringRule(row["rule"], row["severity"], row["n"]) for row in rows]


# -- rules ---------------------------------------------------------------------------------------------------------


def rules_in(org: str) -> tuple[Rule, ...]:
    """Those of the org of that name: the installation's own belong to one."""
    return rules_of(is_default_org=org == DEFAULT_ORG)


async def list_rules(session: Session, org: str, clock: Clock) -> list[RuleSeen]:
    """Every rule of the org, which has that name, with what it sees now; but for those of the installation."""
    rules = rules_in(org)
    rows = {row["rule"]: row for row in await session.fetch("alert_specs", session.org_id)}
    terms = {rule.name: _terms(rule, rows.get(rule.name)) for rule in rules}
    reading = await alert_readings.of_org(session, terms, clock)
    seen = alert_sights.of_org(reading, terms)
    return [
        RuleSeen(
            rule,
            terms[rule.name],
            rule.name in rows,
            rows[rule.name]["updated_at"] if rule.name in rows else None,
            _worth_showing(rule, seen.get(rule.name, ())),
        )
        for rule in rules
    ]


def _worth_showing(rule: Rule, sights: Sequence[Sight]) -> Sequence[Sight]:
    """Of its endpoints those that are not well."""
    if rule.scope is not Scope.ENDPOINT:
        return sights
    return [sight for sight in sights if sight.standing is not Standing.CLEAR]


async def see_installation(engine: Database, rules: Sequence[RuleSeen], clock: Clock) -> list[RuleSeen]:
    """The same rules, with what those of the installation see now. As the engine, which sees others' transactions."""
    if not any(seen.rule.scope is Scope.INSTALLATION for seen in rules):
        return list(rules)
    terms: AllTerms = {seen.rule.name: seen.terms for seen in rules}
    now = clock.now()
    row = await engine.fetchrow("now", now)
    assert row is not None
    due = await alert_readings.due(engine, row["now"])
    watched = await engine.fetchrow("alert_watched", now)
    watched_s = watched["watched_s"] if watched else 0.0
    reading = await alert_readings.of_installation(engine, clock, terms, work_s=due.work_s, watched_s=watched_s)
    sights = alert_sights.of_installation(reading, terms)
    return [
        RuleSeen(seen.rule, seen.terms, seen.is_set, seen.updated_at, sights.get(seen.rule.name, seen.seen))
        for seen in rules
    ]


async def put_rule(session: Session, rule: Rule, terms: Terms, act: Act, clock: Clock) -> None:
    """Set a rule for the org, all of it. It counts from the next round on."""
    before = await session.fetchrow("lock_alert_rule", session.org_id, rule.name)
    spec = terms.to_spec()
    await session.execute("put_alert_rule", session.org_id, rule.name, _json(spec), clock.now())
    was = _spec(before) if before else default_terms(rule).to_spec()
    await _audit(session, act, "alert_rule.put", rule, before=was, after=spec)


async def reset_rule(session: Session, rule: Rule, act: Act) -> None:
    """Back to the defaults. Nothing is said where it has them."""
    gone = await session.fetchrow("delete_alert_rule", session.org_id, rule.name)
    if gone is not None:
        after = default_terms(rule).to_spec()
        await _audit(session, act, "alert_rule.reset", rule, before=_spec(gone), after=after)


def rule_id(org_id: UUID, rule: str) -> UUID:
    """By which the audit names it."""
    return uuid5(org_id, f"alert rule {rule}")


async def _audit(
    session: Session, act: Act, action: str, rule: Rule, *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    before, after = ({"name": rule.name, **spec} for spec in (before, after))
    await audit.record(
        session, act, action, "alert_rule", rule_id(session.org_id, rule.name), before=before, after=after
    )


def _terms(rule: Rule, row: Record | None) -> Terms:
    return default_terms(rule) if row is None else stored_terms(rule, _spec(row))


def _spec(row: Record) -> dict[str, Any]:
    spec: dict[str, Any] = msgspec.json.decode(row["spec"])
    return spec


# -- who is told ---------------------------------------------------------------------------------------------------


async def subscribers(session: Session, event_types: Sequence[str] = ALERT_TYPES) -> list[Subscriber]:
    """The endpoints that get any of these, by name."""
    rows = await session.fetch("alert_subscribers", session.org_id, list(event_types), MAX_SUBSCRIBERS_SHOWN)
    return [Subscriber(row["id"], row["name"], row["kind"], row["is_disabled"]) for row in rows]


async def send_test(session: Session, act: Act, clock: Clock) -> tuple[UUID | None, list[Subscriber]]:
    """Write a notice that says it is a test. Its id (None: there were too many just now), and who will get it."""
    asked = await subscribers(session, ["redrive.alert.test"])
    row = await session.fetchrow("note_alert_test", session.org_id, clock.now(), act.actor)
    notice_id: UUID | None = row["id"] if row else None
    if notice_id is not None:
        told = [subscriber.name for subscriber in asked]
        await audit.record(session, act, "alert.test", "notice", notice_id, after={"endpoints": told})
    return notice_id, asked


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
