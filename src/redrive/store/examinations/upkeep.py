"""Examinations of how the database is kept: vacuum, and whoever keeps it from its work; locks that are waited for."""

from collections.abc import Mapping, Sequence

from redrive.core.findings import Finding, Seen, counted, problem, span, warning
from redrive.store.db import Record
from redrive.store.examinations.advice import literal
from redrive.store.examinations.looking import Examination, Looking

PAGE_BYTES = 8192  # no row is longer than a page: what is longer lies beside the table
WRAPAROUND_MOST = 2_000_000_000  # transactions; a little above, PostgreSQL takes no writes any more

MAX_THINGS = 5  # that are waited for, named in a finding


async def look_at_vacuum(looking: Looking) -> Seen:
    rows = await looking.rows("doctor_vacuum", looking.limits.now)
    if not rows:
        return Seen("There are no tables yet.")
    found = [finding for row in rows for finding in _vacuum_findings(row, looking)]
    if not rows[0]["autovacuum"]:
        found.insert(
            0,
            problem(
                "Autovacuum is off on this server (or track_counts, without which it does nothing).",
                "Rows that were changed or removed stay: the tables of a queue grow without end, and claims get slow.",
                "ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();",
            ),
        )
    dead = sum(row["dead"] for row in rows)
    oldest = max(row["xid_age"] for row in rows)
    return Seen(
        f"{counted(dead, 'dead row')} in {len(rows)} tables; the oldest row is {oldest / 1e6:.1f} million transactions"
        " old.",
        found,
    )


def _vacuum_findings(row: Record, looking: Looking) -> list[Finding]:
    limits = looking.limits
    name, dead, live = row["name"], row["dead"], row["live"]
    found = []
    if not row["enabled"]:
        found.append(
            problem(
                f"Autovacuum is switched off for {name}.",
                "What was changed or removed in it stays, and it grows without end.",
                f"ALTER TABLE redrive.{name} RESET (autovacuum_enabled);",
            )
        )
    if dead > max(limits.dead_rows, live) and row["since_s"] >= limits.unvacuumed_s:
        last = f"{span(row['since_s'])} ago" if row["vacuumed_at"] else "never since the server started"
        found.append(
            warning(
                f"{name} has {dead} dead rows beside {live} live ones; it was last vacuumed {last}.",
                "Reading it means stepping over them. Something keeps vacuum from removing them, or from coming.",
                "See whether a transaction is open (the examination `transactions`); then VACUUM (VERBOSE)"
                f" redrive.{name};",
            )
        )
    if _is_mostly_empty(row, limits.heap_bytes):
        found.append(
            warning(
                f"{name} takes {row['heap_bytes'] / 2**20:.0f} MiB for {live} rows: most of it is empty.",
                "It grew while vacuum was kept from its work. Whatever reads it whole reads the emptiness, too.",
                f"In a quiet hour: VACUUM (FULL, ANALYZE) redrive.{name}; it locks the table. pg_repack does not.",
            )
        )
    if row["xid_age"] > 2 * row["freeze_max_age"] or row["mxid_age"] > 1_000_000_000:
        tell = problem if row["xid_age"] > WRAPAROUND_MOST / 2 else warning
        found.append(
            tell(
                f"{name} was not frozen for {row['xid_age'] / 1e6:.0f} million transactions.",
                "At two thousand millions PostgreSQL takes no writes any more, to save what there is.",
                "End what holds vacuum up (the examination `transactions`), then VACUUM (FREEZE, VERBOSE)"
                f" redrive.{name};",
            )
        )
    return found


def _is_mostly_empty(row: Record, at_least: int) -> bool:
    if not row["is_known"] or row["is_standby"]:  # which counts no rows, and takes no VACUUM
        return False
    heap_bytes: int = row["heap_bytes"]
    return heap_bytes >= at_least and heap_bytes > PAGE_BYTES * max(row["live"], 1)


async def look_at_transactions(looking: Looking) -> Seen:
    limits = looking.limits
    rows = await looking.rows("doctor_transactions", limits.transaction_s, limits.transaction_xids, limits.now)
    prepared = await looking.rows("doctor_prepared", limits.transaction_s, limits.now)
    slots = await looking.rows("doctor_slots", limits.transaction_xids)
    hidden = (await looking.row("doctor_hidden"))["n"]
    found = [_transaction_finding(row, looking) for row in rows]
    found += [
        problem(
            f"The transaction {row['gid']!r} of {row['login']} was prepared {span(row['since_s'])} ago and never"
            " ended.",
            "It holds its locks, and vacuum removes nothing that is newer than it, until somebody ends it, over"
            " restarts.",
            f"ROLLBACK PREPARED {literal(row['gid'])}; or COMMIT PREPARED, as whoever prepared it says.",
        )
        for row in prepared
    ]
    found += [_slot_finding(row) for row in slots]
    return Seen(
        f"Transactions older than {span(limits.transaction_s)}: {len(rows)}, prepared ones: {len(prepared)};"
        f" replication slots that stand in the way: {len(slots)}."
        + (f" Of {hidden} sessions of other logins PostgreSQL hides how long theirs is open." if hidden else ""),
        found,
    )


