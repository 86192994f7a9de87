"""What a handler does in the benches of consumers, whoever calls it: counts, and fails where it is told to.

Imported by workers of peers, in venvs of their own: the standard library only. How many messages there are and whether
one in ten fails at its first try: BENCH_MESSAGES, BENCH_FLAKY. When the last one has succeeded it prints one line.
"""

import json
import os
import sys
import time

FAILS_ONCE = 10  # one in so many
DONE = "tally:"
BODY = "x" * 480


class NotYet(ConnectionError):
    """The first try of one in ten."""


class Tally:
    def __init__(self) -> None:
        self._messages = int(os.environ["BENCH_MESSAGES"])
        self._flaky = os.environ["BENCH_FLAKY"] == "1"
        self._failed: set[int] = set()
        self._done: set[int] = set()
        self._tries = 0
        self._first_s = 0.0

    def handle(self, number: int) -> None:
        if not self._tries:
            self._first_s = time.monotonic()
        self._tries += 1
        if self._flaky and number % FAILS_ONCE == 0 and number not in self._failed:
            self._failed.add(number)
            raise NotYet("the first try of one in ten")
        self._done.add(number)
        if len(self._done) == self._messages:
            self._say()

    def _say(self) -> None:
        wanted = self._messages + len(self._failed)
        facts = {"seconds": time.monotonic() - self._first_s, "failed": len(self._failed), "tries": self._tries}
        sys.stdout.write(f"\n{DONE}{json.dumps(facts | {'repeated': self._tries - wanted})}\n")
        sys.stdout.flush()


def message(number: int) -> dict[str, object]:
    """What each of them carries: 512 bytes as JSON, or a little more."""
    return {"number": number, "text": BODY}
