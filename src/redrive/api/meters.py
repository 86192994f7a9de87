"""How much an org uses of this process: a bucket of requests for each, O(1) and without waiting. And what it may store.

Asked by auth for every request that comes with a key or a session, by front_door for those on the short way, and by
every route that stores a payload.
"""

import time
from uuid import UUID

from redrive.api.problems import Problem, too_many
from redrive.core.limits import Bucket
from redrive.store.keys import Caller

MAX_ORGS_METERED = 10_000


class Meters:
    def __init__(self) -> None:
        self._buckets: dict[UUID, Bucket] = {}

    def wait_s(self, caller: Caller) -> float:
        """0.0 where the request may pass, and is counted; else the seconds until one may."""
        limits = caller.limits
        now_s = time.monotonic()
        bucket = self._buckets.get(caller.org_id)
        if bucket is None or bucket.rate_per_s != limits.requests_per_s or bucket.size != limits.burst:
            if len(self._buckets) >= MAX_ORGS_METERED:
                self._buckets.clear()
            bucket = self._buckets[caller.org_id] = Bucket(limits.requests_per_s, limits.burst, now_s)
        return bucket.take(now_s)

    def take(self, caller: Caller) -> None:
        """Count a request, or Problem 429."""
        wait_s = self.wait_s(caller)
        if wait_s:
            raise too_many(
                f"This org may make {caller.limits.requests_per_s} requests a second. Slow down, or have an OWNER "
                "raise its limit requests_per_s.",
                wait_s,
            )


def check_size(caller: Caller, payload: bytes) -> None:
    """Problem 413 where it is more than the org's payloads may have."""
    if len(payload) > caller.limits.max_payload_bytes:
        raise Problem(413, f"A payload of this org has at most {caller.limits.max_payload_bytes} bytes.")


def has_room(caller: Caller) -> bool:
    """Whether the org may store more. What it stores was added up when the caller was looked up."""
    return caller.stored_bytes < caller.limits.max_stored_bytes


def check_room(caller: Caller) -> None:
    """Problem 507 where the org has none."""
    if not has_room(caller):
        raise Problem(
            507,
            f"This org stores {caller.stored_bytes} bytes of events, and may store {caller.limits.max_stored_bytes}. "
            "Nothing was stored. Delete events, shorten their retention, or have an OWNER raise its max_stored_bytes.",
        )
