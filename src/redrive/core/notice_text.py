"""An event as a message for people: a subject and a plain text. Pure.

Used by destinations.mail and destinations.apprise. A notice reads as what happened, since when, what was seen and
where to look; any other event is shown by its type, its id and its payload.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.core.notices import SYSTEM_PREFIX

MAX_SUBJECT_CHARS = 150
MAX_TEXT_CHARS = 8_000
MAX_PAYLOAD_CHARS = 4_000
MAX_READ_BYTES = 65_536  # a larger payload is shown as it is written: to lay it out would keep a worker busy
MAX_FACTS = 40
MAX_FACT_CHARS = 500
CUT = "…"
TEST_TYPE = "redrive.test"

_PAGES = {
    "dead_letter": "/app/admin/dlq/{}",
    "endpoint": "/endpoints/{}",
    "run": "/runs/{}",
    "alert": "/alerts",
}
_NOT_SEEN = frozenset({"since", "alerts"})  # told in a line of its own; named by the text


@dataclass(frozen=True, slots=True)
class Told:
    """`severity`: info, success, warning or error."""

    subject: str
    text: str
    severity: str = "info"


def told(event_type: str, event_id: UUID, body: bytes, *, public_url: str | None) -> Told:
    """What people read of an event."""
    value = _json_of(body) if len(body) <= MAX_READ_BYTES else _NO_JSON
    if event_type.startswith(SYSTEM_PREFIX) and isinstance(value, dict):
        if event_type == TEST_TYPE:
            return _test(event_id, public_url)
        if isinstance(value.get("text"), str) and isinstance(value.get("kind"), str):
            return _notice(value, public_url)
    return _event(event_type, event_id, body, value)


def one_line(text: str) -> str:
    """Without line breaks and other control characters. Headers of mail need more: see mail_message."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _test(event_id: UUID, public_url: str | None) -> Told:
    text = "This is a test: notices of Redrive reach you here.\n\nThere is nothing to do."
    return Told("[Redrive] Test", _closed([text, f"Event: {event_id}"], public_url))


def _notice(value: Mapping[str, Any], public_url: str | None) -> Told:
    facts = value["facts"] if isinstance(value.get("facts"), dict) else {}
    is_over = value["kind"] in ("alert.over", "endpoint.breaker_closed")
    severity = "success" if is_over else str(value.get("severity", "info"))
    org = one_line(str(value.get("org", "")))[:100]
    mark = {"error": "ERROR: ", "warning": "Warning: ", "success": "Over: "}.get(severity, "")
    subject = _subject(f"[Redrive {org}] {mark}{_first_sentence(value['text'])}")
    since = facts.get("since") or value.get("at")
    seen = [(name, fact) for name, fact in _seen(facts) if fact not in (None, [], {})][:MAX_FACTS]
    paragraphs = [value["text"], f"Since: {_moment(since)}\nOrg: {org}\nKind: {one_line(str(value['kind']))}"]
    if seen:
        paragraphs.append("What was seen:\n" + "\n".join(f"  {_label(name)}: {_fact(fact)}" for name, fact in seen))
    link = _link(value.get("subject"), public_url)
    if link is not None:
        paragraphs.append(f"Look at it: {link}")
    paragraphs.append(f"Notice: {one_line(str(value.get('id', '')))}")
    return Told(subject, _closed(paragraphs, public_url), severity)


def _seen(facts: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """One fact after another. Of an alert: what its rule saw, and of what."""
    for name, fact in facts.items():
        if isinstance(fact, dict) and name == "saw":
            yield from fact.items()
        elif isinstance(fact, dict) and name == "subject":
            yield str(fact.get("kind", "subject")), fact.get("name")
        elif name not in _NOT_SEEN:
            yield name, fact


def _event(event_type: str, event_id: UUID, body: bytes, value: object) -> Told:
    subject = _subject(f"[Redrive] {event_type}")
    shown = _laid_out(value)
    if shown is None:
        shown = body[: 4 * MAX_PAYLOAD_CHARS].decode("utf-8", "replace")
    payload = _cut(_safe(shown[: 2 * MAX_PAYLOAD_CHARS]), MAX_PAYLOAD_CHARS)
    return Told(subject, f"Event type: {one_line(event_type)}\nEvent: {event_id}\n\n{payload}\n")


_NO_JSON = object()


def _json_of(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _NO_JSON


def _laid_out(value: object) -> str | None:
    if value is _NO_JSON:
        return None
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:  # what can be read cannot always be written
        return None


def _closed(paragraphs: list[str], public_url: str | None) -> str:
    whole = _cut(_safe("\n\n".join(paragraphs)), MAX_TEXT_CHARS)
    return f"{whole}\n\n--\nRedrive{f' at {public_url}' if public_url else ''}\n"


def _link(subject: object, public_url: str | None) -> str | None:
    """Where the pages show it; None where nobody said how people reach them."""
    if public_url is None or not isinstance(subject, dict):
        return None
    page = _PAGES.get(str(subject.get("kind")), "/")
    if "{}" not in page:
        return public_url + page
    try:
        return public_url + page.format(UUID(str(subject.get("id"))))
    except ValueError:
        return public_url + "/"


def _moment(value: object) -> str:
    text = one_line(str(value))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text[:MAX_FACT_CHARS]
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at.utcoffset() is not None and not at.utcoffset() else text


def _label(name: str) -> str:
    return one_line(name.replace("_", " "))[:100]


def _fact(fact: object) -> str:
    text = fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False)
    return _cut(one_line(text), MAX_FACT_CHARS)


def _first_sentence(text: str) -> str:
    """Up to the first full stop that a blank follows. A colon's list reads on: it is cut by length."""
    return text.partition(". ")[0].rstrip(".")


def _safe(text: str) -> str:
    """Line breaks and tabs stay; other control characters, and halves of pairs, which no mail carries, do not."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text.replace("\r\n", "\n"))


def _subject(text: str) -> str:
    return one_line(_cut(one_line(text), MAX_SUBJECT_CHARS))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + CUT
