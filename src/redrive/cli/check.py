"""`redrive check`: prove on a live database that nothing accepted has left the books."""

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.connect import SLOW, reach, settings_of, with_a_note
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import Column, emit, note, say, table
from redrive.cli.runner import run
from redrive.store.check import DEFAULT_GRACE_S, RULES, Books, Report, Violation, check

MAX_GRACE_S = 86_400.0


def add_to(app: typer.Typer) -> None:
    command(app, "check")(check_)


def check_(
    place: Place,
    grace_s: Annotated[
        float, typer.Option("--grace", min=0, max=MAX_GRACE_S, help="Seconds that a task may be overdue.")
    ] = DEFAULT_GRACE_S,
    by_org: Annotated[bool, typer.Option("--by-org", help="Show the books of each org, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check every rule over all orgs, in one snapshot. Work may go on meanwhile. 1 means: something is wrong."""

    async def work() -> bool:
        async with reach(settings_of(place)) as url:
            report = await with_a_note(check(url, grace_s=grace_s), SLOW)
        if as_json:
            emit(_shape(report, by_org))
        else:
            _show(report, by_org)
        return report.clean

    run(work)


def _show(report: Report, by_org: bool) -> None:
    for books in (*(report.books if by_org else ()), report.total):
        say(books.org)
        for line in _lines(books):
            say(f"  {line}")
    for violation in report.violations:
        _show_violation(violation)
    if report.clean:
        note(f"All {len(RULES)} rules hold, and the books balance.")
    else:
        note(f"{len(report.violations)} of {len(RULES)} rules are broken.")


def _lines(books: Books) -> list[str]:
    parked = f" + {books.dead_parked} parked" if books.dead_parked else ""
    sums = [
        f"{books.events} events = {books.received} received + {books.queued} queued + {books.delivered} delivered"
        f" + {books.failed} failed",
        f"{books.tasks} tasks = {books.waiting} waiting + {books.leased} leased + {books.held} held"
        f" + {books.succeeded} succeeded + {books.dead} dead",
        f"{books.dead} dead = {books.dead_open} open + {books.dead_resolved} resolved + {books.dead_ignored} ignored"
        f" + {books.dead_deleted} deleted{parked}; {books.replaying} more are replaying",
    ]
    return sums if books.balanced else [*sums, "This does not balance."]


def _show_violation(violation: Violation) -> None:
    rule = violation.rule
    say("")
    say(f"BROKEN  {rule.name}: {rule.sentence}")
    say(f"        {rule.meaning}")
    rows = [[offence.id, offence.detail] for offence in violation.offences]
    table([Column("id"), Column("details", gives_way=True)], rows, empty="")
    if violation.more:
        say("… and more.")


def _shape(report: Report, by_org: bool) -> dict[str, object]:
    return {
        "at": report.at,
        "clean": report.clean,
        "books": _books(report.total),
        **({"by_org": [_books(books) for books in report.books]} if by_org else {}),
        "rules": len(RULES),
        "violations": [
            {
                "rule": violation.rule.name,
                "sentence": violation.rule.sentence,
                "meaning": violation.rule.meaning,
                "offences": [offence._asdict() for offence in violation.offences],
                "more": violation.more,
            }
            for violation in report.violations
        ],
    }


def _books(books: Books) -> dict[str, object]:
    return asdict(books) | {"balanced": books.balanced}
