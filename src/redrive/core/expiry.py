"""What is said of a task that nobody delivered in time. Pure.

Called by store.expiry, where the janitor lets it die; a worker that meets such a task first decides so by core.decide.
"""

_UNITS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def why_expired(max_age_s: float) -> str:
    """The error of a task that died of its age without any try."""
    return f"It was not delivered within the {span(max_age_s)} that its policy allows: no try was made in that time."


def span(seconds: float) -> str:
    """In the largest unit that it is a whole number of, as in `7 days`; else in seconds."""
    for size, name in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {name}{'s' if seconds > size else ''}"
    return f"{seconds:g} seconds"
