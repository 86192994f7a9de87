"""Alerts: what fires and what fired, the rules of an org and their thresholds, and a test of who is told."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from pydantic import WithJsonSchema

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.cursors import ListPlace
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import AlertsQuery, id_in_path, no_query
from redrive.api.schemas.alerts import RULE_SCHEMA, Alert, AlertRule, AlertTest
from redrive.api.schemas.base import Page, shows
from redrive.core.alerts import AlertRuleError, Rule, Sight, Subject, read_terms
from redrive.store import alerts
from redrive.store.alerts import AlertFilter, RuleSeen, Subscriber
from redrive.store.db import Record
from redrive.store.keys import Caller

MAX_READINGS = 100  # of a rule that looks at many endpoints
TOO_MANY_TESTS = "Alerts were tested 20 times within the last minute. Wait a minute, then test again."

router = APIRouter(prefix="/v1/alerts", tags=["alerts"], dependencies=SCHEMES)

_Given = Annotated[dict[str, object], WithJsonSchema(RULE_SCHEMA), Body()]
_Rule = Annotated[str, Path(examples=["failure_rate"])]


@router.get("", responses=shows(Page[Alert]))
async def list_alerts(query: Annotated[AlertsQuery, Query()], caller: Reader, context: Context) -> Response:
    """Incidents, newest first; those that are over are kept for 90 days. Never counted (`total_count` is null)."""
    place = ListPlace("alerts", caller.org_id, query.filters())
    after = context.cursors.read(place, query.cursor)
    chosen = AlertFilter(query.state, query.rule, query.since)
    async with context.tenant(caller) as session:
        page = await alerts.list_alerts(session, chosen, limit=query.limit, after=after)
    cursor = context.cursors.write(place, page.next_key) if page.next_key else None
    return answer(shapes.page([alert(row) for row in page.rows], limit=query.limit, cursor=cursor, total=None))


@router.get("/rules", responses=shows(Page[AlertRule]), dependencies=[Depends(no_query)])
async def list_rules(caller: Reader, context: Context) -> Response:
    """The rules of the org with their defaults, limits, and what each sees now. Those of the installation belong to the
    org `default`.
    """
    seen = await rules_seen(caller, context)
    return answer(shapes.whole([rule(each) for each in seen], len(seen)))


async def rules_seen(caller: Caller, context: ApiContext) -> list[RuleSeen]:
    async with context.tenant(caller) as session:
        seen = await alerts.list_rules(session, caller.org_name, context.clock)
    return await alerts.see_installation(context.engine_db, seen, context.clock)


@router.put("/rules/{rule}", responses=shows(AlertRule), dependencies=[Depends(no_query)])
async def put_rule(rule: _Rule, request: Request, given: _Given, caller: Manager, context: Context) -> Response:
    """Set a rule, all of it: what is left out is the default's. It counts from the next look on, within seconds."""
    found = _rule(rule, caller)
    try:
        terms = read_terms(found, given)
    except AlertRuleError as error:
        raise invalid(FieldError(("body", error.field[:200]), str(error))) from None
    async with context.tenant(caller) as session:
        await alerts.put_rule(session, found, terms, act_of(request, caller), context.clock)
    return await _as_it_is(found, caller, context)


@router.delete("/rules/{rule}", status_code=204, dependencies=[Depends(no_query)])
async def reset_rule(rule: _Rule, request: Request, caller: Manager, context: Context) -> Response:
    """Back to the defaults."""
    found = _rule(rule, caller)
    async with context.tenant(caller) as session:
        await alerts.reset_rule(session, found, act_of(request, caller))
    return Response(status_code=204)


@router.post("/test", responses=shows(AlertTest), dependencies=[Depends(no_query)])
async def test_alerts(request: Request, caller: Manager, context: Context) -> Response:
    """Write a notice of the kind `alert.test`, which every endpoint gets that asks for it, as alerts are sent. Answers
    which those are.
    """
    async with context.tenant(caller) as session:
        notice_id, told = await alerts.send_test(session, act_of(request, caller), context.clock)
    if notice_id is None:
        raise Problem(429, TOO_MANY_TESTS)
    return answer({"notice_id": notice_id, "endpoints": [_receiver(each) for each in told]})


@router.get("/{alert_id}", responses=shows(Alert), dependencies=[Depends(no_query)])
async def get_alert(
    alert_id: Annotated[str, Path(json_schema_extra={"format": "uuid"})], caller: Reader, context: Context
) -> Response:
    """One incident."""
    async with context.tenant(caller) as session:
        row = await alerts.get_alert(session, id_in_path(alert_id, "alert"))
    if row is None:
        raise not_found("alert")
    return answer(alert(row))


async def _as_it_is(found: Rule, caller: Caller, context: ApiContext) -> Response:
    (seen,) = [each for each in await rules_seen(caller, context) if each.rule is found]
    return answer(rule(seen))


def _rule(name: str, caller: Caller) -> Rule:
    for rule in alerts.rules_in(caller.org_name):
        if rule.name == name:
            return rule
    raise not_found("alert rule")


def alert(row: Record) -> shapes.Shape:
    subject = Subject(row["subject_kind"], row["subject_id"], row["subject_name"])
    return {
        "id": row["id"],
        "rule": row["rule"],
        "severity": row["severity"],
        "state": "firing" if row["over_at"] is None else "over",
        "subject": _subject(subject),
        "opened_at": row["opened_at"],
        "over_at": row["over_at"],
        "text": row["text"],
        "over_text": row["over_text"],
        "saw": msgspec.Raw(row["saw"].encode()),
    }


def rule(seen: RuleSeen) -> shapes.Shape:
    rule, terms = seen.rule, seen.terms
    return {
        "rule": rule.name,
        "title": rule.title,
        "what": rule.what,
        "severity": rule.severity,
        "scope": rule.scope.value,
        "enabled": terms.enabled,
        "is_set": seen.is_set,
        "updated_at": seen.updated_at,
        "parameters": [
            {
                "name": each.name,
                "value": terms[each.name],
                "default": each.default,
                "least": each.least,
                "most": each.most,
                "unit": each.unit.value,
                "what": each.what,
            }
            for each in rule.parameters
        ],
        "readings": [_reading(sight) for sight in seen.seen[:MAX_READINGS]],
    }


def _reading(sight: Sight) -> shapes.Shape:
    return {"subject": _subject(sight.subject), "standing": sight.standing.value, "saw": dict(sight.saw)}


def _subject(subject: Subject) -> shapes.Shape:
    return {"kind": subject.kind, "id": subject.id, "name": subject.name}


def _receiver(subscriber: Subscriber) -> shapes.Shape:
    return {
        "id": subscriber.id,
        "name": subscriber.name,
        "kind": subscriber.kind,
        "disabled": subscriber.is_disabled,
    }
