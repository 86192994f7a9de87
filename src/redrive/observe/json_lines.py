"""Facts as JSON, whatever is among them: a line that cannot be encoded must not stop whoever says it.

Used by observe.logs, observe.lines and observe.watch.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=repr)
# Half a surrogate pair, an integer beyond 64 bits, a name that is no text.
_UNENCODABLE = (TypeError, ValueError, OverflowError)


def encoded(facts: Mapping[str, Any], **_: object) -> bytes:
    """In UTF-8, at half the cost of the standard library's encoder, which takes what msgspec's does not."""
    try:
        return _encoder.encode(facts)
    except _UNENCODABLE:
        return json.dumps(facts, default=str, skipkeys=True).encode("ascii")


def encoded_lines(lines: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        return _encoder.encode_lines(lines)
    except _UNENCODABLE:
        return b"".join(encoded(line) + b"\n" for line in lines)
