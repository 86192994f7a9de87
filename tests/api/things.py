"""Real things for every kind of id that stands in a path: what the tests made from the document try operations on.

A path with a parameter that is not known here fails loudly: add how to make one to MAKERS.
"""

from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID, uuid4

from redrive.core.breaker import BreakerState
from redrive.store.alert_rounds import AlertRounds
from redrive.store.endpoint_states import BreakerStates

from .conftest import Api
from .document import Operation

EVENT_TYPES = ["invoice.*"]  # of every endpoint here: what else happens waits in the inbox

Above = Mapping[str, str]  # the values of the parameters that stand before it in the path
Maker = Callable[[Api, Above], Awaitable[str]]


async def _event(api: Api, above: Above) -> str:
    return str((await api.failed_task())["event_id"])


async def _event_in_the_inbox(api: Api, above: Above) -> str:
    return await api.event("nobody.listens")


async def _endpoint(api: Api, above: Above) -> str:
    return str((await api.endpoint(event_types=EVENT_TYPES))["id"])


async def _lane(api: Api, above: Above) -> str:
    """The one lane of an endpoint that is ordered from now on, with an event that waits in it."""
    endpoint_id = above["endpoint_id"]
    changed = await api.owner.request("PATCH", f"/v1/endpoints/{endpoint_id}", {"ordered": True})
    assert changed.status == 200, changed.body
    await api.event(EVENT_TYPES[0].replace("*", "paid"), endpoint_id=endpoint_id)
    return endpoint_id


async def _entry(api: Api, above: Above) -> str:
    return str((await api.failed_task())["id"])


async def _dead_letter(api: Api, above: Above) -> str:
    return str((await api.dead_task())["id"])


async def _event_that_failed(api: Api, above: Above) -> str:
    return str((await api.dead_task())["event_id"])


async def _policy(api: Api, above: Above) -> str:
    name = f"policy-{uuid4().hex[:8]}"
    made = await api.owner.request("PUT", f"/v1/policies/{name}", {"kind": "manual"})
    assert made.status == 200, made.body
    return name


async def _workflow(api: Api, above: Above) -> str:
    name = f"workflow-{uuid4().hex[:8]}"
    steps = [{"name": step, "kind": "wait", "wait_s": 3600} for step in ("first", "second")]
    made = await api.owner.request("PUT", f"/v1/workflows/{name}", {"steps": steps})
    assert made.status == 200, made.body
    return name


async def _run(api: Api, above: Above) -> str:
    begun = await api.owner.post(f"/v1/workflows/{await _workflow(api, above)}/runs", {"input": {}})
    assert begun.status == 202, begun.body
    return str(begun.json["run_id"])


async def _ended_run(api: Api, above: Above) -> str:
    run_id = await _run(api, above)
    assert (await api.owner.post(f"/v1/runs/{run_id}/cancel")).status == 200
    return run_id


async def _made(api: Api, path: str, value: object) -> str:
    made = await api.owner.post(path, value)
    assert made.status in (201, 202), made.body
    return str(made.json.get("id") or made.json["operation_id"])


async def _operation(api: Api, above: Above) -> str:
    return await _made(api, "/v1/dead-letters/bulk", {"action": "retry", "ids": [await _dead_letter(api, above)]})


async def _paused_operation(api: Api, above: Above) -> str:
    made = await _operation(api, above)
    paused = await api.owner.post(f"/v1/operations/{made}/pause")
    assert paused.status == 200, paused.body
    return made


async def _key(api: Api, above: Above) -> str:
    return await _made(api, "/v1/keys", {"name": "a key", "role": "VIEWER"})


async def _user(api: Api, above: Above) -> str:
    return await _made(api, "/v1/users", {"email": f"{uuid4().hex}@example.com", "name": "Ada", "role": "VIEWER"})


async def _org(api: Api, above: Above) -> str:
    return await _made(api, "/v1/orgs", {"name": f"org {uuid4().hex}"})


async def _relay(api: Api, above: Above) -> str:
    return str((await api.endpoint(kind="relay", url=None, event_types=[]))["id"])


async def _hook(api: Api, above: Above) -> str:
    made = await api.endpoint(kind="relay", url=None, event_types=[])
    return str(made["hook_url"]).rpartition("/")[2]


async def _alert(api: Api, above: Above) -> str:
    """An incident: a breaker that is open."""
    endpoint_id = UUID(await _endpoint(api, above))
    states = BreakerStates(api.context.engine_db, api.context.clock)
    closed = BreakerState.CLOSED
    assert await states.open_breaker(api.org_id, endpoint_id, taken_for=closed, reason="all fail")
    await AlertRounds(api.context.engine_db, api.context.clock, every_s=0).look()
    firing = (await api.owner.get("/v1/alerts?rule=endpoint_open&limit=250")).json["data"]
    return next(str(alert["id"]) for alert in firing if alert["subject"]["id"] == str(endpoint_id))


async def _rule(api: Api, above: Above) -> str:
    """As good as any: every org has the same."""
    return "failure_rate"


# By the path up to the parameter: the same name may mean different things.
MAKERS: dict[str, Maker] = {
    "/v1/events/{event_id}": _event,
    "/v1/endpoints/{endpoint_id}": _endpoint,
    "/v1/hooks/{token}": _hook,
    "/v1/endpoints/{endpoint_id}/lanes/{lane_id}": _lane,
    "/v1/retry-queue/{task_id}": _entry,
    "/v1/dead-letters/{task_id}": _dead_letter,
    "/v1/logs/{log_id}": _entry,
    "/v1/policies/{name}": _policy,
    "/v1/alerts/{alert_id}": _alert,
    "/v1/alerts/rules/{rule}": _rule,
    "/v1/operations/{operation_id}": _operation,
    "/v1/workflows/{name}": _workflow,
    "/v1/runs/{run_id}": _run,
    "/v1/keys/{key_id}": _key,
    "/v1/users/{user_id}": _user,
    "/v1/orgs/{org_id}": _org,
}
# Operations that need their thing in another state, by their name.
IN_ANOTHER_STATE: dict[str, Maker] = {
    "POST /v1/events/{event_id}/ack": _event_in_the_inbox,
    "DELETE /v1/events/{event_id}": _event_in_the_inbox,
    "POST /v1/events/{event_id}/retry": _event_that_failed,
    "POST /v1/operations/{operation_id}/resume": _paused_operation,
    "POST /v1/endpoints/{endpoint_id}/rotate-hook": _relay,
    "POST /v1/runs/{run_id}/replay": _ended_run,
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
    if operation.path_parameters:  # an operation tried before may have paused deliveries
        for scope in ("org", "installation"):
            resumed = await api.owner.post("/v1/retries/resume", {"scope": scope})
            assert resumed.status == 200, resumed.body
    for name, place in places(operation).items():
        assert place in MAKERS, f"{operation}: add to MAKERS of tests/api/things.py how a {place} is made"
        maker = IN_ANOTHER_STATE.get(str(operation), MAKERS[place])
        made[name] = await maker(api, made)
    return made


def unknown(operation: Operation) -> dict[str, str]:
    """Values that name nothing."""
    return {name: str(uuid4()) for name in operation.path_parameters}
