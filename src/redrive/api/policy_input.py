"""Reading policies as people send them: the policy itself, and which events it is for. Pure.

Called by routes.policies.
"""

import re
from collections.abc import Mapping

from redrive.api.event_input import MAX_EVENT_TYPE_CHARS
from redrive.api.problems import FieldError, invalid
from redrive.core.policy import Policy, PolicyError
from redrive.core.spec import shown
from redrive.store.policies import Binding

MAX_EVENT_TYPES = 100
SHOWN_BESIDES = frozenset({"preset", "created_at"})  # read-only: taken back unread, so that GET, edit, PUT works

_NOT_SPEC = SHOWN_BESIDES | {"name", "event_types", "default"}
POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def read_policy(given: Mapping[str, object]) -> tuple[Policy, Binding]:
    """What a body says, or Problem 422 with everything that is wrong with it. What it leaves out has its default."""
    errors: list[FieldError] = []
    policy: Policy | None = None
    try:
        policy = Policy.from_spec({name: value for name, value in given.items() if name not in _NOT_SPEC})
    except PolicyError as error:
        errors += [FieldError(("body", *place), message) for place, message in error.errors]
    event_types = _event_types(given.get("event_types", []), errors)
    is_default = given.get("default", False)
    if not isinstance(is_default, bool):
        errors.append(FieldError(("body", "default"), f"must be true or false, not {shown(is_default)}"))
    if policy is None or errors:
        raise invalid(*errors)
    return policy, Binding(event_types, bool(is_default))


def _event_types(given: object, errors: list[FieldError]) -> tuple[str, ...]:
    if not isinstance(given, list):
        errors.append(FieldError(("body", "event_types"), f"must be a list of texts, not {shown(given)}"))
        return ()
    if len(given) > MAX_EVENT_TYPES:
        errors.append(FieldError(("body", "event_types"), f"must hold at most {MAX_EVENT_TYPES}, not {len(given)}"))
        return ()
    for index, event_type in enumerate(given):
        place = ("body", "event_types", index)
        if not isinstance(event_type, str) or not 1 <= len(event_type) <= MAX_EVENT_TYPE_CHARS:
            errors.append(FieldError(place, f"must be a text of 1 to {MAX_EVENT_TYPE_CHARS} characters"))
        elif _CONTROL.search(event_type):
            errors.append(FieldError(place, "must not hold control characters"))
        elif event_type in given[:index]:
            errors.append(FieldError(place, "is given twice"))
    return tuple(given)
