"""The headers that Redrive leaves on messages of a broker, and messages without them."""

from collections.abc import Mapping
from typing import Any

RETRY_COUNT = "x-retry-count"
FIRST_ATTEMPT = "x-first-attempt-timestamp"  # in whole Unix seconds

# Of a message that waits or died: what it was before.
EXCHANGE = "x-redrive-exchange"
ROUTING_KEY = "x-redrive-routing-key"
QUEUE = "x-redrive-queue"
REASON = "x-redrive-reason"
CATEGORY = "x-redrive-category"
ENCODING = "x-redrive-original-encoding"
AROUND = "x-redrive-original-around"  # whitespace before and behind the JSON, where there was some
CONTENT_TYPE = "x-redrive-original-content-type"
CONTENT_ENCODING = "x-redrive-original-content-encoding"

# Of a message that was redriven: from which dead letter, and for which time.
LETTER = "x-redrive-letter"
REPLAYS = "x-redrive-replays"

OF_DEATH = frozenset({QUEUE, REASON, CATEGORY, ENCODING, AROUND, CONTENT_TYPE, CONTENT_ENCODING})
_OF_TRIES = frozenset({FIRST_ATTEMPT, EXCHANGE, ROUTING_KEY}) | OF_DEATH


def without_tries(headers: Mapping[str, Any]) -> dict[str, Any]:
    """As it was before its first try; the count of its retries is reset, not removed: others may look for it."""
    kept = {name: value for name, value in headers.items() if name not in _OF_TRIES}
    return kept | {RETRY_COUNT: 0} if RETRY_COUNT in kept else kept
