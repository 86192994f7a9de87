"""What people read of an alert: what happened, why, and what to do; and that it is over. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redrive.core.alerts import End, Open, Rule, Sight, Why
from redrive.core.jobs import KINDS
from redrive.core.pulse import wait_text

MAX_NAMES_TOLD = 20
MAX_REASON_CHARS = 300


def fired_text(opening: Open) -> str:
    return _FIRED[opening.rule.name](opening.sight)


def fired_together(rule: Rule, sights: Sequence[Sight]) -> str:
    """One message for many subjects of a rule. Their names come last: that is where it is cut."""
    said = _TOGETHER.get(rule.name, f"{rule.title}: {{n}} of them.").format(n=len(sights))
    return f"{said} They are {_listed([sight.subject.name for sight in sights])}."


def over_text(end: End) -> str:
    name = _quoted(end.firing.subject.name)
    if end.why is Why.SWITCHED_OFF:
        return f'"{end.rule.title}" is not looked at any more: the rule was switched off.'
    if end.why is Why.GONE and end.rule.name in _GONE:
        return _GONE[end.rule.name].format(name=name)
    if end.sight is None:
        return f'"{end.rule.title}" is over: what it was about is there no more.'
    return _OVER[end.rule.name](end.sight)


def over_together(rule: Rule, ends: Sequence[End]) -> str:
    names = _listed([end.firing.subject.name for end in ends])
    if all(end.why is Why.SWITCHED_OFF for end in ends):
        return f'"{rule.title}" is not looked at any more: the rule was switched off. It had fired for {names}.'
    return f'"{rule.title}" is over for {len(ends)} of them: {names}.'


def _listed(names: Sequence[str | None]) -> str:
    told = ", ".join(f'"{name or ""}"' for name in names[:MAX_NAMES_TOLD])
    return told + (f" and {len(names) - MAX_NAMES_TOLD} others" if len(names) > MAX_NAMES_TOLD else "")


# -- fired ---------------------------------------------------------------------------------------------------------


def _failure_rate(sight: Sight) -> str:
    saw = _of(sight)
    return (
        f"{percent(saw['rate'])} of what ended within the last {span(saw['window_s'])} failed "
        f"({saw['failed']} of {saw['ended']}): more than {percent(saw['threshold'])}. "
        "Look at the groups of dead letters for the cause, deal with it, and retry them."
    )


def _dead_letters_open(sight: Sight) -> str:
    saw = _of(sight)
    return (
        f"{saw['open']} dead letters are open: more than {saw['threshold']:g}. Retry, resolve or ignore them; their "
        "groups show what they have in common."
    )


def _dead_letter_arrived(sight: Sight) -> str:
    saw = _of(sight)
    return (
        f"Something became a dead letter, and {_are(saw['open'])} open. Look at "
        "what failed, then retry, resolve or ignore it. While more of them come, this alert says nothing further: it "
        f"is over when none has come for {span(saw['threshold'])}."
    )


def _oldest_due(sight: Sight) -> str:
    saw = _of(sight)
    return (
        f"A task has been due for {span(saw['late_s'])}; none should wait longer than {span(saw['threshold'])}. There "
        "are too few workers, its endpoint lets through too little (breaker, limits), or its hub is not connected. The "
        "page of endpoints shows which."
    )


def _slow_delivery(sight: Sight) -> str:
    saw = _of(sight)
    return (
        f"The p95 of the time to delivery is {wait_text(saw['p95_s'])}, and should be {span(saw['threshold'])} at most "
        f"({saw['delivered']} deliveries without a retry within the last {span(saw['window_s'])}). Events wait for a "
        "worker, for a limit of their endpoint, or for a slow receiver: see whether the workers are busy, and which "
        "endpoints are slow."
    )


def _endpoint_open(sight: Sight) -> str:
    name = _quoted(sight.subject.name)
    return (
        f"The breaker of endpoint {name} is open{_because(sight)} Its deliveries are tried on schedule, but "
        "only a few per second. Check its receiver; nothing is lost meanwhile."
    )


def _endpoint_disabled(sight: Sight) -> str:
    name = _quoted(sight.subject.name)
    return (
        f"Redrive disabled endpoint {name}{_because(sight)} What is for it is held. Enable it when it can receive "
        "again."
    )


def _no_worker(sight: Sight) -> str:
    saw = _of(sight)
    if saw["silent_s"] is None:
        seen = f"No worker is known, and something has been due for {span(saw['oldest_due_s'])}."
    else:
        seen = f"No worker was heard of for {span(saw['silent_s'])}."
    return (
        f"{seen} Nothing is delivered; what comes in is kept. Start one (`redrive worker`), or see why none runs: its "
        "log, its machine, whether it reaches the database."
    )


def _job_stale(sight: Sight) -> str:
    saw = _of(sight)
    name = sight.subject.name or ""
    does = f", which {KINDS[name].does}," if name in KINDS else ""
    error = f" The last error: {_sentence(saw['error'])}" if saw["error"] else ""
    return (
        f'The background job "{name}"{does} has not succeeded for {span(saw["idle_s"])}, though it should every '
        f"{span(saw['every_s'])}.{error} The log of the workers and of the API says more; restart them if one hangs."
    )


def _long_transaction(sight: Sight) -> str:
    saw = _of(sight)
    first = saw["transactions"][0]
    if first["pid"] is None:
        gid = (first["application_name"] or "").replace("'", "''")
        who, names = "it was prepared", (("as", "application_name"), ("by user", "user"))
        end = f"ROLLBACK PREPARED '{gid}'"
    else:
        who, names = f"process {first['pid']}", (("application", "application_name"), ("user", "user"))
        end = f"SELECT pg_terminate_backend({first['pid']})"
    details = ", ".join(f"{what} {first[key]}" for what, key in names if first[key])
    state = f", which is {first['state']}" if first["state"] and first["pid"] is not None else ""
    others = len(saw["transactions"]) - 1
    more = f" {others} more {'is' if others == 1 else 'are'} open for too long." if others else ""
    return (
        f"A transaction has been open on the database for {span(saw['open_s'])}: {who}"
        f"{f' ({details})' if details else ''}{state}.{more} While it is, the database cannot clean up, and becomes "
        f"slower. End it where it comes from, or by `{end}`."
    )


_FIRED = {
    "failure_rate": _failure_rate,
    "dead_letters_open": _dead_letters_open,
    "dead_letter_arrived": _dead_letter_arrived,
    "oldest_due": _oldest_due,
    "slow_delivery": _slow_delivery,
    "endpoint_open": _endpoint_open,
    "endpoint_disabled": _endpoint_disabled,
    "no_worker": _no_worker,
    "job_stale": _job_stale,
    "long_transaction": _long_transaction,
}
_TOGETHER = {
    "endpoint_open": (
        "The breakers of {n} endpoints opened. Their deliveries are tried on schedule, but only a few per second; "
        "nothing is lost meanwhile. So many at once often have one cause: this installation's own way out (network, "
        "DNS, proxy), or something that their receivers share."
    ),
    "endpoint_disabled": (
        "Redrive disabled {n} endpoints. What is for them is held. Enable them when they can receive again; the page "
        "of endpoints says why of each."
    ),
    "job_stale": (
        "{n} background jobs do not run. The log of the workers and of the API says why; see whether they reach the "
        "database, and restart them if one hangs."
    ),
}

# -- over ----------------------------------------------------------------------------------------------------------


def _rate_over(sight: Sight) -> str:
    saw = _of(sight)
    if saw["rate"] is None:
        return f"Nothing ended within the last {span(saw['window_s'])}, so nothing failed either."
    return (
        f"{percent(saw['rate'])} of what ended within the last {span(saw['window_s'])} failed "
        f"({saw['failed']} of {saw['ended']}): few enough again."
    )


def _letters_over(sight: Sight) -> str:
    n = _of(sight)["open"]
    return f"{_are(n).capitalize()} open: few enough again." if n else "No dead letter is open any more."


def _arrived_over(sight: Sight) -> str:
    saw = _of(sight)
    if not saw["open"]:
        return "No dead letter is open any more."
    return f"No dead letter has come for {span(saw['threshold'])}. {_are(saw['open']).capitalize()} still open."


def _slow_over(sight: Sight) -> str:
    saw = _of(sight)
    if saw["p95_s"] is None:
        return (
            f"Nothing was delivered without a retry within the last {span(saw['window_s'])}, so nothing took too long."
        )
    return (
        f"The p95 of the time to delivery is {wait_text(saw['p95_s'])} ({saw['delivered']} deliveries without a retry "
        f"within the last {span(saw['window_s'])}): fast enough again."
    )


def _due_over(sight: Sight) -> str:
    late_s = _of(sight)["late_s"]
    if late_s is None:
        return "Nothing is late any more."
    return f"Nothing is too late any more: the task that is due for longest has waited {span(late_s)}."


def _breaker_over(sight: Sight) -> str:
    name = _quoted(sight.subject.name)
    if _of(sight)["breaker"] != "closed":
        return f"Endpoint {name} was disabled: nothing waits for its breaker any more."
    return f"The breaker of endpoint {name} is closed again."


def _worker_over(sight: Sight) -> str:
    if _of(sight)["silent_s"] is None:
        return "No worker is missed any more: nothing waits for one."
    return "A worker is there again."


_OVER: Mapping[str, Callable[[Sight], str]] = {
    "failure_rate": _rate_over,
    "dead_letters_open": _letters_over,
    "dead_letter_arrived": _arrived_over,
    "oldest_due": _due_over,
    "slow_delivery": _slow_over,
    "endpoint_open": _breaker_over,
    "endpoint_disabled": lambda sight: f"Endpoint {_quoted(sight.subject.name)} was enabled again.",
    "no_worker": _worker_over,
    "job_stale": lambda sight: f"The background job {_quoted(sight.subject.name)} runs again.",
    "long_transaction": lambda _: "No transaction is open for too long any more.",
}
_GONE = {
    "endpoint_open": "Endpoint {name} was deleted.",
    "endpoint_disabled": "Endpoint {name} was deleted.",
    "job_stale": "The background job {name} is not expected to run any more: whoever ran it has ended.",
}

# -- numbers -------------------------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """As people say it, in its two largest parts: 45 s, 1 h 5 min, 2 days."""
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        n, rest = divmod(left, size)
        if n and len(parts) < 2:
            parts.append(f"{n} {'day' if unit == 'days' and n == 1 else unit}")
            left = rest
        elif parts:
            break
    return " ".join(parts)


def percent(share: float) -> str:
    return f"{share * 100:.1f}".rstrip("0").rstrip(".") + " %"


def _are(n: int) -> str:
    return "one dead letter is" if n == 1 else f"{n} dead letters are"


def _because(sight: Sight) -> str:
    reason = _of(sight)["reason"]
    return f": {_sentence(reason)}" if reason else "."


def _sentence(text: str) -> str:
    return text[:MAX_REASON_CHARS].rstrip(". ") + "."


def _quoted(name: str | None) -> str:
    return f'"{name}"' if name else ""


def _of(sight: Sight) -> Mapping[str, Any]:
    return sight.saw
