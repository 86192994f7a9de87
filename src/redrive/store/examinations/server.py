"""Examinations of the server: whether it can be reached, what it is, its clock, whether it keeps what it commits."""

import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from redrive.core.brief import brief
from redrive.core.findings import Finding, Seen, problem, span, warning
from redrive.store.db import LOST, Record
from redrive.store.examinations.looking import Examination, Looking

OLDEST, NEWEST = 15, 18  # versions of PostgreSQL that Redrive is tried on
PROBES = 5

Clock = Callable[[], datetime]


def this_machines_clock() -> datetime:
    return datetime.now(UTC)


async def look_at_connection(looking: Looking, *, pooler: bool) -> Seen:
    """`pooler`: whether the settings say that one stands before the server."""
    limits = looking.limits
    row = await looking.row("doctor_server")
    took_s: list[float] = []
    pids: set[int] = set()
    for _ in range(PROBES):
        began = time.monotonic()
        pids.add((await looking.row("doctor_pid"))["pid"])
        took_s.append((time.monotonic() - began) / 4)  # begin, terms, question, commit
    is_lent = len(pids) > 1 or await _is_shared(looking, pids)
    round_trip_s = statistics.median(took_s)
    major = row["version_num"] // 10_000
    share = row["used"] / max(1, row["most"])
    saw = (
        f"PostgreSQL {row['version']} answers within {round_trip_s * 1000:.1f} ms;"
        f" {row['used']} of {row['most']} connections are taken."
    )
    found: list[Finding] = []
    if major < OLDEST:
        found.append(
            problem(
                f"The server is PostgreSQL {row['version']}.",
                f"Redrive needs {OLDEST} or newer: migrations use what older ones do not have.",
                f"Upgrade the server to {OLDEST} or newer.",
            )
        )
    elif major > NEWEST:
        found.append(
            warning(
                f"The server is PostgreSQL {row['version']}.",
                f"Redrive was tried on {OLDEST} to {NEWEST}.",
                "See whether a newer Redrive says that it knows this version.",
            )
        )
    if row["is_standby"] or row["read_only"] == "on":
        found.append(
            problem(
                "The server takes no writes: it is a standby, or read only.",
                "Nothing can be accepted, claimed or settled here.",
                "Let REDRIVE_DATABASE_URL name the primary (target_session_attrs=read-write chooses it among"
                " several hosts).",
            )
        )
    if share >= limits.connections_used:
        tell = problem if share >= limits.connections_gone else warning
        found.append(
            tell(
                f"{row['used']} of the server's {row['most']} connections are taken.",
                "When none is left, processes that start or reconnect are turned away.",
                "SELECT application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC; says"
                " whose they"
                " are. Raise max_connections, or put a pooler before the server.",
            )
        )
    if round_trip_s >= limits.round_trip_s:
        found.append(
            warning(
                f"A round trip to the server takes {round_trip_s * 1000:.0f} ms.",
                "A claim and a settlement are some of them each: workers are as slow as that.",
                "Run workers and API near the database.",
            )
        )
    if row["is_superuser"]:
        found.append(
            warning(
                f'Redrive logs in as "{row["login"]}", a superuser.',
                "Row-level security does not bind superusers: only the step to redrive_app keeps tenants apart.",
                "Make a login of its own: docs/operations.md, “A PostgreSQL of your own”.",
            )
        )
    if row["notifications"] >= limits.notifications_used:
        tell = problem if row["notifications"] >= limits.notifications_gone else warning
        found.append(
            tell(
                f"The server's queue of notifications is {row['notifications'] * 100:.0f} % full.",
                "A session listens and does not read, or has a transaction open. When the queue is full, every commit"
                " that notifies fails: nothing is accepted any more.",
                "The server's log names the process (“NOTIFY queue is … full”): SELECT pg_terminate_backend(…); ends"
                " it.",
            )
        )
    if is_lent and not pooler:
        found.append(
            problem(
                "A pooler lends server connections transaction by transaction, and the settings do not say so.",
                "Roles and plans that are set when a connection begins get lost: a tenant may be answered under"
                " another's terms.",
                "Set REDRIVE_DATABASE_POOLER=transaction, and REDRIVE_DATABASE_DIRECT_URL to the server itself.",
            )
        )
    return Seen(saw, found)


