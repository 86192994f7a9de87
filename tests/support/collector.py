"""A collector of traces for tests: a real OTLP receiver over HTTP, which decodes what comes.

async with open_collector() as collector:
    ... a process with REDRIVE_OTEL_ENDPOINT=collector.url ...
    spans = await collector.wait_for(3)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from support.receiver import Received, Receiver, open_receiver


@dataclass(frozen=True, slots=True)
class Collected:
    """A span as it arrived. Ids are hexadecimal; `kind` and `status` are OTLP's numbers."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    exceptions: list[dict[str, Any]]
    links: list[str]


class Collector:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    @property
    def url(self) -> str:
        return self.receiver.url_of("")

    def spans(self) -> list[Collected]:
        return [span for request in self.receiver.requests for span in _spans(request)]

    def text(self) -> str:
        """All that it was sent, for whoever looks for something that must not be in it."""
        return repr([request.headers for request in self.receiver.requests]) + repr(self.spans())

    async def wait_for(self, count: int, *, within_s: float = 20.0, **named: str) -> list[Collected]:
        """All spans, once there are that many; of one trace or name if that is said."""
        async with asyncio.timeout(within_s):
            while True:
                found = [s for s in self.spans() if all(getattr(s, name) == value for name, value in named.items())]
                if len(found) >= count:
                    return found
                await self.receiver.wait_for(len(self.receiver.requests) + 1, within_s=within_s)


@asynccontextmanager
async def open_collector() -> AsyncIterator[Collector]:
    async with open_receiver() as receiver:
        yield Collector(receiver)


def _spans(request: Received) -> list[Collected]:
    assert request.path == "/v1/traces", request.path
    sent = ExportTraceServiceRequest.FromString(request.body)
    return [
        Collected(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.status.code,
            _read(span.attributes),
            _read(group.resource.attributes),
            [_read(event.attributes) for event in span.events if event.name == "exception"],
            [link.span_id.hex() for link in span.links],
        )
        for group in sent.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _read(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    kind = pair.value.WhichOneof("value")
    return getattr(pair.value, kind) if kind else None
