"""What happened, in a log of its own, and what rollups and totals must say of it: by counting, one by one."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from redrive.core.analytics import Outcomes
from redrive.core.pulse import RETRY_SLOTS, wait_slot
from redrive.store.db import Record
from redrive.store.rollups import Death, Totals

LENGTHS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Place(NamedTuple):
    """Where a row of the rollups stands."""

    org_id: UUID
    dimension: str
    span: str
    at: datetime
    key: str


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    org_id: UUID
    endpoint_id: UUID | None
    event_type: str
    external_system: str | None
    what: Outcomes
    deaths: tuple[Death, ...] = ()

    def places(self, spans: dict[str, timedelta]) -> list[Place]:
        keys = {
            "all": "",
            "endpoint": str(self.endpoint_id) if self.endpoint_id else None,
            "event_type": self.event_type,
            "external_system": self.external_system,
        }
        return [
            Place(self.org_id, dimension, span, self.at - (self.at - EPOCH) % length, key)
            for dimension, key in keys.items()
            if key is not None
            for span, length in spans.items()
        ]


@dataclass(slots=True)
class Log:
    """`standing`: of each event with several tasks, which of them are open, and which died."""

    entries: list[Entry] = field(default_factory=list)
    standing: dict[UUID, dict[UUID, str]] = field(default_factory=dict)

    @property
    def waited_first_s(self) -> float:
        return sum(entry.what.waited_s for entry in self.entries if any(entry.what.firsts.values()))

    def event(self, at: datetime, row: Record, what: Outcomes) -> None:
        """Something of an event: it has no endpoint."""
        self.entries.append(Entry(at, row["org_id"], None, row["event_type"], row["external_system"], what))

    def task(self, at: datetime, row: Record, what: Outcomes, *deaths: Death) -> None:
        place = row["org_id"], row["endpoint_id"], row["event_type"], row["external_system"]
        self.entries.append(Entry(at, *place, what, deaths))

    def fanned_out(self, event_id: UUID, task_ids: list[UUID]) -> None:
        self.standing[event_id] = dict.fromkeys(task_ids, "open")

    def moved(self, at: datetime, rows: list[Record], state: str) -> None:
        """In one statement, tasks of events with several of them came to be `open`, `succeeded` or `dead`."""
        events: dict[UUID, list[Record]] = defaultdict(list)
        for row in rows:
            events[row["event_id"]].append(row)
        for event_id, changed in events.items():
            tasks = self.standing[event_id]
            was = _status(tasks)
            tasks.update({row["id"]: state for row in changed})
            what = _EVENT_CHANGES.get((was, _status(tasks)))
            if what is not None:
                row = max(changed, key=lambda row: row["external_system"] or "")
                self.event(at, row, what)

    def rollups(self) -> dict[Place, Outcomes]:
        found: dict[Place, Outcomes] = defaultdict(Outcomes)
        for entry in self.entries:
            for place in entry.places(LENGTHS):
                found[place] = found[place].plus(
                    _of_endpoint(entry.what) if place.dimension == "endpoint" else entry.what
                )
        return dict(found)

    def whole(self, org_id: UUID) -> Outcomes:
        total = Outcomes()
        for entry in self.entries:
            total = total.plus(entry.what) if entry.org_id == org_id else total
        return total

    def totals(self) -> Totals:
        whole = Outcomes()
        deaths: Counter[Death] = Counter()
        retried = 0
        for entry in self.entries:
            whole = whole.plus(entry.what)
            deaths.update(entry.deaths)
            retried += sum(slot * n for slot, n in enumerate(entry.what.lost))
        return Totals(
            created=whole.created,
            acknowledged=whole.acknowledged,
            delivered=whole.delivered,
            failed=whole.failed,
            redriven=whole.redriven,
            attempts=whole.attempts,
            retries=whole.retries,
            breaker_openings=0,
            deaths=dict(deaths),
            ended_after=tuple(a + b for a, b in zip(whole.saved, whole.lost, strict=True)),
            retried=whole.retried + retried,
            waits=whole.waits,
            waited_s=whole.waited_s,
            firsts={slot: n for slot, n in whole.firsts.items() if n},
            waited_first_s=self.waited_first_s,
            events_routed=whole.events_routed,
            events_failed=whole.events_failed,
            events_redriven=whole.events_redriven,
        )


def _status(tasks: dict[UUID, str]) -> str:
    return next((state for state in ("open", "dead") if state in tasks.values()), "succeeded")


def _of_endpoint(what: Outcomes) -> Outcomes:
    """Of an endpoint, an event is its delivery to it."""
    return replace(what, events_routed=what.delivered, events_failed=what.failed, events_redriven=what.redriven)


_EVENT_CHANGES = {
    ("open", "succeeded"): Outcomes(events_routed=1),
    ("open", "dead"): Outcomes(events_failed=1),
    ("dead", "open"): Outcomes(events_redriven=1),
}


def tried(row: Record, n: int = 1) -> Outcomes:
    """A try of a task, as it was before it."""
    return Outcomes(attempts=n, retries=n if row["attempts"] > 0 else 0)


def delivered(row: Record, at: datetime) -> Outcomes:
    """The try that succeeded."""
    waited_s = (at - row["received_at"]).total_seconds()
    return tried(row).plus(
        Outcomes(
            delivered=1,
            saved=_slot(min(row["attempts"], RETRY_SLOTS - 1), RETRY_SLOTS),
            retried=row["attempts"],
            waits={wait_slot(waited_s): 1},
            firsts={wait_slot(waited_s): int(row["attempts"] == 0)},
            waited_s=waited_s,
            events_routed=int(not row["has_siblings"]),
        )
    )


def died(row: Record, *, by_try: bool) -> Outcomes:
    tries = row["attempts"] + by_try
    lost = _slot(min(max(tries - 1, 0), RETRY_SLOTS - 1), RETRY_SLOTS)
    ended = Outcomes(failed=1, untried=int(tries == 0), lost=lost, events_failed=int(not row["has_siblings"]))
    return tried(row).plus(ended) if by_try else ended


def _slot(place: int, size: int) -> tuple[int, ...]:
    return tuple(int(slot == place) for slot in range(size))