async def look_at_direct(looking: Looking, url: str) -> Seen:
    """The way past the pooler."""
    here = await looking.row("doctor_pid")
    try:
        one, other = await _asked(looking, url, url)
    except LOST as error:
        what = f"REDRIVE_DATABASE_DIRECT_URL leads to no database: {brief(error)}."
        return Seen(what, [problem(what, _WITHOUT_DIRECT, "See that its address, user and password are right.")])
    found = []
    if (one["name"], one["started_at"]) != (here["name"], here["started_at"]):
        found.append(
            problem(
                "REDRIVE_DATABASE_DIRECT_URL and REDRIVE_DATABASE_URL lead to different databases.",
                _WITHOUT_DIRECT,
                "Let both name the same one, the first without the pooler.",
            )
        )
    if one["pid"] == other["pid"]:
        found.append(
            problem(
                "REDRIVE_DATABASE_DIRECT_URL leads through a pooler.",
                _WITHOUT_DIRECT,
                "Let it name the server itself.",
            )
        )
    return Seen("REDRIVE_DATABASE_DIRECT_URL answers.", found)


_WITHOUT_DIRECT = (
    "Workers are not woken, and find new work by looking every half second; `redrive tail` sees nothing; migrations"
    " do not run."
)


async def _is_shared(looking: Looking, pids: set[int]) -> bool:
    """Whether another connection meets the same server process: a pooler lends it, to both of them."""
    try:
        [beside] = await _asked(looking, looking.url)
    except LOST:  # none may be left
        return False
    return beside["pid"] in pids


async def _asked(looking: Looking, *urls: str) -> list[Record]:
    """Who answers there, on connections of their own that are open at the same time."""
    async with AsyncExitStack() as stack:
        others = [Looking(url, looking.limits) for url in urls]
        for other in others:
            stack.push_async_callback(other.close)
        return [await other.row("doctor_pid") for other in others]


async def look_at_clock(looking: Looking, clock: Clock = this_machines_clock) -> Seen:
    """This machine's clock beside the database's: of some answers the quickest, which leaves least room for doubt."""
    limits = looking.limits
    offset_s, doubt_s = 0.0, float("inf")
    for _ in range(PROBES):
        before, began = clock(), time.monotonic()
        there = (await looking.row("doctor_pid"))["now"]
        took_s = time.monotonic() - began
        if took_s / 2 < doubt_s:
            doubt_s = took_s / 2
            offset_s = (before - there).total_seconds() + doubt_s
    ahead = "ahead of" if offset_s > 0 else "behind"
    off_s = abs(offset_s)
    saw = f"This machine's clock and the database's agree, give or take {(off_s + doubt_s) * 1000:.0f} ms."
    if off_s - doubt_s < limits.skew_s:
        return Seen(saw)
    tell = problem if off_s >= limits.grave_skew_s else warning
    return Seen(
        f"This machine's clock is {span(off_s)} {ahead} the database's.",
        [
            tell(
                f"This machine's clock is {span(off_s)} {ahead} the database's.",
                "When tasks are due is the database's to say, so nothing is delivered early or late. But signatures"
                " carry this machine's"
                " time (receivers refuse what is 5 minutes off), certificates are checked by it, and the times of"
                " log lines are wrong.",
                "Set it right and keep it so, here or on the database's machine: `timedatectl set-ntp true`, or"
                " chrony.",
            )
        ],
    )


async def look_at_durability(looking: Looking) -> Seen:
    on = {row["name"]: row["setting"] for row in await looking.rows("doctor_durability")}
    found = [
        problem(
            f"{name} is off.",
            why,
            f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf(); and `\\drds` in psql shows where else it is set.",
        )
        for name, why in (
            ("fsync", "After a crash of the machine the database may be beyond repair, with all that was accepted."),
            ("full_page_writes", "After a crash of the machine pages may be torn: damage that nobody notices at once."),
            ("synchronous_commit", "Events that were answered with 202 may be lost by a crash."),
        )
        if on.get(name) == "off"
    ]
    told = ", ".join(f"{name} {setting}" for name, setting in on.items())
    return Seen(f"The server runs with {told}.", found)


def server_examinations(clock: Clock, *, pooler: bool, direct_url: str | None = None) -> list[Examination]:
    """That of the connection comes first: without it there are no others."""
    direct = Examination(
        "direct",
        "The way past the pooler leads to the same database.",
        lambda looking: look_at_direct(looking, direct_url or ""),
    )
    return [
        Examination(
            "connection",
            "The database answers, quickly, is of a version that Redrive knows, and has connections left.",
            lambda looking: look_at_connection(looking, pooler=pooler),
        ),
        *([direct] if direct_url is not None else []),
        Examination(
            "clock", "This machine's clock agrees with the database's.", lambda looking: look_at_clock(looking, clock)
        ),
        Examination("durability", "The server keeps what it has committed, whatever happens.", look_at_durability),
    ]
