"""How routes are run: on the event loop, each of them and all that they depend on."""

import inspect
from collections.abc import Iterator
from typing import Any

from fastapi.routing import iter_route_contexts

from .document import API


def _called(dependant: Any) -> Iterator[Any]:
    """A route's function and every function it depends on, however deep."""
    yield dependant.call
    for needed in dependant.dependencies:
        yield from _called(needed)


def test_nothing_that_a_request_needs_is_sent_to_a_thread() -> None:
    """The framework hands every function that is not async to a pool of threads: more work than most of them do."""
    called = {
        one
        for route in iter_route_contexts(API.routes.routes)
        if getattr(route, "dependant", None) is not None
        for one in _called(route.dependant)
    }
    in_threads = {
        one for one in called if not inspect.iscoroutinefunction(one if inspect.isroutine(one) else one.__call__)
    }
    assert len(called) > 50
    assert in_threads == set()
