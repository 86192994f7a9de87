"""Examinations of the work: whether it is done, by whom, and what lies."""

from collections.abc import Sequence
from shlex import quote

from redrive.core.channels import APPRISE_QUEUE, MAIL_QUEUE, NOTICE_PREFIX
from redrive.core.findings import Finding, Seen, counted, problem, span, warning
from redrive.store.db import Record
from redrive.store.examinations.looking import Examination, Limits, Looking
from redrive.store.jobs import MAX_JOBS_SHOWN
from redrive.store.overview import MAX_COUNTS
from redrive.store.workers import MAX_WORKERS_SHOWN, SERVED_BY_THE_API, SILENT_AFTER_S

MAX_STREAMS = 5_000
MAX_HELD_COUNTED = 10_000
STALE_INTERVALS, STALE_LEAST_S = 3, 60.0  # as the alert `job_stale` has it
# What processes must have been given to serve a queue, whichever of them it is.
NEEDED = {
    MAIL_QUEUE: "Set REDRIVE_SMTP_URL and REDRIVE_MAIL_FROM for the workers and the API.",
    APPRISE_QUEUE: "Install redrive[notify] where the workers and the API run.",
    "rabbitmq": "Set REDRIVE_RABBITMQ_URL for the workers (and install redrive[rabbitmq]).",
}


async def look_at_workers(looking: Looking) -> Seen:
    if looking.nobody_runs:
        return Seen("At work: 0 workers, for no Redrive runs here.")
    live, silent = await _workers(looking)
    due = await _due(looking)
    served = _queues(live)
    waiting = [
        row for row in due if row["since_s"] >= looking.limits.unserved_s and row["queue"] not in SERVED_BY_THE_API
    ]
    unserved = sorted({row["queue"] for row in waiting} - served)
    found: list[Finding] = []
    for_workers = [queue for queue in unserved if not queue.startswith(NOTICE_PREFIX)]
    if not live and (for_workers or silent):
        what = "No worker is at work"
        if for_workers:
            since_s = max(row["since_s"] for row in waiting if row["queue"] in for_workers)
            what += f", and work is due since {span(since_s)} (queues: {', '.join(for_workers[:5])})"
        else:
            what += f": the last was heard of {span(silent[0]['silent_s'])} ago"
        found.append(
            problem(
                f"{what}.",
                "Nothing is delivered.",
                "Start one: `redrive worker`, with `--app module:name` for Python handlers.",
            )
        )
    found += [_unserved_finding(queue, waiting) for queue in unserved if live or queue not in for_workers]
    found += [
        warning(
            f"Nothing was heard of the worker {row['host']} (process {row['pid']}) for {span(row['silent_s'])}.",
            "It was killed, hangs, or cannot reach the database. What it had in hand was given to others when its"
            " leases ended.",
            f"See whether process {row['pid']} on {row['host']} lives. If it was killed, this is forgotten after a"
            " day.",
        )
        for row in silent
    ]
    hosts = len({row["host"] for row in live})
    at_work = f"{counted(len(live), 'worker')} on {counted(hosts, 'machine')}, for {counted(len(served), 'queue')}"
    return Seen(f"At work: {at_work}; silent: {len(silent)}.", found)


async def _workers(looking: Looking) -> tuple[list[Record], list[Record]]:
    """Those at work, and those that fell silent."""
    rows = await looking.rows("list_workers", looking.limits.now, MAX_WORKERS_SHOWN, as_engine=True)
    live = [row for row in rows if row["silent_s"] < SILENT_AFTER_S and not looking.nobody_runs]
    return live, [row for row in rows if row["silent_s"] >= SILENT_AFTER_S]


async def _due(looking: Looking) -> Sequence[Record]:
    return await looking.rows("doctor_due", looking.limits.now, MAX_STREAMS, None, None, as_engine=True)


def _queues(workers: Sequence[Record]) -> set[str]:
    return {queue for row in workers for queue in row["queues"]}


def _unserved_finding(queue: str, waiting: Sequence[Record]) -> Finding:
    since_s = max(row["since_s"] for row in waiting if row["queue"] == queue)
    kind, _, name = queue.partition(":")
    fix = f"Start one: `redrive worker --app module:name`, with an app that registers {name!r}."
    if not name:
        fix = NEEDED.get(kind.removeprefix(NOTICE_PREFIX).partition(".")[0], "Start one: `redrive worker`.")
    who = "Nobody serves" if kind.startswith(NOTICE_PREFIX) else "No worker serves"
    return problem(f"{who} the queue {queue!r}, in which work is due since {span(since_s)}.", "Nobody will do it.", fix)


