"""Searching a list: words with qualifiers, as people type them, and the same in an address. Pure.

    type:invoice.* endpoint:billing error:timeout since:2h refused by gateway

Each qualifier is a parameter of its own in the page's address (`?type=invoice.*&since=2h&q=refused`), so that an
address says what a list shows, can be sent to somebody, and is edited by hand. Asked by the pages of lists.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

MAX_VALUE_CHARS = 200
_TERM = re.compile(r'(?P<name>[a-z_]+):(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))|"(?P<phrase>[^"]*)"|(?P<word>\S+)')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_AGO = re.compile(r"(\d{1,6})\s*(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
# The API's words, for those who write addresses by hand.
SYNONYMS = {
    "event_type": "type",
    "category": "error",
    "external_system": "system",
    "endpoint_id": "endpoint",
    "event_id": "event",
    "fingerprint": "group",
    "from": "since",
    "to": "until",
    "subject_kind": "subject",
    "subject_id": "id",
}


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked of a list. `terms` by qualifier, in the order shown; `text` is what has none."""

    terms: Mapping[str, str]
    text: str = ""
    unknown: tuple[str, ...] = ()  # qualifiers that this list does not know

    def get(self, name: str) -> str | None:
        return self.terms.get(name)

    @property
    def is_empty(self) -> bool:
        return not self.terms and not self.text

    def address(self, path: str, **others: str | None) -> str:
        pairs = dict(self.terms) | ({"q": self.text} if self.text else {})
        pairs |= {name: value for name, value in others.items() if value}
        return f"{path}?{urlencode(pairs, safe='*:/')}" if pairs else path

    def without(self, name: str) -> "Search":
        if name == "q":
            return Search(self.terms, "", self.unknown)
        return Search({key: value for key, value in self.terms.items() if key != name}, self.text, self.unknown)

    def changed(self, name: str, value: str) -> "Search":
        return Search({**self.terms, name: value}, self.text, self.unknown)


def typed(text: str, known: Iterable[str]) -> Search:
    """What somebody typed into the box. A word before a colon that is no qualifier is part of the text."""
    names = set(known)
    terms: dict[str, str] = {}
    words: list[str] = []
    unknown: list[str] = []
    for match in _TERM.finditer(text):
        name = match["name"] and SYNONYMS.get(match["name"], match["name"])
        value = (match["plain"] if match["quoted"] is None else match["quoted"]) if name else None
        if name in names and value:
            terms[name] = value[:MAX_VALUE_CHARS]
        else:
            if name and not match[0].startswith(("http:", "https:")):
                unknown.append(match["name"])
            words.append(match[0] if match["phrase"] is None else match["phrase"])
    return Search(terms, " ".join(words)[:MAX_VALUE_CHARS], tuple(unknown))


def asked(query: Mapping[str, str], known: Iterable[str]) -> tuple[Search, bool]:
    """What an address asks for, and whether it says so in the one way we write it ourselves. Of two names
    for the same the last counts.
    """
    names = list(known)
    # No text of ours holds a control character, and the database takes no NUL.
    given: dict[str, str] = {}
    for name, value in query.items():
        if cleaned := _CONTROL.sub("", value).strip():
            given[SYNONYMS.get(name, name)] = cleaned
    box = typed(given.get("q", ""), names)
    terms = {name: given[name][:MAX_VALUE_CHARS] for name in names if given.get(name)} | dict(box.terms)
    is_plain = not box.terms and not any(name in SYNONYMS or not value for name, value in query.items())
    return Search({name: terms[name] for name in names if name in terms}, box.text, box.unknown), is_plain


def moment(text: str, now: datetime, *, end: bool = False) -> datetime | None:
    """A time as people write it: 2h (ago), a day (`end`: to its end), or ISO 8601; None for what is no time."""
    ago = _AGO.fullmatch(text.strip().lower())
    try:
        if ago is not None:
            return now - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
        at = datetime.fromisoformat(text.strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if end and len(text.strip()) == len("2026-11-16"):
            at += timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    return at


def quoted(name: str, value: str) -> str:
    """A term as it is typed."""
    return f'{name}:"{value}"' if re.search(r"\s", value) else f"{name}:{value}"
