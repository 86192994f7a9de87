"""`redrive stats`: where an org stands, in numbers, and how its deliveries went."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from redrive.api.analytics_shapes import analytics_shape
from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import Column, emit, facts, say, table
from redrive.cli.runner import run
from redrive.core.analytics import PERIODS, Dimension, Outcomes, Period
from redrive.core.findings import counted
from redrive.core.pulse import wait_text
from redrive.store.analytics import DEFAULT_TOP_KEYS, MAX_TOP_KEYS, Course, Ranking, by_key, over_time
from redrive.store.clock import DatabaseClock
from redrive.store.db import Session
from redrive.store.stats import Paused, Stats
from redrive.store.stats import stats as store_stats


class Window(StrEnum):
    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"
    YEAR = "365d"


class Sort(StrEnum):
    VOLUME = "volume"
    FAILURES = "failures"


COLUMNS = ("delivered", "failed", "success", "retries", "rescued", "p50", "p95", "p99")


def add_to(app: typer.Typer) -> None:
    command(app, "stats")(stats)


def stats(
    where: Where,
    window: Annotated[Window | None, typer.Option(help="How deliveries went since then.")] = None,
    by: Annotated[
        Dimension | None, typer.Option(help="The same for each of these, in the last 24 h or --window.")
    ] = None,
    sort: Annotated[Sort, typer.Option(help="With --by: what comes first.")] = Sort.VOLUME,
    limit: Annotated[int, typer.Option(min=1, max=MAX_TOP_KEYS, help="With --by: at most so many.")] = DEFAULT_TOP_KEYS,
    as_json: AsJson = False,
) -> None:
    """Show an org's numbers: events, tasks, dead letters, endpoints, what is paused, what is due longest."""
    period = PERIODS[window or Window.DAY] if window or by else None

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            seen = await store_stats(session, DatabaseClock())
            went = await _went(session, period, by, limit=limit, by_failures=sort is Sort.FAILURES)
        if as_json:
            emit({**asdict(seen), "analytics": went and analytics_shape(went[0], by, None, went[1])})
            return True
        if went is None:
            facts(_said(seen))
        else:
            _show(*went)
        return True

    run(work)


async def _went(
    session: Session, period: Period | None, by: Dimension | None, *, limit: int, by_failures: bool
) -> tuple[Course, Ranking | None] | None:
    if period is None:
        return None
    course = await over_time(session, DatabaseClock(), period)
    if by is None:
        return course, None
    return course, await by_key(session, DatabaseClock(), period, by, limit=limit, by_failures=by_failures)


def _show(course: Course, ranking: Ranking | None) -> None:
    rows = [["all", *_cells(course.whole)]]
    if ranking is not None:
        rows += [[keyed.name, *_cells(keyed.outcomes)] for keyed in ranking.keys]
        if ranking.others is not None:
            rows.append(["others", *_cells(ranking.others)])
    title = "" if ranking is None else ranking.dimension.value.replace("_", " ")
    say(f"Since {course.since:%Y-%m-%d %H:%M}Z")
    table([Column(title, gives_way=True), *map(Column, COLUMNS)], rows, empty="")


def _cells(outcomes: Outcomes) -> list[object]:
    return [
        outcomes.delivered,
        outcomes.failed,
        _share(outcomes.success_rate),
        None if outcomes.retries_before_success is None else f"{outcomes.retries_before_success:.2f}",
        _share(outcomes.rescue_rate),
        *(wait_text(outcomes.wait_s(share)) for share in (0.5, 0.95, 0.99)),
    ]


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _said(seen: Stats) -> dict[str, object]:
    """For a person to read: groups of numbers in one line each, their names behind them (`3 waiting, 0 leased`)."""
    told = asdict(seen) | {"success_rate": _share(seen.success_rate), "paused": _paused(seen.paused)}
    lines = {
        name: ", ".join(f"{n} {of}" for of, n in v.items()) if isinstance(v, dict) else v for name, v in told.items()
    }
    return {name.replace("_", " "): line for name, line in lines.items()}


def _paused(paused: Paused) -> str:
    what = [name for name, is_so in (("the installation", paused.installation), ("the org", paused.org)) if is_so]
    if paused.endpoints:
        what.append(counted(paused.endpoints, "endpoint"))
    return ", ".join(what) or "nothing"