async def look_at_due(looking: Looking) -> Seen:
    limits = looking.limits
    rows = await _due(looking)
    live, _ = await _workers(looking)
    # Of the queues that nobody serves the examination of the workers tells: more of those at work would not help.
    served = _queues(live) - SERVED_BY_THE_API
    for_workers = [row for row in rows if not row["waits_for_more"] and row["queue"] in served]
    late = [row for row in for_workers if row["since_s"] >= limits.due_s]
    oldest = f"The oldest due task has waited {span(rows[0]['since_s'])}." if rows else "Nothing is due."
    if rows and rows[0]["waits_for_more"]:
        oldest += " It waits for its endpoint: a breaker, a limit, or a hub."
    found = []
    if late:
        worst = late[0]
        tell = problem if worst["since_s"] >= limits.grave_due_s else warning
        found.append(
            tell(
                f"Work is due since {span(worst['since_s'])} (queue {worst['queue']!r}, org {worst['org']!r}"
                + (f", endpoint {worst['endpoint']!r}" if worst["endpoint"] else "")
                + f"), and in {counted(len(late), 'stream')} since more than {span(limits.due_s)}.",
                "Workers do not keep up: deliveries come late.",
                "Run more workers (`redrive worker`, or `serve --workers`), or raise REDRIVE_CONCURRENCY; `redrive"
                " top` shows whether it"
                " shrinks.",
            )
        )
    return Seen(oldest, found)


async def look_at_holds(looking: Looking) -> Seen:
    rows = await looking.rows("doctor_holds", MAX_HELD_COUNTED, looking.limits.now, as_engine=True)
    found = [_hold_finding(row) for row in rows if row["held"] or row["by_engine"]]
    if not rows:
        return Seen("Nothing is paused or disabled.")
    return Seen(
        f"Paused or disabled: {len(rows)}; held by one at most: {_held(max(row['held'] for row in rows))}.", found
    )


def _held(count: int) -> str:
    return f"{count}+ tasks" if count >= MAX_HELD_COUNTED else counted(count, "task")


def _hold_finding(row: Record) -> Finding:
    many = _held(row["held"])
    because = f" ({row['because'].rstrip('. ')})" if row["because"] else ""
    by = f" by {row['by']}" if row["by"] else ""
    since = f"{row['since']:%Y-%m-%d %H:%M}Z"
    org = f" --org {quote(row['org'])}" if row["org"] not in (None, "default") else ""
    if row["is_disabled"]:
        return warning(
            f"The endpoint {row['name']!r} of {row['org']!r} is disabled since {since}{because} and holds {many}.",
            "Nothing is sent to it, and nothing for it is lost.",
            f"When it can receive again: redrive endpoints enable {quote(row['name'])}{org}",
        )
    what = {"installation": "The installation", "org": f"The org {row['name']!r}"}.get(
        row["scope"], f"The endpoint {row['name']!r} of {row['org']!r}"
    )
    resume = {"installation": " --installation", "endpoint": f" --endpoint {quote(row['name'] or '')}"}.get(
        row["scope"], ""
    )
    return warning(
        f"{what} is paused since {since}{by}{because} and holds {many}.",
        "Nothing of it is delivered until somebody resumes it; nothing is lost.",
        f"redrive resume{resume}{org}",
    )


async def look_at_endpoints(looking: Looking) -> Seen:
    limits = looking.limits
    rows = await looking.rows("doctor_breakers", limits.now, MAX_HELD_COUNTED, as_engine=True)
    tries = await looking.rows("doctor_tries", limits.now, as_engine=True)
    found = [
        warning(
            f"The breaker of {row['name']!r} ({row['org']!r}) is {row['state']}, and is not closed since"
            f" {span(row['since_s'])}; {_held(row['held'])} held" + (f": {row['reason']}" if row["reason"] else "."),
            "The endpoint fails: its tasks are tried on schedule, but only a few per second. After days of that it is"
            " disabled.",
            f"See what it answers: redrive endpoints show {quote(row['name'])}"
            + (f" --org {quote(row['org'])}" if row["org"] != "default" else ""),
        )
        for row in rows
        if row["since_s"] >= limits.breaker_s
    ]
    failed, ended = sum(row["failed"] for row in tries), sum(row["failed"] + row["succeeded"] for row in tries)
    if failed >= limits.failed_tries and failed >= limits.failed_share * ended:
        worst = tries[0]
        of = f" --endpoint {quote(worst['name'])}" if worst["name"] else ""
        org = f" --org {quote(worst['org'])}" if worst["org"] != "default" else ""
        found.append(
            warning(
                f"{failed} of {ended} tries of the last ten minutes failed, {worst['failed']} of them at"
                f" {worst['name'] or 'handlers'!r}"
                f" ({worst['org']!r}).",
                "Workers are busy with what fails again and again: a storm of retries.",
                f"If the receiver is down for long: redrive pause{of}{org}; what is held goes on with redrive"
                f" resume{of}{org}.",
            )
        )
    held = f" ({_held(sum(row['held'] for row in rows))} held)" if rows else ""
    return Seen(
        f"Breakers not closed: {len(rows)}{held}; of {ended} tries of the last ten minutes {failed} failed.", found
    )


