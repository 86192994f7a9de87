"""Edits of dead letters as /openapi.json describes them."""

from datetime import datetime
from typing import Literal

from redrive.api.schemas.base import Answer, example

EDIT_EXAMPLE = {
    "number": 1,
    "generation": 1,
    "at": "2026-03-01T02:17:09.120Z",
    "by": "key:0190c1a2-0000-7000-8000-000000000001",
    "because": "the currency was missing",
    "edits_payload": True,
    "headers": ["x-tenant"],
    "diff": [{"path": "/currency", "change": "added", "before": None, "after": "EUR"}],
    "diff_is_cut": False,
}


class Change(Answer):
    """One place where the edited payload differs from the original: a JSON pointer, and both values, redacted."""

    path: str
    change: Literal["added", "removed", "changed"]
    before: object
    after: object


class Edit(Answer):
    """What a person changed. `headers` are names only; without them and a payload it is the return to the original."""

    model_config = example(EDIT_EXAMPLE)

    number: int
    generation: int
    at: datetime
    by: str
    because: str | None
    edits_payload: bool
    headers: list[str]
    diff: list[Change]
    diff_is_cut: bool
