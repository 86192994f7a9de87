"""Payloads and receivers' answers as people may see them: what looks secret is hidden here, on reading. Pure.

The stored bytes stay as they came. Called by shapes.
"""

import codecs
from base64 import b64encode

import msgspec

from redrive.api.json_rules import BadJson, decode_strictly
from redrive.core.redact import redact_text, redact_value

MAX_SHOWN_CHARS = 65_536  # as much as is kept of an answer

# Numbers come out as they were written, all their digits: 1.10 stays 1.10.
_exact = msgspec.json.Decoder(float_hook=lambda digits: msgspec.Raw(digits.encode()))


def payload(body: bytes | None) -> object:
    """A payload as JSON, byte for byte where it is JSON."""
    if body is None:
        return None
    try:
        decode_strictly(body)
    except BadJson:
        text = _text(body)
        return _base64(body) if text is None else text
    return msgspec.Raw(body)


def too_large(body_bytes: int) -> str:
    """What stands for a payload that nobody may hand in: it came from a broker."""
    return f"[{body_bytes} bytes, too many to be shown]"


def redacted_payload(body: bytes | None) -> object:
    if body is None:
        return None
    try:
        return redact_value(_decode_exactly(body), plain=msgspec.Raw)
    except BadJson:
        text = _text(body)
        # What is no text cannot be searched for secrets.
        return f"[{len(body)} bytes that are neither JSON nor text]" if text is None else redact_text(text)


def payload_or_size(body: bytes | None, body_bytes: int, *, whole: bool) -> object:
    """Of an event; its body is None where it is too large to be read."""
    return too_large(body_bytes) if body is None else shown_payload(body, whole=whole)


def shown_payload(body: bytes | None, *, whole: bool) -> object:
    return payload(body) if whole else redacted_payload(body)


def redacted_answer(body: bytes, *, truncated: bool) -> str:
    """A receiver's answer as text. JSON is written anew where something in it is hidden, else shown as it came."""
    text = _text(body, truncated=truncated)
    if text is None:
        return _base64(body)
    try:
        value = _decode_exactly(body)
    except BadJson:
        return redact_text(text, MAX_SHOWN_CHARS)
    shown = redact_value(value, plain=msgspec.Raw)
    if shown != value:
        return msgspec.json.encode(shown).decode()
    return redact_text(text, MAX_SHOWN_CHARS)  # of a name that stands there twice, the value above has one only


def _decode_exactly(body: bytes) -> object:
    decode_strictly(body)
    return _exact.decode(body)


def _text(body: bytes, *, truncated: bool = False) -> str | None:
    """Bytes as text, where they are. The end of a truncated one may be half a character."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not truncated)
    except UnicodeDecodeError:
        return None


def _base64(body: bytes) -> str:
    return f"base64:{b64encode(body).decode()}"