async def look_at_letters(looking: Looking) -> Seen:
    rows = await looking.rows("doctor_letters", MAX_COUNTS, as_engine=True)
    found = []
    for row in rows:
        if row["n"] <= looking.limits.open_letters:
            continue
        org = f" --org {quote(row['org'])}" if row["org"] != "default" else ""
        cause = f"; {row['alike']} of them have one cause" if row["alike"] else ""
        look = f"redrive dead list --fingerprint {row['fingerprint']}{org}, then " if row["fingerprint"] else ""
        found.append(
            warning(
                f"The org {row['org']!r} has {row['n']} open dead letters{cause}.",
                "Each is something that failed for good, and waits for a person.",
                f"{look}redrive dead retry --all --fingerprint {row['fingerprint'] or '…'}{org} once the cause is"
                " gone.",
            )
        )
    if not rows:
        return Seen("No dead letter is open.")
    return Seen(f"Open: {counted(sum(row['n'] for row in rows), 'dead letter')} in {counted(len(rows), 'org')}.", found)


async def look_at_background(looking: Looking) -> Seen:
    limits = looking.limits
    operations = await looking.rows("doctor_operations", limits.now, limits.step_late_s, as_engine=True)
    untold = await looking.row("doctor_untold", limits.now, as_engine=True)
    broker = await looking.rows("doctor_broker", as_engine=True)
    jobs = await looking.rows("list_jobs", limits.now, MAX_JOBS_SHOWN, as_engine=True)
    tally = await looking.rows("doctor_tally", limits.now, as_engine=True)
    if looking.nobody_runs:  # that they do not go on follows from it
        found = [_operation_finding(row) for row in operations if row["state"] == "paused"]
    else:
        found = [_operation_finding(row) for row in operations]
        found += _untold_findings(untold, limits)
        found += [finding for row in jobs for finding in _job_findings(row)]
        found += _tally_findings(tally, limits)
    found += [
        warning(
            f"The queue {row['queue']!r} of RabbitMQ is not collected: {row['problem']}",
            "What dies there is not among the dead letters.",
            "See that it exists and that the broker's user may read it; `redrive broker` shows all of them.",
        )
        for row in broker
    ]
    return Seen(
        f"Background jobs: {len(jobs)} known; operations that stand still: {len(operations)};"
        f" notices that wait to be told: {untold['n']}.",
        found,
    )


def _untold_findings(untold: Record, limits: Limits) -> list[Finding]:
    if untold["since_s"] is None or untold["since_s"] < limits.untold_s:
        return []
    return [
        warning(
            f"{untold['n']} notices wait to be told, the oldest since {span(untold['since_s'])}.",
            "Nobody is told of dead letters and of endpoints that fail.",
            "Workers tell them: start one (`redrive worker`).",
        )
    ]


def _tally_findings(tally: Sequence[Record], limits: Limits) -> list[Finding]:
    if not tally or tally[0]["since_s"] < limits.unrolled_s:
        return []
    return [
        warning(
            f"What happened since {span(tally[0]['since_s'])} is not rolled up.",
            "Numbers stay exact, but to read them takes longer by the minute, and the tally grows.",
            "Workers and API servers roll it up: start one, or see in its log why it cannot.",
        )
    ]


def _job_findings(row: Record) -> list[Finding]:
    """Of a job that nobody is to run any more (whoever did ended in good order) nothing is expected."""
    if row["left_at"] is not None:
        return []
    log = "See the logs of the workers and API servers."
    if row["idle_s"] >= max(STALE_INTERVALS * row["every_s"], STALE_LEAST_S):
        return [
            problem(
                f"The background job {row['name']!r} has not run well for {span(row['idle_s'])}; it should every"
                f" {span(row['every_s'])}.",
                f"What it does is not done. The last error: {row['error'] or 'none'}",
                f"{log} Where no process runs it any more, start one: `redrive worker`.",
            )
        ]
    failed_at, succeeded_at = row["failed_at"], row["succeeded_at"]
    if failed_at is not None and (succeeded_at is None or failed_at > succeeded_at):
        why = row["error"] or "it did not say why"
        return [warning(f"The background job {row['name']!r} failed the last time.", f"{why}. It is tried again.", log)]
    return []


def _operation_finding(row: Record) -> Finding:
    what = f"The operation {row['id']} ({row['action']}, org {row['org']!r}, {row['done']} of {row['total']} done)"
    org = f" --org {quote(row['org'])}" if row["org"] != "default" else ""
    if row["state"] == "paused" and row["note"]:
        return warning(
            f"{what} paused itself: {row['note']}",
            "It goes on only when a person says so.",
            f"redrive operations resume {row['id']}{org}, or redrive operations cancel {row['id']}{org}",
        )
    return problem(
        f"{what} has stood still for {span(row['late_s'])}.",
        "No process takes its next step.",
        "Start a worker or an API server: each takes steps of operations.",
    )


QUEUE = [
    Examination("workers", "Live workers serve every queue that has work, and none is silent.", look_at_workers),
    Examination("due", "What is due is taken up soon.", look_at_due),
    Examination("holds", "Nothing holds tasks that somebody has forgotten.", look_at_holds),
    Examination("endpoints", "Endpoints take what is sent to them.", look_at_endpoints),
    Examination("dead letters", "Few dead letters wait for a person.", look_at_letters),
    Examination(
        "background",
        "What runs beside the deliveries goes on: jobs, operations, notices, collectors.",
        look_at_background,
    ),
]
