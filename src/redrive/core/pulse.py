"""What happened, in numbers: the slots of its distributions. Pure.

The database keeps the numbers per minute as they come, by the same bounds.
"""

# The upper ends of all waits but the last, which has none: from a tenth of a second to a week.
WAIT_BOUNDS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
WAIT_SLOTS = len(WAIT_BOUNDS_S) + 1
RETRY_SLOTS = 11  # 0 to 9 retries, and 10 or more
