"""Values as people read them: times, durations, numbers, names of things. Pure. The templates' filters."""

import json
import re
from datetime import UTC, datetime

from markupsafe import Markup

from redrive.core.pulse import in_two_units

_STATUS = re.compile(r"HTTP (\d{3})\b\s*(.*)", re.DOTALL)
_UNITS = ((86_400 * 365, "y"), (86_400 * 30, "mo"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

CATEGORIES = {
    "timeout": "Timeout",
    "network": "Network",
    "rate_limited": "Rate limited",
    "server_error": "Server error",
    "client_error": "Client error",
    "validation": "Validation",
    "configuration": "Configuration",
    "unknown": "Unknown",
}
# One colour per meaning on every page, see static/app.css: created, delivered, failed, waiting, held.
STATE_COLOURS = {
    "received": "created",
    **dict.fromkeys(("delivered", "succeeded", "success", "completed"), "delivered"),
    **dict.fromkeys(("failed", "dead", "error", "open", "lost"), "failed"),
    **dict.fromkeys(
        ("queued", "waiting", "pending", "in_progress", "leased", "preparing", "running", "replaying"), "waiting"
    ),
    **dict.fromkeys(("held", "paused"), "held"),
    **dict.fromkeys(("active", "enabled"), "ok"),
    **dict.fromkeys(("disabled", "suspended", "revoked"), "bad"),
}
REASONS = {
    "permanent": "not worth retrying",
    "exhausted": "used up its retries",
    "expired": "grew too old",
    "skipped": "skipped by a person",
}

KINDS = {"rabbitmq": "RabbitMQ", "mail": "mail", "apprise": "chat"}

SENDERS = {"standard": "Standard Webhooks", "github": "GitHub", "stripe": "Stripe", "slack": "Slack"}


def sender_of(scheme: str) -> str:
    """Whose way of signing a scheme is."""
    return SENDERS.get(scheme, scheme)


def kind(name: str) -> str:
    """What sort of task it is, by the name that people know."""
    return KINDS.get(name, name)


def number(value: int | float | None) -> str:
    """Thousands apart; a dash for what is not known."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def percent(share: float | None, digits: int = 1) -> str:
    """Never rounded up to "100%" or down to "0%": one failure in a million is a failure."""
    if share is None:
        return "–"
    shown = f"{share * 100:.{digits}f}"
    if share < 1 and float(shown) == 100:
        shown = f"{100 - 10**-digits:.{digits}f}"
    if share > 0 and float(shown) == 0:
        shown = f"<{10**-digits:.{digits}f}"
    return f"{shown}%"


def duration(seconds: float | None) -> str:
    """Two units at most: 1 h 30 min, 5 s, 250 ms."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    return in_two_units(round(seconds))


def size(count: int | None) -> str:
    if count is None:
        return "–"
    value, units = float(count), ("bytes", "kB", "MB", "GB", "TB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def relative(at: datetime, now: datetime) -> str:
    """ "3 min ago", "in 5 s", "now". static/times.js says the same, and keeps it true."""
    seconds = round((at - now).total_seconds())
    if seconds == 0:
        return "now"
    count, unit = next((abs(seconds) // length, unit) for length, unit in _UNITS if abs(seconds) >= length)
    return f"in {count} {unit}" if seconds > 0 else f"{count} {unit} ago"


def absolute(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(at: datetime | None, now: datetime, otherwise: str = "–") -> Markup:
    """A time as it is told everywhere: relative, the absolute one on hover."""
    if at is None:
        return Markup('<span class="none">{}</span>').format(otherwise)
    return Markup('<time datetime="{}" title="{}" data-relative>{}</time>').format(
        iso(at), absolute(at), relative(at, now)
    )


def short_id(value: object) -> str:
    """The end of an id: the beginning of UUIDv7 is the time, alike for all of one minute."""
    return str(value)[-12:]


def plural(count: int | None, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def category(name: str | None) -> str:
    return CATEGORIES.get(name or "", name or "Unknown")


def ended(reason: str, name: str | None) -> str | None:
    """Why it ended, beside its last error; None: it used up its retries."""
    if reason == "permanent":
        return f"not retried: {category(name).lower()}"
    return None if reason == "exhausted" else reason


def error_parts(name: str | None, message: str | None) -> tuple[str, str]:
    """An error as a short mark and what else there is to say: the status that was answered, or the class."""
    status = _STATUS.match(message or "")
    if status is None:
        return category(name), message or "–"
    return f"HTTP {status[1]}", status[2] or category(name)


def state_colour(state: str) -> str:
    """The class of a state's badge; states that people closed or cancelled have no colour."""
    return STATE_COLOURS.get(state, "quiet")


def is_date(text: str) -> bool:
    """Whether a field for dates can show it."""
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None


def as_json(value: object) -> str:
    """For data attributes: escaped by the template, read by our scripts."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> str:
    return iso(value) if isinstance(value, datetime) else str(value)
