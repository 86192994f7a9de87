"""Correlation ids: the caller's where it can be used, else a new one. Echoed on every response."""

import re

from redrive.store.events import new_correlation_id

MAX_CORRELATION_CHARS = 128
_VISIBLE = re.compile(rb"[!-~]{1,128}")


def correlation_id_of(given: bytes | None) -> str:
    if given is not None and _VISIBLE.fullmatch(given):
        return given.decode("ascii")
    return new_correlation_id()
