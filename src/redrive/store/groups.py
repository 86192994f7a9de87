"""Groups of dead letters: those with one fingerprint, that is, one cause. Reads only; serves the API."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.store.db import Record, Session, like_literal, like_pattern
from redrive.store.dead_letters import DeadLetterFilter
from redrive.store.trends import Span, Trend

MAX_GROUPS_LOOKED = 1_000
MAX_COUNTS_LOOKED = 4_000  # of causes, each perhaps in several shards
FIRST_COUNT = 100  # letters, in each group
SECOND_COUNT = 50_000  # letters, in all groups that have more
MAX_TRENDS = 50  # groups in one question
FIRST_TREND_COUNT = 100  # letters, in each group: 50 of them are 15 000 index entries in all
SECOND_TREND_COUNT = 5_000  # letters, in all groups that have more
SECOND_COUNT_FILTERED = 20_000  # the same where each letter must be looked at, since its group does not tell


@dataclass(frozen=True, slots=True)
class Groups:
    """The biggest groups. `total` is None where there are more than were looked at."""

    rows: list[Record]
    has_more: bool
    total: int | None


async def list_groups(session: Session, chosen: DeadLetterFilter, *, limit: int) -> Groups:
    """Biggest first. A group whose letters were not all counted says so in `is_whole`: it has at least `n`.

    Whole groups are counted on write; of some letters of each the counting is done here.
    """
    if not any(
        (chosen.event_type, chosen.external_system, chosen.reason, chosen.failed_since, chosen.failed_until, chosen.q)
    ):
        found = await _whole_groups(session, chosen, limit)
        if found is not None:
            return found
    return await _counted_groups(session, chosen, limit)


async def _whole_groups(session: Session, chosen: DeadLetterFilter, limit: int) -> Groups | None:
    """None where those that were looked at are too few for a page, and there are more: the counts of causes of which
    nothing is left, and which the janitor has not folded yet, may stand before others.
    """
    rows = await session.fetch(
        "list_whole_groups",
        session.org_id,
        chosen.state,
        chosen.kind,
        chosen.endpoint_id,
        chosen.category,
        limit,
        MAX_GROUPS_LOOKED,
        MAX_COUNTS_LOOKED,
    )
    is_all, total, shown = rows[0]["is_all"], rows[0]["groups"], [row for row in rows if row["n"]]
    if len(shown) < limit and not is_all:
        return None
    return Groups(shown, total > len(shown), total if is_all else None)


async def _counted_groups(session: Session, chosen: DeadLetterFilter, limit: int) -> Groups:
    is_filtered = any((chosen.event_type, chosen.external_system, chosen.reason, chosen.q))
    rows = await session.fetch(
        "list_groups",
        session.org_id,
        chosen.state,
        chosen.kind,
        None if chosen.event_type is None else like_pattern(chosen.event_type),
        chosen.external_system,
        chosen.endpoint_id,
        chosen.reason,
        chosen.category,
        chosen.failed_since,
        chosen.failed_until,
        limit,
        MAX_GROUPS_LOOKED,
        FIRST_COUNT,
        SECOND_COUNT_FILTERED if is_filtered else SECOND_COUNT,
        f"%{like_literal(chosen.q)}%" if chosen.q else None,
    )
    if not rows:
        return Groups([], has_more=False, total=0)
    is_all = rows[0]["looked"] < MAX_GROUPS_LOOKED
    return Groups(rows, rows[0]["groups"] > len(rows), rows[0]["groups"] if is_all else None)


async def trends(
    session: Session,
    fingerprints: Sequence[str],
    *,
    since: datetime,
    until: datetime,
    buckets: int,
    state: str = "open",
) -> dict[str, Trend]:
    """When the letters of each group came, within a span of time. Of a big group only the newest may be counted."""
    assert len(fingerprints) <= MAX_TRENDS
    span = Span(since, until, buckets)
    limits = (FIRST_TREND_COUNT, SECOND_TREND_COUNT)
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for row in await session.fetch(
        "group_trends", session.org_id, state, list(fingerprints), since, until, span.bucket_s, *limits
    ):
        found[row["fingerprint"]].append(row)
    return {
        fingerprint: span.trend_of(rows, is_whole=not rows or sum(row["n"] for row in rows) < rows[0]["most"])
        for fingerprint, rows in ((each, found[each]) for each in fingerprints)
    }
