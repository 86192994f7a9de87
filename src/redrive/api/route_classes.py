"""What a request was for, as a label of metrics: the noun that its path begins with, or its route's template. Pure.

Of a fixed set that the routes make up: a path itself would be anything that a client sends.
"""

from collections.abc import Iterable, Mapping
from typing import Any

PAGES = "pages"
OTHER = "other"
EVENTS = "events"
BATCH = "events_batch"
STATUS = "event_status"
HOOKS = "hooks"
STATUS_TEMPLATE = "/v1/events/{event_id}/status"
FAILED_INBOX = "/v1/inbox?status=failed"
_INBOX = "/v1/inbox"
_HOT = frozenset({"/v1/events", "/v1/events/batch"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def route_labels(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Method and template of a request that is about to be answered. What matched no route is `other`."""
    method = scope["method"] if scope["method"] in _METHODS else OTHER
    route = scope.get("route")
    if route is None:
        path = scope["path"]
        if path in _HOT:
            return method, path
        return method, "/hooks/{address}" if path.startswith("/hooks/") else OTHER
    template = getattr(route, "path", OTHER)
    if template == _INBOX and b"status=failed" in scope["query_string"]:
        return method, FAILED_INBOX
    return method, template


class RouteClasses:
    """`paths`: those of the API. `pages`: those of people, of which only the first step counts."""

    def __init__(self, paths: Iterable[str], pages: Iterable[str] = ()) -> None:
        self._nouns = {path.split("/")[2] for path in paths if path.startswith("/v1/")} | {HOOKS}
        self._alone = {path.split("/")[1] for path in paths if not path.startswith("/v1/")} - {""}
        self._pages = {path.split("/")[1] for path in pages}

    def of(self, path: str) -> str:
        """Path of a request, as it is after aliases."""
        steps = path.split("/", 4)
        if len(steps) < 2 or steps[0]:
            return OTHER
        if steps[1] != "v1":
            if steps[1] in self._alone:
                return steps[1].partition(".")[0]
            return PAGES if steps[1] in self._pages else OTHER
        noun = steps[2] if len(steps) > 2 else ""
        if noun == EVENTS:
            if path.endswith("/status"):
                return STATUS
            return BATCH if path == "/v1/events/batch" else EVENTS
        return noun.replace("-", "_") if noun in self._nouns else OTHER
