"""Bulk actions over HTTP: begun by ids or by a filter, waited for, watched, paused, resumed, cancelled, refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args
from uuid import uuid4

import pytest

from redrive.api import auth, operation_desk
from redrive.api.bulk_input import DeadLetterFilterIn, RetryQueueFilterIn
from redrive.api.queries import DeadLettersQuery, RetryQueueQuery
from redrive.api.schemas.operations import BulkResult, Operation
from redrive.core.operations import MAX_IDS
from redrive.engine.operations import run_operations
from redrive.store.operation_steps import OperationSteps
from redrive.store.retry_queue import RetryQueueFilter
from support.http import Answer

from .conftest import Api

QUEUE = "/v1/retry-queue"
ALIAS = "/api/integrations/retry-queue/bulk-retry"
LETTERS = "/v1/dead-letters/bulk"


@asynccontextmanager
async def runner(api: Api) -> AsyncIterator[None]:
    """What the API's process runs beside the routes."""
    running = asyncio.create_task(run_operations(OperationSteps(api.context.engine_db, api.context.clock)))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def retrying(api: Api, count: int, **fields: Any) -> list[str]:
    """Tasks that have failed once."""
    for number in range(count):
        await api.event(payload=number, **fields)
    jobs = await api.claim()
    for job in jobs:
        await api.fail(job, retry_in_s=300)
    return [str(job.id) for job in jobs]


async def dead(api: Api, count: int, **fields: Any) -> list[str]:
    for number in range(count):
        await api.event(payload=number, **fields)
    jobs = await api.claim()
    for job in jobs:
        await api.die(job)
    return [str(job.id) for job in jobs]


