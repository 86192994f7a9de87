"""Keep what a step that died was given, redacted, with its dead letter: in the transaction in which it died.

Called wherever a step can die. An event keeps its bytes as they came, since a replay sends them again.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from redrive.core.redact import redact_text, redact_value
from redrive.store.db import Session

# Numbers come out as they were written, all their digits.
_exact = msgspec.json.Decoder(float_hook=lambda digits: msgspec.Raw(digits.encode()))


async def keep_payloads(session: Session, tasks: Sequence[tuple[UUID, UUID]]) -> None:
    """Of these tasks, each with its org, those that are steps and have just died. A later death changes nothing."""
    if not tasks:
        return
    rows = await session.fetch("unkept_payloads", *map(list, zip(*tasks, strict=True)))
    if rows:
        kept = [(row["org_id"], row["task_id"], _redacted(row["body"])) for row in rows]
        await session.execute("keep_payloads", *map(list, zip(*kept, strict=True)))


def _redacted(body: bytes) -> str:
    try:
        value = redact_value(_exact.decode(body), plain=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = redact_text(body.decode(errors="replace"))
    return msgspec.json.encode(value).decode()
