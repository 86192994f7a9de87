"""Entries of the audit in words: what changed, and where the thing is that it was done to. Pure.

Used by pages.audit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote
from uuid import UUID

import msgspec

from redrive.core.diff import Change, diff

MAX_CHANGES_SHOWN = 12
# Of these `after` holds what was asked for, not the whole thing: what it lacks has stayed.
_PARTIAL = frozenset({"user.update"})

# To be chosen from; any other can be typed.
ACTIONS = (
    *("dead_letter.retry", "dead_letter.replay", "dead_letter.resolve", "dead_letter.ignore", "dead_letter.delete"),
    *("dead_letter.reopen", "dead_letter.move", "dead_letter.replay_outcome", "dead_letter.replay_refused"),
    *("task.retry", "task.skip", "task.schedule", "task.fail", "event.ack", "event.delete"),
    *("operation.create", "operation.pause", "operation.resume", "operation.cancel"),
    *("endpoint.create", "endpoint.update", "endpoint.delete", "endpoint.enable", "endpoint.disable"),
    *("endpoint.pause", "endpoint.resume", "endpoint.rotate_secret", "endpoint.rotate_hook", "endpoint.test"),
    *("endpoint.breaker_open", "endpoint.breaker_close", "lane.halt", "lane.resume"),
    *("workflow.put", "workflow.delete", "run.replay", "run.cancel"),
    *("alert_rule.put", "alert_rule.reset", "alert.test"),
    *("policy.put", "policy.default", "policy.delete", "key.create", "key.revoke"),
    *("user.create", "user.update", "user.remove", "session.login", "session.login_failed", "session.logout"),
    *("session.link", "session.switch", "org.create", "org.update", "org.pause", "org.resume"),
    *("installation.pause", "installation.resume", "retention.delete"),
)
SUBJECTS = {
    "dead_letter": "Dead letter",
    "task": "Task",
    "event": "Event",
    "operation": "Operation",
    "workflow": "Workflow",
    "run": "Run",
    "endpoint": "Endpoint",
    "policy": "Policy",
    "alert_rule": "Alert rule",
    "notice": "Notice",
    "key": "Key",
    "user": "User",
    "session": "Session",
    "org": "Org",
    "installation": "Installation",
}
_PAGES = {
    "dead_letter": "/app/admin/dlq/{}",
    "task": "/integrations/logs/{}",
    "event": "/events/{}",
    "operation": "/operations/{}",
    "workflow": "/workflows",
    "run": "/runs/{}",
    "endpoint": "/endpoints/{}",
    "policy": "/policies",
    "alert_rule": "/alerts",
    "key": "/settings/keys",
    "user": "/settings/users",
    "org": "/settings",
    "installation": "/settings",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that an entry tells. `compared`: it went from `was` to `is_now`, or came, or went; else it is named."""

    name: str
    was: str | None
    is_now: str | None
    compared: bool


def changes(action: str, before: object, after: object) -> tuple[list[Line], int]:
    """What an entry tells of before and after, and how many lines more there are."""
    lines = _compared(action, before, after) if _are_alike(before, after) else _named(before, after)
    return lines[:MAX_CHANGES_SHOWN], max(len(lines) - MAX_CHANGES_SHOWN, 0)


def _are_alike(before: object, after: object) -> bool:
    """Whether they are the same thing at two times. Some entries only say what was, and what it led to."""
    return isinstance(before, dict) and isinstance(after, dict) and bool(before.keys() & after.keys())


def _compared(action: str, before: object, after: object) -> list[Line]:
    return [
        Line(
            _name(change.path),
            None if change.change == "added" else _text(change.before),
            None if change.change == "removed" else _text(change.after),
            compared=True,
        )
        for change in diff(before, after).changes
        if not (action in _PARTIAL and change.change == "removed")
    ]


def _named(before: object, after: object) -> list[Line]:
    # Through the same door as what is compared: values come out bounded, and what looks secret hidden.
    was = [Line(_name(each.path), _text(each.before), None, compared=False) for each in _members(before)]
    is_now = [Line(_name(each.path), None, _text(each.before), compared=False) for each in _members(after)]
    return was + is_now


def _members(value: object) -> list[Change]:
    told = {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value
    return diff(told, {} if isinstance(told, dict) else None).changes


def _name(path: str) -> str:
    """A JSON pointer as people write it: limits.burst."""
    return path.removeprefix("/").replace("/", ".").replace("~1", "/").replace("~0", "~") or "value"


def _text(value: object) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def subject_page(kind: str, subject_id: UUID | None, name: str | None = None) -> str | None:
    """`name`: what the thing calls itself, for those that are found by it."""
    page = _PAGES.get(kind)
    if kind == "workflow" and name is not None:
        return f"{page}/{quote(name, safe='')}"
    return page.format(subject_id) if page is not None and subject_id is not None else None


def name_in(before: object, after: object) -> str | None:
    """What the thing calls itself in the entry."""
    for value in (after, before):
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            return str(value["name"])
    return None
