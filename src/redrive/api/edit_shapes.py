"""Edits of dead letters as the JSON that clients see: what was changed by whom, with what looks secret hidden. Pure.

Called by the routes of dead letters and logs.
"""

from collections.abc import Sequence

import msgspec

from redrive.api.evidence import redacted_payload
from redrive.api.shapes import Row, Shape


def edited(row: Row) -> Shape:
    """What a dead letter's next try sends instead of the original. null: the original."""
    return {"edit": row["edit"], "edited_payload": redacted_payload(row["edited_body"])}


def edits(rows: Sequence[Row]) -> Shape:
    return {"edits": [edit(row) for row in rows]}


def edit(row: Row) -> Shape:
    """Header values are left out: only their names are told."""
    headers = msgspec.json.decode(row["headers"], type=dict[str, str]) if row["headers"] else {}
    return {
        "number": row["number"],
        "generation": row["generation"],
        "at": row["at"],
        "by": row["by"],
        "because": row["because"],
        "edits_payload": row["has_body"],
        "headers": sorted(headers),
        "diff": msgspec.json.decode(row["diff"]),
        "diff_is_cut": row["diff_is_cut"],
    }


def last_generation(attempts: Sequence[Row]) -> int | None:
    """Of the last try that has been made. None: there was none."""
    return next((row["generation"] for row in reversed(attempts) if row["result"] != "released"), None)