def _transaction_finding(row: Record, looking: Looking) -> Finding:
    who = f"{row['program'] or 'a program without a name'} of {row['login']}" + (
        f" from {row['host']}" if row["host"] else ""
    )
    since_s = row["since_s"]
    age = f"open for {span(since_s)}" if since_s is not None else f"{row['xids']} transactions old"
    idle = " It does nothing meanwhile." if (row["state"] or "").startswith("idle in transaction") else ""
    grave = since_s is None or since_s >= looking.limits.grave_transaction_s
    fix = f"SELECT pg_terminate_backend({row['pid']}); ends it, and whatever it was about to do."
    if row["backend_type"] == "walsender":
        fix = (
            "See to the standby (hot_standby_feedback) or the copy that it serves; max_standby_streaming_delay"
            " bounds its queries."
        )
    elif idle:
        fix += " ALTER ROLE … SET idle_in_transaction_session_timeout = '5min'; keeps it from happening again."
    return (problem if grave else warning)(
        f"A transaction is {age}: process {row['pid']}, {who}.{idle}",
        "Vacuum removes nothing that is newer than it: the queue's tables grow, and claims get slower by the minute.",
        fix,
    )


def _slot_finding(row: Record) -> Finding:
    since = f" since {row['inactive_since'][:19].replace('T', ' ')}" if row["inactive_since"] else ""
    how = f"is used by nobody{since}" if not row["active"] else f"is {row['xids']} transactions behind"
    return warning(
        f"The replication slot {row['name']} ({row['type']}) {how}.",
        "It keeps the write-ahead log, until the disk is full, and rows that vacuum would remove.",
        f"SELECT pg_drop_replication_slot({literal(row['name'])}); unless its reader comes back; max_slot_wal_keep_size"
        " bounds what it keeps.",
    )


async def look_at_locks(looking: Looking) -> Seen:
    limits = looking.limits
    rows = await looking.rows("doctor_locks", limits.lock_wait_s, limits.now)
    waiting = {row["pid"]: row for row in rows}
    by_holder: dict[int | None, list[Record]] = {}
    for row in rows:
        by_holder.setdefault(_first_in_the_way(row, waiting)["holder"], []).append(row)
    return Seen(
        f"Waiting for a lock for more than {span(limits.lock_wait_s)}: {counted(len(rows), 'session')}.",
        [_holder_finding(behind, waiting) for behind in by_holder.values()],
    )


def _first_in_the_way(row: Record, waiting: Mapping[int, Record]) -> Record:
    """Who waits behind somebody that waits, too, waits for whoever is at the head of them."""
    seen = {row["pid"]}
    while row["holder"] in waiting and row["holder"] not in seen:  # a deadlock has no head
        row = waiting[row["holder"]]
        seen.add(row["pid"])
    return row


def _holder_finding(behind: Sequence[Record], waiting: Mapping[int, Record]) -> Finding:
    """`behind`: the longest first."""
    longest, head = behind[0], _first_in_the_way(behind[0], waiting)
    things = sorted({row["relation"] or f"({row['kind']})" for row in behind})
    what = ", ".join(things[:MAX_THINGS]) + (", …" if len(things) > MAX_THINGS else "")
    who = "of them " if len(behind) > 1 else ""
    return problem(
        f"{counted(len(behind), 'session')} {'wait' if len(behind) > 1 else 'waits'} for a lock on {what}"
        + (f" that process {head['holder']} ({_program(head['holder_program'])}) has" if head["holder"] else "")
        + f": the first {who}is process {longest['pid']} ({_program(longest['program'])}), for"
        f" {span(longest['since_s'])}.",
        "Whoever waits does nothing else, and others queue behind it.",
        f"SELECT pg_terminate_backend({head['holder']}); if what it does can be broken off."
        if head["holder"]
        else "SELECT * FROM pg_locks WHERE NOT granted; shows who waits for what.",
    )


def _program(name: str | None) -> str:
    return name or "without a name"


# Others come after it: a lock is why they cannot be made.
LOCKS = Examination("locks", "Nobody waits long for a lock.", look_at_locks)
UPKEEP = [
    Examination("vacuum", "Vacuum keeps up with the tables, and their transaction ids are young.", look_at_vacuum),
    Examination(
        "transactions", "No transaction, prepared one or replication slot holds vacuum up.", look_at_transactions
    ),
]
