"""How long somebody who keeps failing to sign in has to wait. Pure.

Asked by store.logins for the e-mail and for the address of a login; the longer wait counts.
"""

FREE_FAILURES = 5
WINDOW_S = 15 * 60.0
FIRST_WAIT_S = 30.0
LONGEST_WAIT_S = WINDOW_S


def wait_s(failures: int, since_last_s: float) -> float:
    """Seconds from now until the next try may be made: 0.0 at once.

    The first five failures cost nothing. Each one beyond doubles the wait, which begins with the latest failure; a
    window without any ends the story.
    """
    if failures < FREE_FAILURES or since_last_s >= WINDOW_S:
        return 0.0
    doublings = min(failures - FREE_FAILURES, 16)  # bound first: huge powers overflow
    return max(0.0, min(FIRST_WAIT_S * 2.0**doublings, LONGEST_WAIT_S) - since_last_s)


def failures_after(failures: int, since_last_s: float) -> int:
    """The count with one more failure; an old story begins anew."""
    return 1 if since_last_s >= WINDOW_S else failures + 1
