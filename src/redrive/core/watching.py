"""What somebody who watches transitions wants to see, and how each is called. Pure.

A process that is watched (observe.watch) asks `word_of` and `Wish` of each log line that it makes; `redrive tail` of
what it reads itself. Both sides must agree: a wish travels as JSON.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b

from redrive.core.decide import Reason

WATCH_CHANNEL = "redrive_watch"  # who watches says so here, every few seconds
WATCHED_FOR_S = 15.0  # and is forgotten when nothing was heard for so long
TAIL_PREFIX = "redrive_tail_"
MAX_NOTIFY_BYTES = 7_900  # PostgreSQL takes less than 8 000

Facts = Mapping[str, object]

# Of a transition that is told by several lines, one. What people do is read from the audit, whoever did it.
_WORDS = {
    "delivery_failure": "failed",
    "event_failed": "dead",
    "lease_lost": "lost",
    "breaker_moved": "breaker",
    "breaker_wavered": "breaker",
    "endpoint_disabled": "disabled",
    "run_transition": "run",
    "hub_joined": "hub",
    "hub_left": "hub",
}
WORDS = (
    *("accepted", "delivered", "failed", "dead", "lost", "run", "breaker", "disabled", "hub"),
    *("expedited", "skipped", "redriven", "replayed", "resolved", "ignored", "reopened", "deleted", "acted"),
)
_ACTS = {
    "task.retry": "expedited",
    "task.skip": "skipped",
    "dead_letter.retry": "redriven",
    "dead_letter.replay": "replayed",
    "dead_letter.resolve": "resolved",
    "dead_letter.ignore": "ignored",
    "dead_letter.reopen": "reopened",
    "dead_letter.delete": "deleted",
}


def channel_of(watcher: str, secret: bytes) -> str:
    """The channel of each watcher's own that what is seen goes to. PostgreSQL lets every login listen to any channel:
    only who knows the installation's secret, which the engine alone may read, finds this one.
    """
    return TAIL_PREFIX + blake2b(watcher.encode(), key=blake2b(secret).digest(), digest_size=16).hexdigest()


def word_of(event: str, facts: Facts) -> str | None:
    """What a log line tells, in a word; None where it is told by another, or is no transition."""
    if event == "status_transition":
        old, new = facts.get("old_status"), facts.get("new_status")
        if (old, new) == (None, "received"):
            return "accepted"
        return "delivered" if (old, new) == ("queued", "delivered") else None
    if event == "event_failed" and facts.get("reason") == Reason.SKIPPED:
        return None
    return _WORDS.get(event)


def word_of_act(action: str) -> str:
    """What a person did, by the action of the audit."""
    return _ACTS.get(action, "acted")


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to see: whatever matches all that is given."""

    org_id: str | None = None
    event_id: str | None = None
    correlation_id: str | None = None
    event_type: str | None = None  # * stands for anything
    endpoint_ids: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None

    @classmethod
    def from_spec(cls, spec: Mapping[str, object]) -> "Wish":
        """From what came by a notification; ValueError where it is none of ours."""
        if not set(spec) <= set(cls.__dataclass_fields__):
            raise ValueError("a wish that a newer Redrive may know")
        lists = {
            name: tuple(str(one) for one in value) if isinstance(value, list) else None
            for name, value in ((name, spec.get(name)) for name in ("endpoint_ids", "words"))
        }
        texts = {name: str(spec[name]) for name in spec if name not in lists and spec[name] is not None}
        return cls(**texts, **lists)  # type: ignore[arg-type]

    def as_spec(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def wants(self, word: str, facts: Facts) -> bool:
        if self.words is not None and word not in self.words:
            return False
        for name in ("org_id", "event_id", "correlation_id"):
            wanted = getattr(self, name)
            if wanted is not None and str(facts.get(name)) != wanted:
                return False
        if self.event_type is not None and not fnmatchcase(str(facts.get("event_type")), _pattern(self.event_type)):
            return False
        return self.endpoint_ids is None or str(facts.get("endpoint_id")) in self.endpoint_ids


def _pattern(event_type: str) -> str:
    """Only the star stands for something else than itself."""
    return event_type.replace("[", "[[]").replace("?", "[?]")
