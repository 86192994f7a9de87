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


def encoded_lines(lines: Sequence[dict[str, Any]], shared: dict[str, Any]) -> bytes:
    """Each with what all of them share at its end, which is encoded once: to merge it into every line costs as much
    again as all the rest.
    """
    text, first = encoded(shared), next(iter(shared))
    # Under the name of the first its value, and behind that the others with their names: it is put in as it stands.
    at_end = {first: msgspec.Raw(text[text.index(b":") + 1 : -1])}
    try:
        return _encoder.encode_lines([line | at_end for line in lines])
    except _UNENCODABLE:
        return b"".join(encoded(line | shared) + b"\n" for line in lines)
