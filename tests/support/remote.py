"""Redrive's API as a client sees it: the calls that tests make again and again, over real HTTP."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from support.http import Answer, HttpClient

QUICK = {"kind": "list", "delays_s": [0.2], "max_retries": 20}


class Remote:
    """One caller with one connection."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self.http = HttpClient(host, port, key)

    def close(self) -> None:
        self.http.close()

    async def get(self, path: str, **query: str) -> Any:
        answer = await self.http.get(f"{path}?{urlencode(query)}" if query else path)
        assert answer.status == 200, answer.body
        return answer.json

    async def post(self, path: str, value: object = None) -> Any:
        answer = await self.http.post(path, value)
        assert answer.status in (200, 201, 202), answer.body
        return answer.json

    async def patch(self, path: str, value: object) -> Any:
        answer = await self.http.request("PATCH", path, value)
        assert answer.status == 200, answer.body
        return answer.json

    async def policy(self, name: str, **spec: object) -> None:
        answer = await self.http.request("PUT", f"/v1/policies/{name}", spec)
        assert answer.status == 200, answer.body

    async def workflow(self, name: str, *steps: Mapping[str, Any], **fields: object) -> dict[str, Any]:
        answer = await self.http.request("PUT", f"/v1/workflows/{name}", {"steps": list(steps), **fields})
        assert answer.status == 200, answer.body
        made: dict[str, Any] = answer.json
        return made

    async def run(self, workflow: str, input: object = None, **headers: str) -> str:
        """The id of a run that was begun."""
        answer = await self.http.post(f"/v1/workflows/{workflow}/runs", {"input": input}, **headers)
        assert answer.status == 202, answer.body
        run_id: str = answer.json["run_id"]
        return run_id

    async def run_of(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = await self.get(f"/v1/runs/{run_id}")
        return run

    async def endpoint(self, url: str, **fields: object) -> dict[str, Any]:
        """An endpoint that gets only what is addressed to it."""
        given = {"name": f"endpoint {uuid4().hex}", "url": url, "event_types": [f"only.{uuid4().hex}"], **fields}
        made: dict[str, Any] = await self.post("/v1/endpoints", given)
        return made

    async def relay(self, **fields: object) -> dict[str, Any]:
        made: dict[str, Any] = await self.post(
            "/v1/endpoints", {"name": f"relay {uuid4().hex}", "kind": "relay", **fields}
        )
        return made

    async def webhook(self, endpoint: Mapping[str, Any], body: bytes = b"{}", **headers: str) -> str:
        """Sent to the address of a relay, without a key; the id of the event that it became."""
        answer = await self.try_webhook(endpoint, body, **headers)
        assert answer.status == 202, answer.body
        event_id: str = answer.json["event_id"]
        return event_id

    async def try_webhook(self, endpoint: Mapping[str, Any], body: bytes = b"{}", **headers: str) -> Answer:
        path = "/v1/hooks/" + str(endpoint["hook_url"]).rpartition("/")[2]
        return await self.http.request("POST", path, body=body, headers=headers)

    async def deliveries(self, endpoint_id: str) -> list[dict[str, Any]]:
        """Oldest first."""
        listed = await self.get(f"/v1/endpoints/{endpoint_id}/deliveries", limit="250")
        return list(reversed(listed["data"]))

    async def try_event(self, endpoint_id: str, payload: object = None, **headers: str) -> Answer:
        body = {"event_type": "invoice.paid", "payload": payload or {"n": 1}, "endpoint_id": endpoint_id}
        return await self.http.post("/v1/events", body, **headers)

    async def event(self, endpoint_id: str, payload: object = None, **headers: str) -> str:
        answer = await self.try_event(endpoint_id, payload, **headers)
        assert answer.status == 202, answer.body
        event_id: str = answer.json["event_id"]
        return event_id

    async def batch(self, endpoint_id: str, count: int, payload: object = None) -> list[str]:
        """The ids of events that were accepted together."""
        ids = [str(uuid4()) for _ in range(count)]
        events = [
            {"event_id": id, "event_type": "invoice.paid", "payload": payload or {"n": 1}, "endpoint_id": endpoint_id}
            for id in ids
        ]
        answer = await self.post("/v1/events/batch", events)
        assert (answer["accepted"], answer["rejected"]) == (count, [])
        return ids

    async def status(self, event_id: str) -> dict[str, Any]:
        status: dict[str, Any] = await self.get(f"/v1/events/{event_id}/status")
        return status

    async def attempts(self, event_id: str) -> list[dict[str, Any]]:
        attempts: list[dict[str, Any]] = (await self.get(f"/v1/events/{event_id}/attempts"))["data"]
        return attempts

    async def log(self, log_id: str) -> dict[str, Any]:
        log: dict[str, Any] = await self.get(f"/v1/logs/{log_id}")
        return log

    async def delivered(self, event_id: str, *, within_s: float = 30.0) -> dict[str, Any]:
        return await self._comes_to(event_id, "delivered", within_s)

    async def failed(self, event_id: str, *, within_s: float = 30.0) -> dict[str, Any]:
        return await self._comes_to(event_id, "failed", within_s)

    async def _comes_to(self, event_id: str, wanted: str, within_s: float) -> dict[str, Any]:
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within_s):
                while (status := await self.status(event_id))["status"] != wanted:
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(f"not {wanted} within {within_s} s: {status}") from None
        return status

    async def entry(self, endpoint_id: str, *, within_s: float = 30.0) -> dict[str, Any]:
        """The one entry of an endpoint in the retry queue that waits for its time, once it is there."""
        return await self._one("/v1/retry-queue", within_s, endpoint_id=endpoint_id, status="pending")

    async def letter(self, endpoint_id: str, *, state: str = "open", within_s: float = 30.0) -> dict[str, Any]:
        """The one dead letter of an endpoint, once it is there."""
        return await self._one("/v1/dead-letters", within_s, endpoint_id=endpoint_id, state=state)

    async def _one(self, path: str, within_s: float, **query: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(within_s):
                while not (rows := (await self.get(path, **query))["data"]):
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(f"nothing at {path} {query} within {within_s} s") from None
        (row,) = rows
        found: dict[str, Any] = row
        return found


async def post_alone(host: str, port: int, key: str, path: str, value: object) -> Answer:
    """A request on a connection of its own, without a thread: any number of them wait side by side."""
    body = json.dumps(value).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: test\r\nx-api-key: {key}\r\nconnection: close\r\n"
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        said = await reader.read()
    finally:
        writer.close()
    first, *lines = said.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, said.partition(b"\r\n\r\n")[2])


def at(text: str) -> datetime:
    """A time of the API."""
    return datetime.fromisoformat(text)


def seconds_between(early: str, late: str) -> float:
    return (at(late) - at(early)).total_seconds()
