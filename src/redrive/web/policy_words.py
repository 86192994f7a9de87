"""Policies as people read them: when they retry, when they end, and spans of time as the editor takes them back. Pure.

Used by pages.policies, and by the templates of whatever names a policy. static/forms.js reads what `span` writes.
"""

from urllib.parse import quote

from redrive.core.policy import MAX_PREVIEW_ROWS, Policy, PolicyKind, preview
from redrive.web.words import plural

KINDS = {
    PolicyKind.LIST: "A list of waits",
    PolicyKind.EXPONENTIAL: "Growing waits",
    PolicyKind.IMMEDIATE: "The same wait each time",
    PolicyKind.MANUAL: "By hand only",
}
RESERVED = ("new", "plot")  # addresses of pages.policies itself: a policy of such a name has another one
_SHOWN = 4  # waits told one by one
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def href_of(name: str) -> str:
    """Where a policy is looked at."""
    return f"/policies/{quote(name, safe='')}" + ("/edit" if name in RESERVED else "")


def span(seconds: float | None) -> str:
    """Exactly, in the largest unit that fits a whole number of times: 5 min, 90 s, 0.5 s. Nothing for None."""
    if seconds is None:
        return ""
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:.15g} s"


def schedule(policy: Policy) -> str:
    """When it retries, in a few words."""
    rows = preview(policy)
    if policy.kind is PolicyKind.MANUAL:
        return "a person retries"
    if not rows:
        return "no retries"
    if policy.kind is PolicyKind.IMMEDIATE:
        return f"{span(rows[0].delay_s)} each time"
    told = ", ".join(span(row.delay_s) for row in rows[:_SHOWN])
    if len(rows) <= _SHOWN:
        return told
    if policy.kind is PolicyKind.EXPONENTIAL:
        return f"{told} … times {policy.factor:g}, at most {span(policy.cap_s)}"
    last = span(policy.delays_s[-1])
    return f"{told}, then every {last}" if len(policy.delays_s) <= _SHOWN else f"{told} … then every {last}"


def ends(policy: Policy) -> str:
    """When it gives up."""
    by_count = None if policy.max_retries is None else f"after {plural(policy.max_retries, 'retry', 'retries')}"
    by_age = None if policy.max_age_s is None else f"{span(policy.max_age_s)} after it was received"
    told = " or ".join(part for part in (by_count, by_age) if part)
    return told or "when a person ends it"


def goes_on(policy: Policy, shown: int) -> str | None:
    """What follows the rows of a preview, where something does."""
    if policy.kind is PolicyKind.MANUAL:
        return None
    if shown == MAX_PREVIEW_ROWS and (policy.max_retries is None or policy.max_retries > shown):
        return f"It goes on like this, and ends {ends(policy)}."
    if policy.max_retries is not None and shown < policy.max_retries:
        return f"It ends {span(policy.max_age_s)} after it was received, before it has made all its retries."
    return None
