"""How deep JSON may nest, wherever it comes from. Pure.

Called by api.json_rules on what is handed in, and by core.steps on what a workflow's templates make.
"""

import re

MAX_JSON_DEPTH = 64

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def is_too_deep(body: bytes) -> bool:
    """Whether a valid JSON text nests deeper than the limit. Each round takes the innermost brackets away."""
    if body.count(b"[") + body.count(b"{") <= MAX_JSON_DEPTH:
        return False
    brackets = _STRINGS.sub(b"", body).translate(_TO_SQUARE, _NOT_BRACKETS)
    for _ in range(MAX_JSON_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