async def ended(api: Api, operation_id: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            shape: dict[str, Any] = (await api.owner.get(f"/v1/operations/{operation_id}")).json
            if shape["finished_at"] is not None:
                return shape
            await asyncio.sleep(0.02)


async def settle(api: Api, *, failures: int, count: int) -> None:
    """Carry so many tries out, as a worker would; the first of them fail."""
    done = 0
    async with asyncio.timeout(10):
        while done < count:
            for job in await api.claim():
                await (api.fail(job, retry_in_s=300) if done < failures else api.succeed(job))
                done += 1
            await asyncio.sleep(0.02)


async def test_a_bulk_retry_is_an_operation_with_progress_and_a_message(api: Api) -> None:
    await api.endpoint()
    ids = await retrying(api, 5)
    made = await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": ids, "because": "it is back"})
    assert made.status == 202, made.body
    operation = made.json
    Operation.model_validate(operation)
    assert operation["operation_id"] == operation["id"]
    assert (operation["action"], operation["subject"], operation["state"]) == ("retry", "retry_queue", "running")
    assert (operation["total"], operation["done"], operation["because"]) == (5, 0, "it is back")
    assert operation["by"].startswith("key:")
    assert (operation["progress"], operation["message"]) == ("0/5 succeeded, 0/5 failed", None)
    entries = (await api.owner.get(QUEUE)).json["data"]
    assert {entry["id"] for entry in entries} == set(ids)
    assert all(entry["next_retry_at"] <= entry["updated_at"] for entry in entries)  # all at once
    await settle(api, failures=2, count=5)
    async with runner(api):
        shape = await ended(api, operation["id"])
    assert (shape["state"], shape["succeeded"], shape["failed"], shape["done"]) == ("completed", 3, 2, 5)
    assert shape["progress"] == "3/5 succeeded, 2/5 failed"
    assert shape["message"] == "Bulk retry complete. 3 succeeded, 2 failed."


@pytest.mark.parametrize("path", [f"{QUEUE}/bulk-retry?wait=true", ALIAS])
async def test_who_waits_gets_the_result(api: Api, path: str) -> None:
    await api.endpoint()
    ids = await retrying(api, 5)
    answer, _ = await asyncio.gather(api.owner.post(path, {"ids": ids}), settle(api, failures=2, count=5))
    assert answer.status == 200, answer.body
    BulkResult.model_validate(answer.json)
    assert answer.json == {"succeeded": 3, "failed": 2}
    shape = (await api.owner.get(f"/v1/operations/{answer.headers['x-operation-id']}")).json
    assert shape["message"] == "Bulk retry complete. 3 succeeded, 2 failed."


@pytest.mark.parametrize("path", [f"{QUEUE}/bulk-retry?wait=true", ALIAS, f"{ALIAS}?wait=true"])
async def test_a18_who_waits_too_long_is_told_what_is_pending(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(operation_desk, "WAIT_WITHIN_S", 0.3)
    await api.endpoint()
    answer = await api.owner.post(path, {"retryIds": await retrying(api, 2)})
    assert (answer.status, answer.json) == (200, {"succeeded": 0, "failed": 0, "pending": 2})
    BulkResult.model_validate(answer.json)
    shape = (await api.owner.get(f"/v1/operations/{answer.headers['x-operation-id']}")).json
    assert shape["state"] == "running"


async def test_a18_ids_have_one_name_at_a_time(api: Api) -> None:
    ids = [str(uuid4())]
    assert (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": ids, "retryIds": ids})).status == 422


async def test_a18_what_the_automatic_retry_delivered_before_its_turn_has_succeeded(api: Api) -> None:
    await api.endpoint()
    ids = await retrying(api, 3)
    await api.owner.post(f"{QUEUE}/{ids[0]}/retry")
    for job in await api.claim():
        await api.succeed(job)
    answer = await api.owner.post(ALIAS, {"ids": [ids[0], str(uuid4())]})
    assert answer.json == {"succeeded": 1, "failed": 1}
    items = (await api.owner.get(f"/v1/operations/{answer.headers['x-operation-id']}/items")).json["data"]
    assert [item["state"] for item in items] == ["succeeded", "failed"]


async def test_a_bulk_skip_moves_to_the_dead_letters(api: Api) -> None:
    await api.endpoint()
    await retrying(api, 3)
    await retrying(api, 1, event_type="order.placed")
    chosen = {"filter": {"event_type": "invoice.paid"}, "because": "customer left"}
    answer = await api.owner.post(f"{QUEUE}/bulk-skip?wait=true", chosen)
    assert (answer.status, answer.json) == (200, {"succeeded": 3, "failed": 0})
    letters = (await api.owner.get("/v1/dead-letters?reason=skipped")).json["data"]
    assert {letter["event_type"] for letter in letters} == {"invoice.paid"}
    shape = (await api.owner.get(f"/v1/operations/{answer.headers['x-operation-id']}")).json
    assert shape["message"] == "Bulk skip complete. 3 succeeded, 0 failed."
    assert (shape["filter"], shape["total"]) == ({"event_type": "invoice.paid"}, 3)


@pytest.mark.parametrize("action", ["resolve", "ignore", "delete"])
async def test_dead_letters_are_closed_in_bulk(api: Api, action: str) -> None:
    await api.endpoint()
    ids = await dead(api, 2)
    answer = await api.owner.post(f"{LETTERS}?wait=true", {"action": action, "ids": [*ids, str(uuid4())]})
    assert answer.json == {"succeeded": 2, "failed": 1}
    shape = (await api.owner.get(f"/v1/operations/{answer.headers['x-operation-id']}")).json
    assert shape["message"] == f"Bulk {action} complete. 2 succeeded, 1 failed."
    assert (await api.owner.get("/v1/dead-letters")).json["data"] == []


async def test_closed_letters_are_reopened_in_bulk(api: Api) -> None:
    await api.endpoint()
    ids = await dead(api, 3)
    await api.owner.post(f"{LETTERS}?wait=true", {"action": "ignore", "ids": ids[:2]})
    given = {"action": "reopen", "filter": {"state": "ignored"}}
    assert (await api.owner.post(f"{LETTERS}?wait=true", given)).json == {"succeeded": 2, "failed": 0}
    assert {letter["id"] for letter in (await api.owner.get("/v1/dead-letters")).json["data"]} == set(ids)
    for unclear in ({"event_type": "*"}, {"state": "open"}):
        assert (await api.owner.post(LETTERS, {"action": "reopen", "filter": unclear})).status == 422


async def test_dead_letters_are_redriven_in_their_first_delay_or_at_once(api: Api) -> None:
    await api.endpoint()
    late, soon = await dead(api, 2)
    await api.owner.post(LETTERS, {"action": "retry", "ids": [late]})
    await api.owner.post(LETTERS, {"action": "retry", "filter": {"state": "open"}, "now": True})
    assert [str(job.id) for job in await api.claim()] == [soon]
    queue = {entry["id"]: entry for entry in (await api.owner.get(QUEUE)).json["data"]}
    assert queue[late]["next_retry_at"] is not None


async def test_an_endpoint_is_recovered_from_what_died_since_then(api: Api) -> None:
    first, second = await api.endpoint(event_types=["a"]), await api.endpoint(event_types=["b"])
    (early,) = await dead(api, 1, event_type="a")
    since = (await api.owner.get(f"/v1/dead-letters/{early}")).json["failed_at"]
    await dead(api, 2, event_type="a")
    await dead(api, 1, event_type="b")
    path = f"/v1/endpoints/{first['id']}/recover"
    answer = await api.owner.post(path, {"since": since, "because": "back"})
    assert answer.status == 202, answer.body
    assert (answer.json["total"], answer.json["action"], answer.json["subject"]) == (3, "retry", "dead_letters")
    assert answer.json["filter"]["endpoint_id"] == first["id"]
    replaying = (await api.owner.get("/v1/dead-letters?state=replaying")).json["data"]
    assert {letter["endpoint_id"] for letter in replaying} == {first["id"]}
    after = await api.owner.post(f"/v1/endpoints/{second['id']}/recover", {"since": "2100-01-01T00:00:00Z"})
    assert (after.json["total"], after.json["state"]) == (0, "completed")
    assert after.json["filter"]["failed_since"] == "2100-01-01T00:00:00Z"
    waited = await api.owner.post(f"/v1/endpoints/{second['id']}/recover?wait=true", {"since": "2100-01-01T00:00:00Z"})
    assert (waited.status, waited.json) == (200, {"succeeded": 0, "failed": 0})
    for bad in ({}, {"since": 7.5}, {"since": "yesterday"}, {"since": since, "until": since}):
        assert (await api.owner.post(path, bad)).status == 422, bad
    assert (await api.owner.post(f"/v1/endpoints/{uuid4()}/recover", {"since": since})).status == 404
    assert (await api.stranger.post(path, {"since": since})).status == 404
    assert (await api.viewer.post(path, {"since": since})).status == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"filter": {}},
        {"filter": {"event_type": None}},
        {"ids": []},
        {"ids": None},
        {"ids": "all"},
        {"ids": ["x"]},
        {"ids": [7]},
        {"ids": ["01890000-0000-7000-8000-000000000000"] * 2},
        {"ids": ["01890000-0000-7000-8000-000000000000"], "filter": {"event_type": "a"}},
        {"filter": {"colour": "blue"}},
        {"filter": {"status": "gone"}},
        {"filter": {"event_type": 7}},
        {"filter": {"event_type": "a\x00"}},
        {"filter": {"endpoint_id": "x"}},
        {"filter": [1]},
        {"ids": ["01890000-0000-7000-8000-000000000000"], "why": "x"},
        {"ids": ["01890000-0000-7000-8000-000000000000"], "because": 7},
        [1],
        None,
    ],
)
async def test_a_choice_that_cannot_be_meant_is_refused(shared_api: Api, body: object) -> None:
    for path in (f"{QUEUE}/bulk-retry", f"{QUEUE}/bulk-skip"):
        answer = await shared_api.owner.post(path, body)
        assert answer.status == 422, answer.body
        assert answer.errors
    if isinstance(body, dict):
        assert (await shared_api.owner.post(LETTERS, {**body, "action": "retry"})).status == 422


