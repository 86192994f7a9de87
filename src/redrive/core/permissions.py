"""Who may do what: the one table of it. Pure.

Asked by front_door for producers, by the routes through auth, and by the pages. The database's policies know the roles
that may change anything at all (a test compares them).
"""

from enum import StrEnum


class Role(StrEnum):
    OWNER = "OWNER"  # of the installation: every org, no membership needed
    ADMIN = "ADMIN"
    IT_MANAGER = "IT_MANAGER"
    STAFF = "STAFF"
    VIEWER = "VIEWER"


# Names that other systems have for the same roles; taken wherever a role is given, never shown.
ALIASES = {"SUPER_ADMIN": Role.OWNER, "ORG_ADMIN": Role.ADMIN}


class Scope(StrEnum):
    """What a key is limited to, whatever its role."""

    PRODUCE = "produce"
    READ = "read"
    RELAY = "relay"


class Action(StrEnum):
    READ = "read"
    READ_PAYLOADS = "read payloads"  # in full; others see them with what looks secret hidden
    PRODUCE = "produce"  # events
    CONSUME = "consume"  # acknowledge and delete events
    RETRY = "retry"  # retry now, skip; operations on them
    JUDGE = "judge"  # redrive, replay, resolve, ignore, reopen, delete dead letters
    MANAGE = "manage"  # endpoints, policies, pausing
    CONNECT = "connect hubs"  # of relays
    ADMIT = "admit"  # users and keys of the org
    WATCH = "watch"  # numbers of the whole installation
    OWN = "own"  # orgs, and the installation itself


CHANGERS = frozenset({Role.OWNER, Role.ADMIN, Role.IT_MANAGER})

ROLES: dict[Action, frozenset[Role]] = {
    Action.READ: frozenset(Role),
    Action.READ_PAYLOADS: CHANGERS,
    Action.PRODUCE: CHANGERS,
    Action.CONSUME: CHANGERS,
    Action.RETRY: CHANGERS,
    Action.JUDGE: CHANGERS,
    Action.MANAGE: CHANGERS,
    Action.CONNECT: CHANGERS,
    Action.ADMIT: frozenset({Role.OWNER, Role.ADMIN}),
    Action.WATCH: frozenset({Role.OWNER}),
    Action.OWN: frozenset({Role.OWNER}),
}

SCOPES: dict[Scope, frozenset[Action]] = {
    Scope.PRODUCE: frozenset({Action.PRODUCE}),
    Scope.READ: frozenset({Action.READ, Action.READ_PAYLOADS, Action.WATCH}),
    Scope.RELAY: frozenset({Action.CONNECT}),
}


def may(role: Role, action: Action, scope: Scope | None = None) -> bool:
    return role in ROLES[action] and (scope is None or action in SCOPES[scope])


def role_named(name: str) -> Role:
    """The role of that name or alias; ValueError names the ones there are."""
    try:
        return ALIASES.get(name) or Role(name)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Role)} (or {', '.join(ALIASES)})") from None
