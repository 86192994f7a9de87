"""A request as a command for a shell: what was sent, to be sent again by hand. Pure.

Used by timeline. Whatever stands in URL, headers or body reaches curl as it is: the shell is told to take it literally,
and curl not to read anything into it.
"""

import shlex
from collections.abc import Mapping

from redrive.core.redact import REDACTED

MAX_BODY_CHARS = 16_000
SIGNATURE = "webhook-signature"
SIGNATURE_PLACEHOLDER = "v1,SIGN-IT-WITH-THE-SECRET-OF-THE-ENDPOINT"
PLACEHOLDER = "FILL-IN"
BODY_FILE = "payload.json"


def as_curl(method: str, url: str, headers: Mapping[str, str], body: str | None) -> str:
    """`body` None, too long or impossible on a command line: it is read from a file beside the command."""
    parts = [f"curl --globoff --request {shlex.quote(method)}"]
    parts += [f"--header {shlex.quote(_header(name, value))}" for name, value in headers.items()]
    if body is None or len(body) > MAX_BODY_CHARS or "\x00" in body:
        parts.append(f"--data-binary @{BODY_FILE}")
    else:
        parts.append(f"--data-raw {shlex.quote(body)}")  # --data would take a body that begins with @ for a file
    parts.append(f"--url {shlex.quote(url)}")
    return " \\\n  ".join(parts)


def _header(name: str, value: str) -> str:
    if name.lower() == SIGNATURE:
        value = SIGNATURE_PLACEHOLDER
    elif value == REDACTED:
        value = PLACEHOLDER
    return f"{name}: {value}" if value else f"{name};"  # "name:" would tell curl to leave it out
