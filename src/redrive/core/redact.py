"""Keep secrets out of what is stored, shown or logged. Pure; every function is total and bounded.

Called before anything that came from outside is written down: core.classify for errors, store for
snapshots, observe for log lines. It errs on the side of hiding.
"""

import json
import re
from collections.abc import Mapping
from math import isinf

REDACTED = "[redacted]"
CUT = "…"
MAX_TEXT_CHARS = 16_000
MAX_HEADERS = 100
MAX_HEADER_CHARS = 1_000
MAX_URL_CHARS = 2_048
MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_KEY_CHARS = 200
MAX_INT_DIGITS = 18  # of a number that every reader of JSON takes as it is

_SHOWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "allow",
        "cache-control",
        "ce-dataschema",
        "ce-id",
        "ce-source",
        "ce-specversion",
        "ce-time",
        "ce-type",
        "connection",
        "content-encoding",
        "content-language",
        "content-length",
        "content-type",
        "date",
        "host",
        "location",
        "redrive-attempt",
        "redrive-event-type",
        "retry-after",
        "server",
        "traceparent",
        "transfer-encoding",
        "user-agent",
        "vary",
        "via",
        "webhook-id",
        "webhook-timestamp",
        "x-correlation-id",
        "x-request-id",
        "x-retry-count",
    }
)

_SECRET_PARTS = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "authorization",
    "apikey",
    "accesskey",
    "signingkey",
    "encryptionkey",
    "cookie",
    "credential",
    "private",
    "sessionid",
    "signature",
    "bearer",
    "jwt",
    "cardnumber",
    "cvv",
    "cvc",
    "iban",
)
_SECRET_ENDS = ("auth", "pass", "ssn", "cardpan", "cardno")
_SECRET_WORDS = frozenset({"pin", "otp", "pan", "session"})
_GROUPED_ENDS = ("number", "iban", "ssn", "pan", "cardno")  # people write them in groups, with blanks between
_NOT_WORD = re.compile(r"[\W_]+")

