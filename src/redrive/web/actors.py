"""Who did something, as people read it: names for what is stored as `user:<id>`, `key:<id>`, `engine` … Pure.

Used by the pages of operations, of the audit and of the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from redrive.core.permissions import Action
from redrive.store.actors import ActorName
from redrive.store.keys import Caller
from redrive.store.orgs import as_id

_WORDS = {
    "engine": "Redrive itself",
    "installation": "the installation's start",
    "nobody": "nobody signed in",
}


@dataclass(frozen=True, slots=True)
class Actor:
    """`stored`: what filters take; `more`: what is told on hover."""

    stored: str
    text: str
    more: str


def shown_actor(stored: str, names: Mapping[str, ActorName], viewer: Caller) -> Actor:
    """E-mails are for those who may see the people themselves."""
    kind, _, rest = stored.partition(":")
    known = names.get(stored)
    if stored == viewer.actor:
        return Actor(stored, "you", viewer.name)
    if known is not None and kind == "user":
        return Actor(stored, known.name, known.email if known.email and viewer.may(Action.ADMIT) else stored)
    if known is not None:
        return Actor(stored, f"key “{known.name}”", stored)
    match kind:
        case "link":
            return Actor(stored, "a sign-in link", stored)
        case "cli":
            return Actor(stored, f"{rest} (command line)", stored)
        case "user":
            return Actor(stored, "an unknown user" if as_id(rest) else rest, stored)
        case "key":
            return Actor(stored, "a key of another org", stored)
    return Actor(stored, _WORDS.get(stored, stored), stored)
