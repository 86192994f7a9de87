"""What stands around every page: who is signed in and where, the way to the other pages, and what everybody must know.

Loaded by each page in its own transaction; shown by templates/base.html.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.api.context import ApiContext
from redrive.core.alerts import RULES
from redrive.core.dead_letter_lists import empty_text
from redrive.core.permissions import Action
from redrive.core.run_states import UNDER_WAY
from redrive.store.alerts import FiringRule, firing_now
from redrive.store.counters import counts
from redrive.store.db import Session
from redrive.store.dead_messages import has_queues
from redrive.store.keys import Caller, Kind
from redrive.store.pausing import pauses
from redrive.store.workers import WorkerSeen, last_seen
from redrive.web.words import duration

MAX_TITLES = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A page of the navigation. `count`: which number stands beside it; `key`: goes there after `g`."""

    path: str
    name: str
    key: str
    count: str | None = None
    needs: Action = Action.READ
    for_broker: bool = False  # of no use without one


PLACES = (
    Place("/", "Home", "h"),
    Place("/dashboard", "Dashboard", "m"),
    Place("/integrations/logs/retry-queue", "Retry queue", "r", "retry_queue"),
    Place("/integrations/logs/dead-letter-queue", "Dead letters", "d", "dead_letters"),
    Place("/groups", "Groups", "g"),
    Place("/integrations/logs", "Logs", "n"),
    Place("/events", "Events", "v"),
    Place("/inbox", "Inbox", "i", "inbox"),
    Place("/workflows", "Workflows", "w"),
    Place("/runs", "Runs", "u", "runs"),
    Place("/endpoints", "Endpoints", "e"),
    Place("/broker", "RabbitMQ", "b", for_broker=True),
    Place("/policies", "Policies", "p"),
    Place("/operations", "Operations", "o"),
    Place("/alerts", "Alerts", "l", "alerts"),
    Place("/audit", "Audit log", "a"),
    Place("/settings", "Settings", "s"),
)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that everybody must know, above every page. `href`: where to do something about it."""

    kind: str  # bad | warn
    text: str
    href: str | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    caller: Caller
    counts: dict[str, int]
    notices: tuple[Notice, ...]
    now: datetime
    place: str  # the path in PLACES that the page belongs to
    held: int = 0  # tasks that wait until something is resumed or enabled
    is_paused: bool = False  # the org or the installation: whatever falls due is held
    has_broker: bool = False

    def may(self, action: str) -> bool:
        """Asked by the templates: what one may not do is not offered."""
        return self.caller.may(Action(action))

    @property
    def permitted(self) -> str:
        """The same for the scripts."""
        return ",".join(action for action in Action if self.caller.may(action))

    @property
    def places(self) -> list[Place]:
        return [place for place in PLACES if self.caller.may(place.needs) and (self.has_broker or not place.for_broker)]

    def no_dead_letters(self, *, is_filtered: bool = False) -> str:
        """Why there are none."""
        return empty_text(is_filtered=is_filtered, waiting=self.counts["retry_queue"], held=self.held)

    @property
    def who(self) -> str:
        return "Signed in by a link" if self.caller.kind is Kind.LINK else self.caller.name


# By the counters that they are the sum of.
NAMES = {
    "retry_queue": ("retrying",),
    "dead_letters": ("dead.open",),
    "inbox": ("event.inbox",),
    "runs": tuple(f"run.{status}" for status in UNDER_WAY),
}


def shown_counts(counted: dict[str, int], firing: int) -> dict[str, int]:
    """The numbers of the navigation out of an org's counters, and of its alerts."""
    shown = {name: sum(counted.get(each, 0) for each in counters) for name, counters in NAMES.items()}
    return shown | {"alerts": firing}


async def load_frame(session: Session, caller: Caller, context: ApiContext, place: str) -> Frame:
    clock = context.clock
    counted = await counts(session)
    installation, org = await pauses(session, clock)
    notices = [
        Notice("warn", f"Retries are paused for {which}: tasks are held as they fall due.", "/settings", "Settings")
        for which, pause in (("the whole installation", installation), ("this org", org))
        if pause.paused
    ]
    is_paused = installation.paused or org.paused
    row = await session.fetchrow("now", clock.now())
    assert row is not None
    now: datetime = row["now"]
    idleness = _idleness(await last_seen(session, clock))
    firing = await firing_now(session)
    notices += idleness + _alarm(firing, said=bool(idleness))
    return Frame(
        caller,
        shown_counts(counted, sum(each.n for each in firing)),
        tuple(notices),
        now,
        place,
        org.held or 0,
        is_paused,
        has_broker=context.has_broker(caller) or await has_queues(session),
    )


def _alarm(firing: Sequence[FiringRule], *, said: bool) -> list[Notice]:
    """What fires that is an error. That no worker is there, the frame may have `said` itself."""
    errors = [each for each in firing if each.severity == "error" and not (said and each.rule == "no_worker")]
    if not errors:
        return []
    titles = ", ".join(RULES[each.rule].title if each.rule in RULES else each.rule for each in errors[:MAX_TITLES])
    n = sum(each.n for each in errors)
    text = f"{'An alert fires' if n == 1 else f'{n} alerts fire'}: {titles}{', …' if len(errors) > MAX_TITLES else ''}."
    return [Notice("bad", text, "/alerts", "Alerts")]


def _idleness(worker: WorkerSeen | None) -> list[Notice]:
    """Whether anybody is working: without a worker everything is accepted and nothing is delivered."""
    if worker is None:
        return [Notice("bad", "No worker is running: nothing is delivered. Start one with “redrive worker”.")]
    if not worker.is_silent:
        return []
    return [Notice("bad", f"No worker has polled for {duration(worker.silent_s)}: nothing is delivered.")]
