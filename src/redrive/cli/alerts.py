"""`redrive alerts`: what fires and what fired, the rules of an org, and a test of who is told."""

from typing import Annotated, assert_never

import msgspec
import typer

from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.options import AsJson, Because, Limit, Where, command
from redrive.cli.output import Column, emit, note, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.alert_words import percent, span
from redrive.core.alerts import AlertRuleError, Rule, Standing, Unit, read_terms
from redrive.store import alerts
from redrive.store.alerts import AlertFilter, RuleSeen
from redrive.store.clock import DatabaseClock
from redrive.store.db import Record

app = typer.Typer(no_args_is_help=True, help="Alerts: list incidents, see and set rules, test who is told.")

Name = Annotated[str, typer.Argument(metavar="RULE", help="The rule's name, like failure_rate.")]


@command(app, "list")
def list_(
    where: Where,
    state: Annotated[str | None, typer.Option("--state", help="Only those that are: firing or over.")] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Of this rule, like failure_rate.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List incidents, newest first."""

    async def work() -> bool:
        if state not in (None, "firing", "over"):
            raise WrongUsage("--state is firing or over.")
        async with open_desk(where) as desk, desk.session() as session:
            of = _rule(desk, rule).name if rule else None
            found = (await alerts.list_alerts(session, AlertFilter(state, of), limit=limit)).rows
        if as_json:
            for row in found:
                emit({**dict(row), "saw": msgspec.json.decode(row["saw"])})
            return True
        titles = ("opened", "over", "rule", "subject", "severity", "text")
        table(
            [Column(title, gives_way=title == "text") for title in titles],
            [[row["opened_at"], row["over_at"], *_told(row)] for row in found],
            empty="No alert fires, and none has." if state is rule is None else "There is no such alert.",
        )
        return True

    run(work)


def _told(row: Record) -> list[object]:
    return [row["rule"], row["subject_name"] or row["subject_kind"], row["severity"], row["text"]]


@command(app, "rules")
def rules(where: Where, as_json: AsJson = False) -> None:
    """List the rules of the org, how they are set, and what each sees now."""

    async def work() -> bool:
        async with open_desk(where) as desk:
            found = await _rules(desk)
        if as_json:
            for seen in found:
                emit(_shape(seen))
            return True
        titles = ("rule", "on", "set to", "sees now", "fires when")
        table(
            [Column(title, gives_way=title == "fires when") for title in titles],
            [
                [seen.rule.name, "yes" if seen.terms.enabled else "no", _set_to(seen), _sees(seen), seen.rule.what]
                for seen in found
            ],
            empty="There are no rules.",
        )
        return True

    run(work)


@command(app, "set")
def set_(
    where: Where,
    name: Name,
    values: Annotated[
        list[str] | None, typer.Argument(metavar="[PARAMETER=NUMBER]...", help="As in threshold=0.1.")
    ] = None,
    on: Annotated[bool, typer.Option("--on/--off", help="Whether it is looked at.")] = True,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Set a rule, all of it: what is left out is the default's."""

    async def work() -> bool:
        async with open_desk(where) as desk:
            rule = _rule(desk, name)
            try:
                terms = read_terms(rule, {"enabled": on, **_numbers(values or [])})
            except AlertRuleError as error:
                raise WrongUsage(f"{error.field} {error}.") from None
            async with desk.session() as session:
                await alerts.put_rule(session, rule, terms, act_of(because), DatabaseClock())
            (seen,) = [seen for seen in await _rules(desk) if seen.rule is rule]
        if as_json:
            emit(_shape(seen))
        else:
            note(f'Rule "{name}" is {"on: " + (_set_to(seen) or "it has no numbers") if on else "off"}.')
        return True

    run(work)


@command(app, "reset")
def reset(where: Where, name: Name, because: Because = None, as_json: AsJson = False) -> None:
    """Set a rule back to its defaults."""

    async def work() -> bool:
        async with open_desk(where) as desk:
            rule = _rule(desk, name)
            async with desk.session() as session:
                await alerts.reset_rule(session, rule, act_of(because))
            (seen,) = [seen for seen in await _rules(desk) if seen.rule is rule]
        if as_json:
            emit(_shape(seen))
        else:
            note(f'Rule "{name}" has its defaults.')
        return True

    run(work)


@command(app, "test")
def try_out(where: Where, because: Because = None, as_json: AsJson = False) -> None:
    """Send a test to every endpoint that gets alerts."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            notice_id, told = await alerts.send_test(session, act_of(because), DatabaseClock())
        if notice_id is None:
            raise Refused("Alerts were tested 20 times within the last minute. Wait a minute, then test again.")
        if as_json:
            emit({"notice_id": notice_id, "endpoints": [{"id": each.id, "name": each.name} for each in told]})
        elif told:
            note(f"A test is on its way to {', '.join(each.name for each in told)}.")
        else:
            note("No endpoint gets alerts. Give one the event type redrive.alert.* and test again.")
        return True

    run(work)


async def _rules(desk: Desk) -> list[RuleSeen]:
    async with desk.session() as session:
        found = await alerts.list_rules(session, desk.org, DatabaseClock())
    return await alerts.see_installation(desk.engine, found, DatabaseClock())


def _rule(desk: Desk, name: str) -> Rule:
    known = {rule.name: rule for rule in alerts.rules_in(desk.org)}
    if name not in known:
        raise Refused(f'There is no alert rule "{name}" in this org. There are: {", ".join(known)}.')
    return known[name]


def _numbers(values: list[str]) -> dict[str, object]:
    numbers: dict[str, object] = {}
    for value in values:
        name, _, number = value.partition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise WrongUsage(f'"{value}" is not PARAMETER=NUMBER, as in threshold=0.1.') from None
    return numbers


def _set_to(seen: RuleSeen) -> str:
    return ", ".join(f"{each.name} {_said(seen.terms[each.name], each.unit)}" for each in seen.rule.parameters)


def _said(number: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return percent(number)
        case Unit.SECONDS:
            return span(number)
        case Unit.COUNT:
            return f"{number:g}"
    assert_never(unit)


def _sees(seen: RuleSeen) -> str:
    above = [sight for sight in seen.seen if sight.standing is Standing.ABOVE]
    if not above:
        return "all well"
    return ", ".join(sight.subject.name for sight in above if sight.subject.name) or "above"


def _shape(seen: RuleSeen) -> dict[str, object]:
    return {
        "rule": seen.rule.name,
        **seen.terms.to_spec(),
        "is_set": seen.is_set,
        "readings": [
            {"subject": sight.subject.name or sight.subject.kind, "standing": sight.standing, "saw": dict(sight.saw)}
            for sight in seen.seen
        ],
    }
