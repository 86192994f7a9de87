"""Who may do what: the one table of it. Pure.

Asked by front_door for producers and by the routes through auth.
"""

from enum import StrEnum


class Action(StrEnum):
    READ = "read"
    PRODUCE = "produce"
    RETRY = "retry"  # retry now, skip
    JUDGE = "judge"  # redrive, resolve, ignore, delete dead letters
    MANAGE = "manage"  # endpoints and policies


_MANAGERS = frozenset({"OWNER", "ADMIN", "IT_MANAGER"})

ROLES: dict[Action, frozenset[str]] = {
    Action.READ: _MANAGERS | {"STAFF", "VIEWER"},
    Action.PRODUCE: _MANAGERS | {"STAFF"},
    Action.RETRY: _MANAGERS,
    Action.JUDGE: _MANAGERS,
    Action.MANAGE: _MANAGERS,
}


def may(role: str, action: Action) -> bool:
    return role in ROLES[action]