@pytest.mark.parametrize(
    "extra",
    [
        {"action": "explode"},
        {"action": "resolve", "now": True},
        {"now": 1},
        {"rate_per_s": 0},
        {"rate_per_s": -1},
        {"rate_per_s": 1e9},
        {"rate_per_s": "fast"},
        {"canary": {}},
        {"canary": {"stages": [1, 5]}},
        {"canary": {"stages": [], "max_failure_rate": 0.1}},
        {"canary": {"stages": [5, 5], "max_failure_rate": 0.1}},
        {"canary": {"stages": [0], "max_failure_rate": 0.1}},
        {"canary": {"stages": [101], "max_failure_rate": 0.1}},
        {"canary": {"stages": [1], "max_failure_rate": 2}},
        {"canary": {"stages": list(range(1, 30)), "max_failure_rate": 0.1}},
        {"filter": {"since": "yesterday"}},
        {"filter": {"reason": "boredom"}},
        {"filter": {"state": "deleted"}},
    ],
)
async def test_options_that_cannot_be_meant_are_refused(shared_api: Api, extra: dict[str, object]) -> None:
    chosen = {} if "filter" in extra else {"ids": [str(uuid4())]}
    answer = await shared_api.owner.post(LETTERS, {"action": "retry", **chosen, **extra})
    assert answer.status == 422, answer.body


