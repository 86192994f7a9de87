"""A small HTTP client for tests: the standard library's, in a thread, one connection kept alive."""

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def errors(self) -> list[tuple[list[Any], str]]:
        return [(error["loc"], error["msg"]) for error in self.json["errors"]]


class HttpClient:
    """One connection, one request at a time. `key` goes into X-API-Key; cookies are kept and sent back."""

    def __init__(self, host: str, port: int, key: str | None = None) -> None:
        self.cookies: dict[str, str] = {}
        self.host = host
        self.port = port
        self.key = key
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        self._turn = asyncio.Lock()

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.request("GET", path, headers=headers)

    async def post(self, path: str, value: object = None, **headers: str) -> Answer:
        return await self.request("POST", path, value, headers=headers)

    async def request(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`value` is sent as JSON, `body` as it is; underscores in header names stand for hyphens."""
        sent = {name.replace("_", "-"): text for name, text in (headers or {}).items()}
        if self.key is not None:
            sent.setdefault("X-API-Key", self.key)
        if self.cookies:
            sent.setdefault("Cookie", "; ".join(f"{name}={text}" for name, text in self.cookies.items()))
        if value is not None:
            body = json.dumps(value).encode()
            sent.setdefault("Content-Type", "application/json")
        async with self._turn:
            answer = await asyncio.to_thread(self._exchange, method, path, body, sent)
        if (given := answer.headers.get("set-cookie")) is not None:
            for name, morsel in SimpleCookie(given).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        try:
            self._connection.request(method, path, body, dict(headers))
            response = self._connection.getresponse()
            content = response.read()
        except OSError:
            self._connection.close()  # the next request begins afresh
            raise
        return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, content)

    def close(self) -> None:
        self._connection.close()