# Possessive quantifiers (++, *+) keep every pattern linear: what is read is never read again. But not on groups: before
# 3.11.5 Python goes on behind a repetition that failed half-way. Those patterns end in something optional instead, so
# that nothing ever makes them go back.
_TOKENS = re.compile(
    r"(?:whsec_|rdk_|sk_live_|sk_test_|rk_live_|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-)[\w.+/=-]++"
    r"|\beyJ[\w-]++\.[\w-]++(?:\.[\w-]*+)?"
    r"|\bA[KS]IA[0-9A-Z]{12,}+"
)
_SCHEMES = re.compile(r"(?i:\bbearer\s++)[^\s,;\"']++|(?i:\bbasic\s++)(?=[a-z_-]*+[A-Z0-9+/=])[\w+/=-]{6,}+")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*+-----(?:[^-]|-(?!----END))*(?:-----END[A-Z ]*+-----)?")
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>`]++")
_HOOK = re.compile(r"/hooks/[^/?#\s\"']++")
_HOOK_PATH = re.compile(r"/hooks/[^/]++")
_PAIR = re.compile(
    r"(?<![\w.-])((?:(?i:api|private|access|secret|signing|card) )?[\w.-]++)"
    r"(?:(?:\\*+[\"'])?\s*+(?:=>|[=:]++)\s*+|\\*+[\"']\s*+,\s*+(?=[brBR]?\\*+[\"']))"
)
_QUOTED = re.compile(
    r"[brufBRUF]{0,2}(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|\\++[\"'][^\"'\\]*+(?:\\++[\"'])?)",
    re.DOTALL,
)
_LINE = re.compile(r"[^\r\n\"']*+")
_GROUPS = re.compile(r"[^\s,;&\"'})\]]*+(?: [0-9A-Z]{1,4}(?!\w))*")
_WORD = re.compile(r"(?:(?i:bearer|basic|digest|token)\s++)?[^\s,;&\"'})\]]*+")
_HINT = re.compile(r"[=:_.-]|/hooks/|(?i:bearer|basic)|[\"'],|AKIA|ASIA")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's text takes neither
_OPENING, _CLOSING = "[({", "])}"


def looks_secret(key: str) -> bool:
    """Whether a field of this name holds a secret, however it is spelled: apiKey, API-KEY, x_api_key."""
    word = _NOT_WORD.sub("", key[:MAX_KEY_CHARS]).lower()
    return word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) or any(part in word for part in _SECRET_PARTS)


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by allow-list; the names of the others are kept, their values not."""
    shown: dict[str, str] = {}
    for name, value in list(headers.items())[:MAX_HEADERS]:
        label = _storable(name[:MAX_KEY_CHARS])
        shown[label] = redact_text(value, MAX_HEADER_CHARS) if name.lower() in _SHOWN_HEADERS else REDACTED
    return shown


def redact_url(url: str) -> str:
    """A URL without its userinfo, query and fragment; secrets in hook addresses are hidden too."""
    url = _storable(url[:MAX_URL_CHARS])
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    authority, path = _split(rest, "/\\?#")
    userinfo, _, authority = authority.rpartition("@")
    if not _is_host(authority) or (not userinfo and ":" in authority and "@" in path):
        # An unescaped / ? or # in a password ends the authority early: what follows is not a path then.
        return f"{scheme}{found}{REDACTED}"
    path, query = _split(path, "?#")
    path = _HOOK_PATH.sub(f"/hooks/{REDACTED}", path)
    return f"{scheme}{found}{authority}{path}{f'?{REDACTED}' if query else ''}"


def redact_text(text: str, limit_chars: int = MAX_TEXT_CHARS) -> str:
    """A message without the secrets that can be told by their form or by the name before them."""
    text = _storable(text[: limit_chars + 1])
    if _HINT.search(text):
        if "://" in text:
            text = _URL.sub(lambda url: redact_url(url.group()), text)
        text = _PRIVATE_KEY.sub(REDACTED, text)
        text = _redact_pairs(text)  # before the rest, which may take a name and leave its value
        text = _SCHEMES.sub(_keep_scheme, text)
        text = _TOKENS.sub(REDACTED, text)
        text = _HOOK.sub(f"/hooks/{REDACTED}", text)
    return text if len(text) <= limit_chars else text[: max(limit_chars - 1, 0)] + CUT


def redact_value(obj: object, *, plain: type | None = None) -> object:
    """A JSON-like value with the fields of secret-looking names hidden; too deep or too much is cut.

    `plain`: a type of values that hold nothing to hide, as numbers that are kept as they were written.
    """
    return _Redactor(plain).redact(obj, 0)


def redact_json(text: str) -> object:
    """A JSON text as a value like that. What no JSON reader takes (it is cut, or too deep) is shown as text; so is a
    number of more digits than most can hold.
    """
    try:
        value = json.loads(text, parse_int=_shown_int, parse_float=_shown_float, parse_constant=str)
    except (ValueError, RecursionError):
        return redact_text(text)
    return redact_value(value)


def _shown_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else digits


def _shown_float(digits: str) -> float | str:
    return digits if len(digits) > MAX_INT_DIGITS or isinf(value := float(digits)) else value


class _Redactor:
    """Counts the nodes of one value, so that a wide one ends too."""

    __slots__ = ("nodes", "plain")

    def __init__(self, plain: type | None = None) -> None:
        self.nodes = 0
        self.plain = plain

    def redact(self, obj: object, depth: int) -> object:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            return CUT
        if isinstance(obj, str):
            return redact_text(obj)
        if obj is None or isinstance(obj, bool | int | float):
            return obj
        if isinstance(obj, Mapping):
            return self._redact_fields(obj, depth)
        if isinstance(obj, list | tuple):
            kept: list[object] = []
            for item in obj:
                if self.nodes > MAX_NODES:
                    kept.append(CUT)
                    break
                kept.append(self.redact(item, depth + 1))
            return kept
        return obj if self.plain is not None and isinstance(obj, self.plain) else f"[{type(obj).__name__}]"

    def _redact_fields(self, fields: Mapping[object, object], depth: int) -> dict[str, object]:
        shown: dict[str, object] = {}
        for key, value in fields.items():
            if self.nodes > MAX_NODES:
                shown[CUT] = CUT
                break
            name = str(key)
            label = redact_text(name, MAX_KEY_CHARS)
            shown[label] = REDACTED if looks_secret(name) else self.redact(value, depth + 1)
        return shown


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _split(text: str, marks: str) -> tuple[str, str]:
    """Text before the first of the marks, and the rest with it."""
    at = min((at for at in map(text.find, marks) if at >= 0), default=len(text))
    return text[:at], text[at:]


def _is_host(authority: str) -> bool:
    """Whether this reads as host or host:port; a password cut short does not."""
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        return True
    return (not port or (port.isascii() and port.isdigit())) and (":" not in host or host.endswith("]"))


def _keep_scheme(found: re.Match[str]) -> str:
    return f"{found.group().split(None, 1)[0]} {REDACTED}"


def _redact_pairs(text: str) -> str:
    """Hide the value after each secret-looking name: password=…, "token": "…", Cookie: …"""
    parts: list[str] = []
    done = 0
    while pair := _PAIR.search(text, done):
        parts.append(text[done : pair.end()])
        done = pair.end()
        if looks_secret(pair.group(1)):
            end = _value_end(text, done, pair.group(1))
            if end > done:
                parts.append(REDACTED)
            done = end
    parts.append(text[done:])
    return "".join(parts)


def _value_end(text: str, start: int, key: str) -> int:
    """Where the value that begins at `start` ends."""
    quoted = _QUOTED.match(text, start)
    if quoted:
        return quoted.end()
    if text.startswith(REDACTED, start):  # redacted before
        return start + len(REDACTED)
    if text[start : start + 1] in tuple(_OPENING):
        return _bracket_end(text, start)
    if key.lower().endswith(("authorization", "cookie")):
        form = _LINE
    else:
        form = _GROUPS if key.lower().endswith(_GROUPED_ENDS) else _WORD
    value = form.match(text, start)
    return value.end() if value else start


def _bracket_end(text: str, start: int) -> int:
    """The end of the list or object that opens at `start`, or of the text when it never closes."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] in _OPENING:
            depth += 1
        elif text[at] in _CLOSING:
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)
