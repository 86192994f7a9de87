"""Ways to people: endpoints of the kinds `mail` and `apprise`, what they may have, and how they are shown. Pure.

Used by api.endpoint_input, the command line, store.endpoints and the destinations. The URL of a chat service is a
secret: what is shown of it is the service, and nothing else.
"""

import re
from collections.abc import Sequence

from redrive.core.broker_route import is_route
from redrive.core.ports import HTTP_QUEUE
from redrive.core.redact import REDACTED

MAIL_KIND = "mail"
APPRISE_KIND = "apprise"
MAIL_QUEUE = "mail"
APPRISE_QUEUE = "apprise"
NOTICE_PREFIX = "notice."  # of queues: what people should hear of; served by workers and by the API's process
MAX_RECIPIENTS = 20
MAX_ADDRESS_CHARS = 254  # what SMTP carries
MAX_LOCAL_CHARS = 64
MAX_APPRISE_CHARS = 2_048
WORD_BEGINS = "=?"  # in a header of a mail: whoever reads it decodes what follows
MAIL, NOTIFY = "MAIL", "NOTIFY"  # what stands where others have an HTTP method
TO_PEOPLE = frozenset({MAIL, NOTIFY})
SUGGESTED_TYPES = ("redrive.alert.*", "redrive.dead_letter")

_MAILTO = "mailto:"
_APPRISE = "apprise://"
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)
_VISIBLE = re.compile(r"[!-~]+", re.ASCII)
_SERVICE = re.compile(r"([a-z][a-z0-9]{0,30})://", re.ASCII | re.IGNORECASE)

# Services of apprise that act on this machine, or are reached in other ways than by HTTP. Mail has a kind of its own.
LOCAL_SERVICES = frozenset(
    {
        *("blink1", "dbus", "glib", "gio", "kde", "qt", "gnome", "macosx", "syslog", "windows"),
        *(
            "amqp",
            "amqps",
            "aprs",
            "deltachat",
            "deltachats",
            "growl",
            "irc",
            "ircs",
            "mqtt",
            "mqtts",
            "nostr",
            "rsyslog",
            "smpp",
            "smpps",
        ),
        *("xmpp", "xmpps", "mailto", "mailtos", "smtp", "smtps"),
    }
)


# Of endpoints whose notices wait in queues of their own. Relays need a hub, and RabbitMQ a broker, which the API lacks.
NOTICE_KINDS = (HTTP_QUEUE, MAIL_KIND, APPRISE_KIND)
# Of endpoints whose tests wait there too: whether a person is reached should not depend on a worker.
TEST_KINDS = (MAIL_KIND, APPRISE_KIND)


def notice_queue(kind: str) -> str:
    """Where the tasks of notices for endpoints of a kind wait."""
    return NOTICE_PREFIX + kind


def address_problem(address: str) -> str | None:
    """Why mail cannot be sent there; None where it can. A bare address, in ASCII, as SMTP takes it everywhere."""
    if not address.isascii():
        return "has characters outside ASCII; give the domain in its punycode form (xn--…)"
    if WORD_BEGINS in address:
        return f"holds {WORD_BEGINS}, which begins an encoded word where mail is read"
    local, at, domain = address.rpartition("@")
    labels = domain.split(".")
    is_good = (
        at
        and len(address) <= MAX_ADDRESS_CHARS
        and len(local) <= MAX_LOCAL_CHARS
        and _LOCAL.fullmatch(local) is not None
        and len(labels) > 1
        and all(_LABEL.fullmatch(label) is not None for label in labels)
    )
    return None if is_good else "is not an address, as in ops@example.com"


def recipients_problem(addresses: Sequence[str]) -> str | None:
    """Why an endpoint cannot have these; None where it can."""
    if not 1 <= len(addresses) <= MAX_RECIPIENTS:
        return f"names 1 to {MAX_RECIPIENTS} addresses"
    for place, address in enumerate(addresses, start=1):
        why = address_problem(address)
        if why is not None:
            return f"address {place} {why}"
    if len({address.lower() for address in addresses}) < len(addresses):
        return "names an address twice"
    return None


def service_of(apprise_url: str) -> str | None:
    """The service that a URL of apprise is for; None where it names none."""
    named = _SERVICE.match(apprise_url)
    return named[1].lower() if named is not None else None


def service_problem(apprise_url: str) -> str | None:
    """Why it cannot be used, as far as the text tells; None where it can. Never repeats the URL."""
    if not 1 <= len(apprise_url) <= MAX_APPRISE_CHARS:
        return f"has 1 to {MAX_APPRISE_CHARS} characters"
    if _VISIBLE.fullmatch(apprise_url) is None:
        return "holds visible ASCII characters only; percent-encode others"
    service = service_of(apprise_url)
    if service is None:
        return "begins with the name of a service, as in slack://…"
    if service in LOCAL_SERVICES:
        if service.startswith(("mailto", "smtp")):
            return f"{service}:// cannot be used: make an endpoint of kind mail"
        return f"{service}:// cannot be used: it is not reached by HTTP, or acts on the machine that Redrive runs on"
    return None


def hidden(service: str) -> str:
    """A URL of apprise as answers show it."""
    return f"{service}://{REDACTED}"


def mail_url(recipients: Sequence[str]) -> str:
    """What stands where others have a URL."""
    return _MAILTO + ",".join(recipients)


def apprise_place(service: str) -> str:
    return _APPRISE + service


def method_of(url: str) -> str:
    """How a delivery goes where this stands for its URL."""
    if is_route(url):
        return "PUBLISH"
    if url.startswith(_MAILTO):
        return MAIL
    return NOTIFY if url.startswith(_APPRISE) else "POST"
