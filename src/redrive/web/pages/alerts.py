"""Alerts: what fires now, who is told, the rules with their thresholds, and what fired before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from redrive.api.context import Context
from redrive.api.cursors import ListPlace
from redrive.api.routes.alerts import alert
from redrive.api.shapes import Shape
from redrive.core.alert_words import percent
from redrive.core.alert_words import span as told_span
from redrive.core.alerts import RULES, Parameter, Scope, Standing, Unit
from redrive.store import alerts
from redrive.store.alerts import AlertFilter, RuleSeen, Subscriber
from redrive.store.paging import MAX_PAGE_ROWS
from redrive.web.frame import Frame, load_frame
from redrive.web.policy_words import span
from redrive.web.render import render
from redrive.web.visitor import PageRoute, Visitor

PATH = "/alerts"
HISTORY_ROWS = 25
_ORDER = ("error", "warning", "info")

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Field:
    """A number of a rule, as the form has it. `type`: how static/forms.js reads it."""

    name: str
    label: str
    value: str
    type: str
    hint: str


@dataclass(frozen=True, slots=True)
class ShownRule:
    seen: RuleSeen
    fields: tuple[Field, ...]
    colour: str
    sees: str

    @property
    def is_of_installation(self) -> bool:
        return self.seen.rule.scope is Scope.INSTALLATION


@dataclass(frozen=True, slots=True)
class AlertsPage:
    frame: Frame
    firing: Sequence[Shape]
    is_cut: bool  # more fire than are shown
    history: Sequence[Shape]
    rules: Sequence[ShownRule]
    told: Sequence[Subscriber]
    next_href: str | None
    first_href: str | None

    def title_of(self, name: str) -> str:
        """Of a rule, also of one that this version does not have any more."""
        return RULES[name].title if name in RULES else name


@router.get(PATH)
async def alerts_page(request: Request, visitor: Visitor, context: Context) -> Response:
    place = ListPlace("page alerts", visitor.org_id, {})
    given = request.query_params.get("cursor")
    after = context.cursors.read(place, given)
    async with context.tenant(visitor) as session:
        frame = await load_frame(session, visitor, context, PATH)
        firing = await alerts.list_alerts(session, AlertFilter(state="firing"), limit=MAX_PAGE_ROWS)
        over = await alerts.list_alerts(session, AlertFilter(state="over"), limit=HISTORY_ROWS, after=after)
        rules = await alerts.list_rules(session, visitor.org_name, context.clock)
        told = await alerts.subscribers(session)
    rules = await alerts.see_installation(context.engine_db, rules, context.clock)
    cursor = context.cursors.write(place, over.next_key) if over.next_key else None
    page = AlertsPage(
        frame,
        sorted((alert(row) for row in firing.rows), key=lambda shape: _ORDER.index(shape["severity"])),
        firing.next_key is not None,
        [alert(row) for row in over.rows],
        [_shown(seen) for seen in rules],
        told,
        f"{PATH}?{urlencode({'cursor': cursor})}#history" if cursor else None,
        PATH if given else None,
    )
    return render(request, "alerts.html", page)


def _shown(seen: RuleSeen) -> ShownRule:
    fields = tuple(
        Field(each.name, each.what, _written(seen.terms[each.name], each.unit), _TYPES[each.unit], _limits(each))
        for each in seen.rule.parameters
    )
    above = [sight for sight in seen.seen if sight.standing is Standing.ABOVE]
    names = [sight.subject.name for sight in above if sight.subject.name]
    if not seen.terms.enabled:
        return ShownRule(seen, fields, "quiet", "off")
    if above:
        return ShownRule(seen, fields, "bad", f"{len(names)} above it" if names else "above it")
    return ShownRule(seen, fields, "ok", "all well")


_TYPES = {Unit.SHARE: "percent", Unit.SECONDS: "seconds", Unit.COUNT: "number"}


def _written(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return f"{value * 100:.6g}"
        case Unit.SECONDS:
            return span(value)
        case Unit.COUNT:
            return f"{value:.0f}"
    assert_never(unit)


def _limits(parameter: Parameter) -> str:
    match parameter.unit:
        case Unit.SHARE:
            said = (percent(parameter.least), percent(parameter.most), percent(parameter.default))
        case Unit.SECONDS:
            said = (told_span(parameter.least), told_span(parameter.most), told_span(parameter.default))
        case Unit.COUNT:
            said = (f"{parameter.least:,.0f}", f"{parameter.most:,.0f}", f"{parameter.default:,.0f}")
        case _:
            assert_never(parameter.unit)
    return "From {} to {}; {} by default.".format(*said)
