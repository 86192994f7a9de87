"""The mail server of an installation, as its setting names it. Pure.

Read by settings; used by destinations.mail. Whoever runs Redrive names the server, so the rules for addresses
that deliveries keep do not apply to it.
"""

from dataclasses import dataclass, field
from email.utils import parseaddr
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redrive.core.channels import address_problem

DEFAULT_PORTS = {"smtp": 587, "smtps": 465}
MAX_NAME_CHARS = 100

Security = Literal["starttls", "tls", "none"]


@dataclass(frozen=True, slots=True)
class MailServer:
    host: str
    port: int
    security: Security
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None  # None: the authorities that the system trusts


@dataclass(frozen=True, slots=True)
class Sender:
    """Who mail is from: `Redrive <redrive@example.com>`."""

    name: str
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


def parse_server(url: str) -> MailServer:
    """Read smtp://user:password@host:587?starttls=required or smtps://…, or raise ValueError without repeating it.

    A password is never sent in the clear: without TLS there can be none.
    """
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.path not in ("", "/") or parts.fragment:
        raise ValueError("not the URL of a mail server")
    given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    terms = dict(given)
    starttls = terms.pop("starttls", "required")
    ca_file = terms.pop("ca", None)
    if terms or len(given) > 2 or starttls not in ("required", "none") or ca_file == "":
        raise ValueError("unknown terms")
    security: Security = "tls" if parts.scheme == "smtps" else "starttls" if starttls == "required" else "none"
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if (user is None) != (password is None):
        raise ValueError("a user without a password, or a password without a user")
    if password is not None and security == "none":
        raise ValueError("a password without TLS")
    return MailServer(parts.hostname, _port(parts), security, user, password, ca_file)


def _port(parts: SplitResult) -> int:
    """A password with a character that is not written as %23 or the like ends up here: it is not repeated."""
    try:
        return parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError:
        raise ValueError("not a port") from None


def parse_sender(text: str) -> Sender:
    """Read an address, with or without a name before it; ValueError where it is none."""
    name, address = parseaddr(text)
    if address_problem(address) is not None or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise ValueError("not an address")
    return Sender(name or "Redrive", address)
