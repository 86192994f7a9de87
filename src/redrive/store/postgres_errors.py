"""What can go wrong with the embedded PostgreSQL, in words for the person who started it.

Raised by store.embedded and its parts; shown as they are by the command line.
"""


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot run. The message says what happened, why, and what to do."""


class AlreadyRunning(EmbeddedError):
    """Another process runs PostgreSQL on this data folder."""
