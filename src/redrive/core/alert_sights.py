"""What the rules of alerts see in the numbers: for each subject, where it stands against the rule's threshold. Pure.

The numbers come from store.alert_readings. `of_org` and `of_installation` answer all rules of a kind at once.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.core.alerts import Sight, Standing, Subject, Terms, place
from redrive.core.pulse import Waits, quantile, rate_of

TARGET_SHARE = 0.95  # of deliveries should be made within the target
MAX_TRANSACTIONS_TOLD = 5
GONE_AFTER_S = 30.0  # a process says every few seconds which jobs it runs, and a worker that it is there

AllTerms = Mapping[str, Terms]


class EndpointReading(NamedTuple):
    """An endpoint whose breaker is not closed, or that Redrive has disabled; or of which that was said before."""

    id: UUID
    name: str
    breaker: str
    breaker_since: datetime | None
    breaker_reason: str | None
    disabled_at: datetime | None  # by Redrive
    disabled_reason: str | None
    is_disabled: bool = False  # by whomever


class OrgReading(NamedTuple):
    """Each number within the window of its rule. Ages are seconds; None: there is none."""

    org_id: UUID
    delivered: int
    failed: int
    waits: Waits  # of deliveries that needed no retry
    dead_letters: int  # open
    letter_age_s: float | None  # since people were last told of one, whatever became of it
    due_age_s: float | None  # of the task that is due for longest
    endpoints: Sequence[EndpointReading] = ()
    saw_all_due: bool = True  # False: there may be older ones


class JobReading(NamedTuple):
    name: str
    every_s: float
    idle_s: float  # since it last succeeded, or since somebody runs it
    error: str | None
    unseen_s: float = 0.0  # since a process said that it runs it
    has_left: bool = False  # a process that ran it has just ended in good order: others that run it are yet to say so


class TransactionReading(NamedTuple):
    """Who keeps a transaction open. Never what it asks."""

    pid: int | None  # None: it was prepared, and no process has it
    application: str | None
    user: str | None
    state: str | None
    since: datetime
    age_s: float


class InstallationReading(NamedTuple):
    """`silent_s`: since anything was heard of a worker; None where none is known. `left_s`: since the last one ended in
    good order; None where it did not. `due_age_s`: of the oldest work that one could do. `watched_s`: for how long
    somebody has been looking: who fell silent before that is not held to it.
    """

    silent_s: float | None
    due_age_s: float | None
    watched_s: float
    jobs: Sequence[JobReading] = ()
    transactions: Sequence[TransactionReading] = ()
    left_s: float | None = None


# -- of an org -----------------------------------------------------------------------------------------------------


def of_org(reading: OrgReading, terms: AllTerms) -> dict[str, list[Sight]]:
    return {rule: look(reading, terms[rule]) for rule, look in _ORG_RULES.items()}


def _failure_rate(reading: OrgReading, terms: Terms) -> list[Sight]:
    ended = reading.delivered + reading.failed
    rate = rate_of(reading.failed, ended)
    standing = _with_volume(place(rate, terms["threshold"]), ended, terms["min_volume"])
    saw = {
        "rate": None if rate is None else round(rate, 4),
        "failed": reading.failed,
        "ended": ended,
        "threshold": terms["threshold"],
        "window_s": terms["window_s"],
    }
    return [Sight(_org(reading), standing, saw)]


def _slow_delivery(reading: OrgReading, terms: Terms) -> list[Sight]:
    """Of deliveries that needed no retry: how long others take is the schedule of their policy."""
    delivered = sum(reading.waits.values())
    p95_s = quantile(reading.waits, TARGET_SHARE)
    standing = _with_volume(place(p95_s, terms["target_s"]), delivered, terms["min_volume"])
    saw = {
        "p95_s": p95_s,
        "delivered": delivered,
        "threshold": terms["target_s"],
        "window_s": terms["window_s"],
    }
    return [Sight(_org(reading), standing, saw)]


def _with_volume(standing: Standing, volume: int, least: float) -> Standing:
    """Too few begin nothing; but what fires is not over because the traffic became thin."""
    return Standing.BAND if standing is Standing.ABOVE and volume < least else standing


def _dead_letters_open(reading: OrgReading, terms: Terms) -> list[Sight]:
    saw = {"open": reading.dead_letters, "threshold": terms["threshold"]}
    return [Sight(_org(reading), place(reading.dead_letters, terms["threshold"]), saw)]


def _dead_letter_arrived(reading: OrgReading, terms: Terms) -> list[Sight]:
    age_s = reading.letter_age_s
    came = age_s is not None and age_s < terms["quiet_s"] and reading.dead_letters > 0
    saw = {"last_came_s_ago": _rounded(age_s), "open": reading.dead_letters, "threshold": terms["quiet_s"]}
    return [Sight(_org(reading), Standing.ABOVE if came else Standing.CLEAR, saw)]


def _oldest_due(reading: OrgReading, terms: Terms) -> list[Sight]:
    saw = {"late_s": _rounded(reading.due_age_s), "threshold": terms["threshold_s"]}
    standing = place(reading.due_age_s, terms["threshold_s"])
    if standing is Standing.CLEAR and not reading.saw_all_due:
        standing = Standing.BAND
    return [Sight(_org(reading), standing, saw)]


def _endpoint_open(reading: OrgReading, _: Terms) -> list[Sight]:
    """The ramp is the band: the breaker may open again at any moment. What is disabled is not tried: its
    breaker would be open for ever, and nobody waits for it.
    """
    return [
        Sight(
            Subject("endpoint", seen.id, seen.name),
            _breaker(seen),
            {"breaker": seen.breaker, "breaker_since": seen.breaker_since, "reason": seen.breaker_reason},
        )
        for seen in reading.endpoints
    ]


def _breaker(seen: EndpointReading) -> Standing:
    if seen.is_disabled or seen.breaker == "closed":
        return Standing.CLEAR
    return Standing.ABOVE if seen.breaker == "open" else Standing.BAND


def _endpoint_disabled(reading: OrgReading, _: Terms) -> list[Sight]:
    return [
        Sight(
            Subject("endpoint", seen.id, seen.name),
            Standing.CLEAR if seen.disabled_at is None else Standing.ABOVE,
            {"disabled_at": seen.disabled_at, "reason": seen.disabled_reason},
        )
        for seen in reading.endpoints
    ]


_ORG_RULES: Mapping[str, Callable[[OrgReading, Terms], list[Sight]]] = {
    "failure_rate": _failure_rate,
    "dead_letters_open": _dead_letters_open,
    "dead_letter_arrived": _dead_letter_arrived,
    "oldest_due": _oldest_due,
    "slow_delivery": _slow_delivery,
    "endpoint_open": _endpoint_open,
    "endpoint_disabled": _endpoint_disabled,
}


# -- of the installation -------------------------------------------------------------------------------------------


def of_installation(reading: InstallationReading, terms: AllTerms) -> dict[str, list[Sight]]:
    return {rule: look(reading, terms[rule]) for rule, look in _INSTALLATION_RULES.items()}


def _no_worker(reading: InstallationReading, terms: Terms) -> list[Sight]:
    """Where none is known, all of them having stopped in good order, only work that waits makes one missing; and nobody
    is missing for longer than they have been gone.
    """
    missing_s = reading.silent_s if reading.silent_s is not None else reading.due_age_s
    if missing_s is not None and reading.left_s is not None:
        missing_s = min(missing_s, reading.left_s)
    saw = {
        "silent_s": _rounded(reading.silent_s),
        "oldest_due_s": _rounded(reading.due_age_s),
        "threshold": terms["threshold_s"],
    }
    return [Sight(Subject("installation"), _silence(missing_s, terms["threshold_s"], reading.watched_s), saw)]


def _job_stale(reading: InstallationReading, terms: Terms) -> list[Sight]:
    sights = []
    for job in reading.jobs:
        threshold_s = max(terms["intervals"] * job.every_s, terms["min_s"])
        saw = {"idle_s": _rounded(job.idle_s), "every_s": job.every_s, "error": job.error, "threshold": threshold_s}
        standing = _silence(job.idle_s, threshold_s, reading.watched_s)
        if standing is Standing.ABOVE and (job.has_left or _went_with_workers(reading, job)):
            standing = Standing.BAND
        sights.append(Sight(Subject("job", None, job.name), standing, saw))
    return sights


def _silence(silent_s: float | None, threshold_s: float, watched_s: float) -> Standing:
    """Where nobody has been listening for as long, it begins nothing; but what fires is not over by that either."""
    standing = place(silent_s, threshold_s)
    return Standing.BAND if standing is Standing.ABOVE and watched_s <= threshold_s else standing


def _went_with_workers(reading: InstallationReading, job: JobReading) -> bool:
    """Its processes fell silent when all workers did: of that, `no_worker` tells, and not each job besides."""
    silent_s = reading.silent_s
    return silent_s is not None and min(silent_s, job.unseen_s) > GONE_AFTER_S


def _long_transaction(reading: InstallationReading, terms: Terms) -> list[Sight]:
    oldest_first = sorted(reading.transactions, key=lambda one: one.since)
    age_s = oldest_first[0].age_s if oldest_first else None
    long = [one for one in oldest_first if one.age_s > terms["threshold_s"]]
    told = [
        {
            "pid": one.pid,
            "application_name": one.application,
            "user": one.user,
            "state": one.state,
            "since": one.since,
        }
        for one in long[:MAX_TRANSACTIONS_TOLD]
    ]
    saw = {"open_s": _rounded(age_s), "transactions": told, "threshold": terms["threshold_s"]}
    return [Sight(Subject("installation"), place(age_s, terms["threshold_s"]), saw)]


_INSTALLATION_RULES: Mapping[str, Callable[[InstallationReading, Terms], list[Sight]]] = {
    "no_worker": _no_worker,
    "job_stale": _job_stale,
    "long_transaction": _long_transaction,
}


def _org(reading: OrgReading) -> Subject:
    return Subject("org", reading.org_id)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
