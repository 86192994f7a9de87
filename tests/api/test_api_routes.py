"""How routes are run: on the event loop, each of them and all that they depend on."""

import inspect

from fastapi.routing import iter_route_contexts

from redrive.api.openapi import calls_of

from .document import API


def test_nothing_that_a_request_needs_is_sent_to_a_thread() -> None:
    """The framework hands every function that is not async to a pool of threads: more work than most of them do."""
    called = {
        one
        for route in iter_route_contexts(API.routes.routes)
        if getattr(route, "dependant", None) is not None
        for one in (route.dependant.call, *calls_of(route.dependant))
    }
    in_threads = {
        one for one in called if not inspect.iscoroutinefunction(one if inspect.isroutine(one) else one.__call__)
    }
    assert len(called) > 50
    assert in_threads == set()