async def test_an_unknown_action_is_told_which_there_are(shared_api: Api) -> None:
    answer = await shared_api.owner.post(LETTERS, {"action": "explode", "ids": [str(uuid4())]})
    ((place, message),) = answer.errors
    assert place == ["body", "action"]
    assert all(word in message for word in ("retry", "resolve", "ignore", "delete"))


async def test_unknown_parameters_are_refused(shared_api: Api) -> None:
    body = {"ids": [str(uuid4())]}
    for path in (f"{QUEUE}/bulk-retry", f"{QUEUE}/bulk-skip", LETTERS):
        for query in ("wait=maybe", "waits=true"):
            assert (await shared_api.owner.post(f"{path}?{query}", {**body, "action": "retry"})).status == 400, query
    for path in ("/v1/operations?colour=blue", "/v1/operations?state=odd", "/v1/operations?cursor=x"):
        assert (await shared_api.owner.get(path)).status == 400, path


async def test_ids_may_be_as_many_as_promised_and_no_more(api: Api) -> None:
    ids = [str(uuid4()) for _ in range(MAX_IDS + 1)]
    assert (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": ids})).status == 422
    answer = await api.owner.post(f"{QUEUE}/bulk-retry?wait=true", {"ids": ids[:MAX_IDS]})
    assert (answer.json["succeeded"], answer.json["failed"]) == (0, MAX_IDS)


async def test_the_same_key_is_the_same_operation(api: Api) -> None:
    body = {"ids": [str(uuid4())], "because": "once"}
    first = await api.owner.post(f"{QUEUE}/bulk-skip", body, Idempotency_Key="k-1")
    again = await api.owner.post(f"{QUEUE}/bulk-skip", body, Idempotency_Key="k-1")
    assert (again.status, again.json["id"]) == (202, first.json["id"])
    for path, other in (
        (f"{QUEUE}/bulk-skip", {**body, "because": "twice"}),
        (f"{QUEUE}/bulk-skip", {"ids": [str(uuid4())]}),
        (f"{QUEUE}/bulk-retry", body),
    ):
        assert (await api.owner.post(path, other, Idempotency_Key="k-1")).status == 409
    assert (await api.owner.get("/v1/operations")).json["pagination"]["total_count"] == 1


async def test_operations_that_have_not_ended_are_listed_with_whoever_began_them(api: Api) -> None:
    await api.endpoint()
    under_way, paused = [
        (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": await retrying(api, 1)})).json for _ in range(2)
    ]
    await api.owner.post(f"/v1/operations/{paused['id']}/pause")
    ended = await api.owner.post(f"{QUEUE}/bulk-skip?wait=true", {"ids": [str(uuid4())]})
    assert ended.status == 200, ended.body

    async def listed(query: str) -> list[str]:
        answer = (await api.viewer.get(f"/v1/operations?{query}")).json
        assert answer["pagination"]["total_count"] == len(answer["data"])
        return [each["id"] for each in answer["data"]]

    assert await listed("active=true") == [paused["id"], under_way["id"]]
    assert await listed("active=true&state=paused") == [paused["id"]]
    assert await listed("active=false") == [ended.headers["x-operation-id"]]
    assert await listed(f"active=true&by={under_way['by']}") == [paused["id"], under_way["id"]]
    assert await listed("by=key:another") == []
    assert (await api.viewer.get("/v1/operations?active=odd")).status == 400


async def test_operations_are_listed_newest_first(api: Api) -> None:
    made = [(await api.owner.post(f"{QUEUE}/bulk-skip", {"ids": [str(uuid4())]})).json["id"] for _ in range(3)]
    paused = (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": await _one_retrying(api)})).json["id"]
    await api.owner.post(f"/v1/operations/{paused}/pause")
    everything = (await api.owner.get("/v1/operations")).json
    assert [each["id"] for each in everything["data"]] == [paused, *reversed(made)]
    first = (await api.owner.get("/v1/operations?limit=3")).json
    rest = (await api.owner.get(f"/v1/operations?limit=3&cursor={first['pagination']['cursor']}")).json
    assert first["data"] + rest["data"] == everything["data"]
    assert first["pagination"]["total_count"] == 4
    assert [each["id"] for each in (await api.owner.get("/v1/operations?state=paused")).json["data"]] == [paused]
    assert (await api.stranger.get("/v1/operations")).json["data"] == []


async def _one_retrying(api: Api) -> list[str]:
    await api.endpoint()
    return await retrying(api, 1)


async def test_an_operation_is_paused_resumed_and_cancelled(api: Api) -> None:
    ids = await _one_retrying(api)
    path = f"/v1/operations/{(await api.owner.post(f'{QUEUE}/bulk-retry', {'ids': ids})).json['id']}"
    assert (await api.owner.post(f"{path}/resume")).status == 409
    paused = await api.owner.post(f"{path}/pause", {"because": "lunch"})
    assert (paused.status, paused.json["state"]) == (200, "paused")
    again = await api.owner.post(f"{path}/pause")
    assert (again.status, again.json["detail"]) == (409, "The operation is paused: there is nothing to pause.")
    assert (await api.owner.post(f"{path}/resume")).json["state"] == "running"
    cancelled = (await api.owner.post(f"{path}/cancel")).json
    assert (cancelled["state"], cancelled["total"], cancelled["cancelled"]) == ("cancelled", 1, 0)
    assert cancelled["message"] is None  # one is still under way
    await settle(api, failures=0, count=1)
    async with runner(api):
        shape = await ended(api, cancelled["id"])
    assert (shape["state"], shape["succeeded"]) == ("cancelled", 1)
    assert shape["message"] == "Bulk retry cancelled. 1 succeeded, 0 failed, 0 not done."
    for verb in ("pause", "resume", "cancel"):
        assert (await api.owner.post(f"{path}/{verb}")).status == 409
    audit = (await api.owner.get(f"/v1/audit?subject_id={shape['id']}")).json["data"]
    assert [each["action"].partition(".")[2] for each in audit] == ["cancel", "resume", "pause", "create"]
    assert audit[2]["because"] == "lunch"


async def test_what_a_cancelled_operation_never_did_is_counted(api: Api) -> None:
    body = {"action": "ignore", "ids": [str(uuid4()) for _ in range(10)], "rate_per_s": 0.01}
    made = (await api.owner.post(LETTERS, body)).json
    shape = (await api.owner.post(f"/v1/operations/{made['id']}/cancel")).json
    assert (shape["total"], shape["done"], shape["cancelled"]) == (10, 1, 9)
    assert shape["message"] == "Bulk ignore cancelled. 0 succeeded, 1 failed, 9 not done."


async def test_a_canary_pauses_by_itself_and_says_why(api: Api) -> None:
    await api.endpoint()
    ids = await dead(api, 20)
    canary = {"stages": [10, 50], "max_failure_rate": 0.4}
    made = (await api.owner.post(LETTERS, {"action": "retry", "ids": ids, "now": True, "canary": canary})).json
    assert made["canary"] == canary
    async with runner(api):
        await settle(api, failures=1, count=2)
        async with asyncio.timeout(5):
            while (shape := (await api.owner.get(f"/v1/operations/{made['id']}")).json)["state"] != "paused":
                await asyncio.sleep(0.02)
    assert (shape["done"], shape["failed"]) == (2, 1)
    assert "1 of 2 items failed" in shape["note"]
    assert (await api.owner.post(f"/v1/operations/{made['id']}/resume")).json["note"] is None


async def test_roles_and_orgs_are_kept_apart(api: Api) -> None:
    ids = {"ids": [str(uuid4())]}
    made = (await api.owner.post(f"{QUEUE}/bulk-skip", ids)).json
    writes: list[tuple[str, object]] = [
        (f"{QUEUE}/bulk-retry", ids),
        (f"{QUEUE}/bulk-skip", ids),
        (LETTERS, {**ids, "action": "retry"}),
        *((f"/v1/operations/{made['id']}/{verb}", None) for verb in ("pause", "resume", "cancel")),
    ]
    for path, body in writes:
        assert (await api.nobody.post(path, body)).status == 401, path
        for client in (api.staff, api.viewer):
            assert (await client.post(path, body)).status == 403, path
    for path in ("/v1/operations", f"/v1/operations/{made['id']}"):
        assert (await api.viewer.get(path)).status == 200
        assert (await api.nobody.get(path)).status == 401

    def plain(answer: Answer) -> object:
        return {**answer.json, "correlation_id": None}

    for path in ("", "/stream"):
        theirs = await api.stranger.get(f"/v1/operations/{made['id']}{path}")
        unknown = await api.stranger.get(f"/v1/operations/{uuid4()}{path}")
        assert (theirs.status, plain(theirs)) == (404, plain(unknown))
        assert (await api.stranger.get(f"/v1/operations/odd{path}")).status == 404
    for verb in ("pause", "resume", "cancel"):
        assert (await api.stranger.post(f"/v1/operations/{made['id']}/{verb}")).status == 404


def test_bulk_filters_are_those_of_the_lists() -> None:
    for body, query in ((RetryQueueFilterIn, RetryQueueQuery), (DeadLetterFilterIn, DeadLettersQuery)):
        listed = {name: field for name, field in query.model_fields.items() if name not in ("limit", "cursor", "sort")}
        assert set(body.model_fields) == set(listed)
        for name, field in listed.items():
            words = [word for part in (field.annotation, *get_args(field.annotation)) for word in get_args(part)]
            mine = body.model_fields[name].annotation
            taken = [word for part in (mine, *get_args(mine)) for word in get_args(part)]
            assert {w for w in words if isinstance(w, str)} <= {w for w in taken if isinstance(w, str)}, name
    assert set(RetryQueueFilter.__dataclass_fields__) == set(RetryQueueFilterIn.model_fields)


# -- streams -----------------------------------------------------------------------------------------------------------


class Stream:
    """A server-sent stream, read event by event on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self.head = head
        self._reader = reader
        self._writer = writer

    async def read(self) -> tuple[str, Any] | None:
        """The next event, its data read; comments as ("", text); None at the end."""
        async with asyncio.timeout(10):
            text = ""
            while not text.endswith("\n\n"):
                size = int(await self._reader.readline() or b"0", 16)
                text += (await self._reader.readexactly(size + 2))[:-2].decode()
                if size == 0:
                    return None
        if text.startswith(":"):
            return "", text
        name, data = text.rstrip("\n").split("\n")
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def stream(api: Api, operation_id: str) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection(api.host, api.port)
    request = f"GET /v1/operations/{operation_id}/stream HTTP/1.1\r\nhost: test\r\nx-api-key: {api.viewer.key}\r\n\r\n"
    writer.write(request.encode())
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        yield Stream(reader, writer, head)
    finally:
        writer.close()


async def test_a_stream_tells_every_change_and_the_end(api: Api) -> None:
    await api.endpoint()
    ids = await retrying(api, 3)
    made = (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": ids})).json
    async with runner(api), stream(api, made["id"]) as watching:
        assert watching.head.startswith("HTTP/1.1 200")
        assert "content-type: text/event-stream" in watching.head
        first = await watching.read()
        assert first is not None
        assert (first[0], first[1]["done"]) == ("progress", 0)
        await settle(api, failures=1, count=3)
        told = []
        while (event := await watching.read()) is not None:
            told.append(event)
    assert [name for name, _ in told][-1] == "end"
    assert {name for name, _ in told[:-1]} == {"progress"}
    assert told[-1][1] == (await api.owner.get(f"/v1/operations/{made['id']}")).json
    assert told[-1][1]["message"] == "Bulk retry complete. 2 succeeded, 1 failed."


async def test_a_stream_of_an_ended_operation_ends_at_once(api: Api) -> None:
    made = (await api.owner.post(f"{QUEUE}/bulk-skip", {"ids": [str(uuid4())]})).json
    async with stream(api, made["id"]) as watching:
        events = [await watching.read() for _ in range(3)]
    assert [event and event[0] for event in events] == ["progress", "end", None]


async def test_a_stream_says_that_it_is_still_there(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_desk, "HEARTBEAT_S", 0.05)
    made = (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": await _one_retrying(api)})).json
    async with stream(api, made["id"]) as watching:
        events = [await watching.read() for _ in range(3)]
    assert [event and event[0] for event in events] == ["progress", "", ""]


async def test_streams_are_counted_bounded_and_forgotten(own_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_desk, "MAX_STREAMS", 1)
    made = (await own_api.owner.post(f"{QUEUE}/bulk-retry", {"ids": await _one_retrying(own_api)})).json
    async with stream(own_api, made["id"]) as first:
        assert await first.read() is not None
        refused = await own_api.owner.get(f"/v1/operations/{made['id']}/stream")
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        first.close()
        async with asyncio.timeout(5):
            while True:
                async with stream(own_api, made["id"]) as second:
                    if second.head.startswith("HTTP/1.1 200"):
                        return
                await asyncio.sleep(0.02)


async def test_no_org_takes_all_streams_and_all_waiting_from_the_others(
    own_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_desk, "MAX_STREAMS_OF_ORG", 1)
    monkeypatch.setattr(operation_desk, "MAX_WAITING_OF_ORG", 0)
    ids = await _one_retrying(own_api)
    made = await own_api.owner.post(f"{QUEUE}/bulk-retry?wait=true", {"ids": ids})
    assert made.json == {"succeeded": 0, "failed": 0, "pending": 1}  # not waited for
    theirs = (await own_api.stranger.post(f"{QUEUE}/bulk-skip", {"ids": [str(uuid4())]})).json["id"]
    async with stream(own_api, made.headers["x-operation-id"]) as first:
        assert await first.read() is not None
        assert (await own_api.owner.get(f"/v1/operations/{made.headers['x-operation-id']}/stream")).status == 503
        assert (await own_api.stranger.get(f"/v1/operations/{theirs}/stream")).status == 200


async def test_a_stream_ends_with_the_key_that_it_was_opened_with(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_desk, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(auth, "CALLER_TTL_S", 0.05)
    made = (await api.owner.post(f"{QUEUE}/bulk-retry", {"ids": await _one_retrying(api)})).json
    keys = (await api.owner.get("/v1/keys")).json["data"]
    viewer = next(key["id"] for key in keys if key["role"] == "VIEWER")
    async with stream(api, made["id"]) as watching:
        assert [(await watching.read() or ("end",))[0] for _ in range(2)] == ["progress", ""]
        assert (await api.owner.request("DELETE", f"/v1/keys/{viewer}")).status == 204
        async with asyncio.timeout(5):
            while (event := await watching.read()) is not None:
                assert event[0] == ""


async def test_its_items_tell_which_failed_and_why(api: Api) -> None:
    await api.endpoint()
    ids, unknown = await dead(api, 3), str(uuid4())
    answer = await api.owner.post(f"{LETTERS}?wait=true", {"action": "resolve", "ids": [*ids, unknown]})
    path = f"/v1/operations/{answer.headers['x-operation-id']}/items"
    failed = (await api.viewer.get(f"{path}?state=failed")).json["data"]
    assert failed == [{"n": 4, "id": unknown, "state": "failed", "note": "There is no such entry here."}]
    seen: list[str] = []
    query = "limit=2"
    while query:
        page = (await api.viewer.get(f"{path}?{query}")).json
        seen += [item["id"] for item in page["data"]]
        cursor = page["pagination"]["cursor"]
        query = f"limit=2&cursor={cursor}" if cursor else ""
    assert seen == [*ids, unknown]
    assert (await api.owner.get(f"{path}?state=lost")).status == 400
    assert (await api.stranger.get(path)).status == 404


async def test_a_patch_edits_every_payload_on_the_way(api: Api) -> None:
    endpoint = await api.endpoint()
    for payload in ({"amount": 1, "draft": True}, {"amount": 2.50}, "not an object"):
        await api.event(payload=payload)
    jobs = await api.claim()
    for job in jobs:
        await api.die(job)
    asked = {
        "action": "retry",
        "filter": {"endpoint_id": endpoint["id"]},
        "patch": {"currency": "EUR", "draft": None},
        "now": True,
        "because": "the currency was missing",
    }
    operation = (await api.owner.post(LETTERS, asked)).json
    assert operation["patch"] == {"currency": "EUR", "draft": None}
    sent = {job.body for job in await api.claim()}
    assert sent == {b'{"amount":1,"currency":"EUR"}', b'{"amount":2.5,"currency":"EUR"}', b'{"currency":"EUR"}'}
    detail = (await api.owner.get(f"/v1/dead-letters/{jobs[0].id}")).json
    assert detail["payload_snapshot"] == {"amount": 1, "draft": True}
    assert detail["edits"][0]["because"] == "the currency was missing"
    entries = (await api.owner.get("/v1/audit?action=dead_letter.replay")).json["data"]
    assert {entry["subject_id"] for entry in entries} == {str(job.id) for job in jobs}


async def test_what_cannot_be_patched_fails_with_a_note_and_stays_dead(api: Api) -> None:
    await api.endpoint()
    made = await api.owner.request(
        "POST",
        "/v1/events",
        body=b"\xff\x00",
        headers={
            "ce-specversion": "1.0",
            "ce-id": "1",
            "ce-source": "/a",
            "ce-type": "raw.bytes",
            "Content-Type": "application/octet-stream",
        },
    )
    assert made.status == 202, made.body
    (job,) = await api.claim()
    await api.die(job)
    answer = await api.owner.post(f"{LETTERS}?wait=true", {"action": "retry", "ids": [str(job.id)], "patch": {"a": 1}})
    assert answer.json == {"succeeded": 0, "failed": 1}
    items = await api.owner.get(f"/v1/operations/{answer.headers['x-operation-id']}/items")
    assert "not JSON" in items.json["data"][0]["note"]
    assert (await api.owner.get(f"/v1/dead-letters/{job.id}")).json["state"] == "open"


@pytest.mark.parametrize(
    "given",
    [{"action": "resolve", "patch": {"a": 1}}, {"action": "retry", "patch": {}}, {"action": "retry", "patch": 7}],
)
async def test_a_patch_is_an_object_and_goes_with_retries_only(api: Api, given: dict[str, object]) -> None:
    assert (await api.owner.post(LETTERS, {**given, "ids": [str(uuid4())]})).status == 422
