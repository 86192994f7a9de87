"""Operations in words: what is done to what, which were chosen, in which stages. Pure. Used by pages.operations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from redrive.core.operations import ENDED_STATES, OperationState
from redrive.store.db import Record
from redrive.store.operations import RETRY_QUEUE
from redrive.store.orgs import as_id
from redrive.web.search import SYNONYMS
from redrive.web.words import category, number

_LISTS = {"retry_queue": "/integrations/logs/retry-queue", "dead_letters": "/integrations/logs/dead-letter-queue"}


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a canary. `state`: done, now, next."""

    percent: float
    items: int
    state: str


def headline(action: str, subject: str, total: int, is_collected: bool) -> str:
    """ "Retry 120 dead letters"; without a number while they are being looked for."""
    one, many = ("entry", "entries") if subject == RETRY_QUEUE else ("dead letter", "dead letters")
    verb = action.capitalize()
    if not is_collected and not total:
        return f"{verb} {many}"
    return f"{verb} {number(total)} {one if total == 1 else many}"


def filter_words(chosen: object, endpoints: Mapping[UUID, str]) -> list[tuple[str, str]]:
    """Name and value of each part of a filter; nothing where ids were given."""
    if not isinstance(chosen, Mapping):
        return []
    return [
        ("text" if name == "q" else SYNONYMS.get(str(name), str(name)), _value(name, value, endpoints))
        for name, value in chosen.items()
    ]


def _value(name: str, value: object, endpoints: Mapping[UUID, str]) -> str:
    text = str(value)
    if name == "endpoint_id" and (id_ := as_id(text)) is not None:
        return endpoints.get(id_, text)
    if name == "category":
        return category(text)
    return text


def list_address(subject: str, chosen: object) -> str | None:
    """The list that the filter chose from, as it is now."""
    if not isinstance(chosen, Mapping) or subject not in _LISTS:
        return None
    pairs = {SYNONYMS.get(str(name), str(name)): str(value) for name, value in chosen.items()}
    return f"{_LISTS[subject]}?{urlencode(pairs)}"


def stages_of(row: Record) -> list[Stage]:
    """The canary's stages and the rest behind them; none without a canary."""
    if row["canary"] is None:
        return []
    percents = [*msgspec.json.decode(row["canary"])["stages"]]
    if percents[-1] < 100:
        percents.append(100.0)
    at = len(percents) if row["state"] == OperationState.COMPLETED else row["stage"]
    ended = row["state"] in ENDED_STATES
    return [
        Stage(
            percent,
            _items_up_to(row["total"], percent),
            "done" if place < at else "now" if place == at and not ended else "next",
        )
        for place, percent in enumerate(percents)
    ]


def _items_up_to(total: int, percent: float) -> int:
    return min(total, max(1, math.ceil(total * percent / 100))) if total else 0
