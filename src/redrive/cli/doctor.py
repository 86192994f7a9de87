"""`redrive doctor`: examine an installation and say what is wrong, why it matters, and what to do. Changes nothing."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from redrive.cli.connect import located, settings_of, with_a_note
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import console, emit
from redrive.cli.runner import Unreachable, run
from redrive.core.findings import Diagnosis, Examined, Severity, counted
from redrive.doctor.diagnose import diagnose, unreadable, without_database
from redrive.settings import SettingsError
from redrive.store.postgres_errors import EmbeddedError

MARKS = {None: ("✓", "green"), Severity.WARNING: ("!", "yellow"), Severity.PROBLEM: ("✗", "red")}


def add_to(app: typer.Typer) -> None:
    command(app, "doctor")(doctor)


def doctor(
    place: Place,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings count as well: exit code 1 for them, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Examine everything and change nothing. 1 means: something needs somebody; each finding says what to do."""

    async def work() -> bool:
        diagnosis = await _diagnosed(place)
        if as_json:
            emit(_shape(diagnosis))
        else:
            _show(diagnosis)
        return not diagnosis.needs_somebody and not (strict and diagnosis.count(Severity.WARNING))

    run(work)


async def _diagnosed(place: Place) -> Diagnosis:
    try:
        settings = settings_of(place)
    except SettingsError as problem:
        return unreadable(str(problem))
    try:
        async with located(settings) as there:
            examined = diagnose(settings, there.url, nobody_runs=there.was_started)
            return await with_a_note(examined, "The database is slow to answer, or another session holds a lock.")
    except (Unreachable, EmbeddedError) as problem:
        return without_database(await diagnose(settings, None), str(problem))


def _show(diagnosis: Diagnosis) -> None:
    paper = console(soft_wrap=True)
    for examined in diagnosis.examinations:
        _show_one(paper, examined)
    problems, warnings = diagnosis.count(Severity.PROBLEM), diagnosis.count(Severity.WARNING)
    made = sum(examined.made for examined in diagnosis.examinations)
    if not problems and not warnings:
        paper.print(Text(f"{counted(made, 'examination')}, nothing found.", style="green"))
        return
    paper.print(
        Text(f"{counted(made, 'examination')}: {counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
    )


def _show_one(paper: Console, examined: Examined) -> None:
    gravest = next((s for s in (Severity.PROBLEM, Severity.WARNING) if examined.has(s)), None)
    mark, style = MARKS[gravest] if examined.made or gravest else ("–", "dim")
    paper.print(Text.assemble((f"{mark} ", style), (f"{examined.name:<13}", "bold"), _safe(examined.saw)))
    for finding in examined.findings:
        paper.print(
            Text.assemble("    ", (f"{finding.severity.upper()}  ", MARKS[finding.severity][1]), _safe(finding.what))
        )
        paper.print(Text(f"    {_safe(finding.why)}"))
        paper.print(Text.assemble("    → ", (_safe(finding.fix), "cyan")))
    if examined.more:
        paper.print(Text(f"    … and {examined.more} more."))


def _safe(text: str) -> str:
    """Names and messages come from outside: what would move the cursor is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shape(diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "at": diagnosis.at,
        "fine": not diagnosis.count(Severity.PROBLEM) and not diagnosis.count(Severity.WARNING),
        "problems": diagnosis.count(Severity.PROBLEM),
        "warnings": diagnosis.count(Severity.WARNING),
        "examinations": [
            {**asdict(examined), "took_ms": round(examined.took_ms, 1)} for examined in diagnosis.examinations
        ],
    }
