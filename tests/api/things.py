"""Real things for every kind of id that stands in a path: what the tests made from the document try operations on.

A path with a parameter that is not known here fails loudly: add how to make one to MAKERS.
"""

from collections.abc import Awaitable, Callable, Mapping
from uuid import uuid4

from .conftest import Api
from .document import Operation

Above = Mapping[str, str]  # the values of the parameters that stand before it in the path
Maker = Callable[[Api, Above], Awaitable[str]]


async def _event(api: Api, above: Above) -> str:
    return str((await api.failed_task())["event_id"])


async def _endpoint(api: Api, above: Above) -> str:
    return str((await api.endpoint())["id"])


async def _entry(api: Api, above: Above) -> str:
    return str((await api.failed_task())["id"])


async def _dead_letter(api: Api, above: Above) -> str:
    return str((await api.dead_task())["id"])


async def _policy(api: Api, above: Above) -> str:
    name = f"policy-{uuid4().hex[:8]}"
    made = await api.owner.request("PUT", f"/v1/policies/{name}", {"kind": "manual"})
    assert made.status == 200, made.body
    return name


# By the path up to the parameter: the same name may mean different things.
MAKERS: dict[str, Maker] = {
    "/v1/events/{event_id}": _event,
    "/v1/endpoints/{endpoint_id}": _endpoint,
    "/v1/retry-queue/{task_id}": _entry,
    "/v1/dead-letters/{task_id}": _dead_letter,
    "/v1/logs/{log_id}": _entry,
    "/v1/policies/{name}": _policy,
}


def places(operation: Operation) -> dict[str, str]:
    """The parameters of its path, each with the path up to it: its key in MAKERS."""
    return {
        name: operation.path[: operation.path.index(mark) + len(mark)]
        for name in operation.path_parameters
        for mark in [f"{{{name}}}"]
    }


async def make(api: Api, operation: Operation) -> dict[str, str]:
    """A new thing for each parameter of the operation's path, in the first org. An endpoint must be there."""
    made: dict[str, str] = {}
    for name, place in places(operation).items():
        assert place in MAKERS, f"{operation}: add to MAKERS of tests/api/things.py how a {place} is made"
        made[name] = await MAKERS[place](api, made)
    return made


def unknown(operation: Operation) -> dict[str, str]:
    """Values that name nothing."""
    return {name: str(uuid4()) for name in operation.path_parameters}
