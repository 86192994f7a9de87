"""A message's trace and correlation id stay with it: through its retries, its death and its redrive."""

import asyncio
from collections.abc import Iterator

import pytest

from redrive import Message
from redrive.core import trace
from redrive.observe import traces
from redrive.sources.collector import Collector
from redrive.store.dead_messages import REFUSALS, DeadMessagesOf
from support.broker import DEAD, SOURCE, Broker, consuming
from support.collector import open_collector
from support.installation import Installation

CALLER = "00f067aa0ba902b7"
SAMPLED = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{CALLER}-01"


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(traces, "_sink", traces._Sink())
        yield


async def test_a_message_stays_in_its_trace_until_it_is_redriven(
    redrive: Installation, broker: Broker, vhost_url: str
) -> None:
    tries: list[Message] = []

    async def fails(message: Message) -> None:
        tries.append(message)
        raise ConnectionError("the hub is down")

    async with open_collector() as collector:
        async with traces.sent_to(collector.url, share=1.0, service="test", version="1"):
            headers = {"traceparent": SAMPLED, "x-correlation-id": "c-7"}
            async with consuming(vhost_url, fails):
                await broker.publish(SOURCE, {"n": 1}, headers=headers, message_id="m-1")
                await broker.publish(SOURCE, {"n": 2}, message_id="m-2", correlation_id="c-8")
                async with asyncio.timeout(15):
                    while await broker.depth(DEAD) < 2:
                        await asyncio.sleep(0.03)
            book = DeadMessagesOf(redrive.stores.engine, "default", redrive.clock)
            stop = asyncio.Event()
            collecting = asyncio.create_task(Collector([vhost_url], [DEAD], book, refusals=REFUSALS).run(stop))
            async with asyncio.timeout(15):
                while len(letters := (await redrive.api.get("/v1/dead-letters"))["data"]) < 2:
                    await asyncio.sleep(0.03)
            stop.set()
            await collecting
            for letter in letters:
                await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
            await redrive.work()
        returned = {message.message_id: message for message in await broker.taken(SOURCE)}
        spans = collector.spans()

    processed = [span for span in spans if span.name == "process"]
    of_caller = [span for span in processed if span.trace_id == trace.trace_of(SAMPLED)]
    assert [span.parent_id for span in of_caller] == [CALLER] * 4
    assert sorted(span.attributes["redrive.attempt"] for span in of_caller) == [1, 2, 3, 4]
    of_ours = [span for span in processed if span not in of_caller]
    assert {(span.trace_id, span.parent_id) for span in of_ours[1:]} == {(of_ours[0].trace_id, of_ours[0].span_id)}
    assert {message.traceparent for message in tries} == {f"00-{span.trace_id}-{span.span_id}-01" for span in processed}
    assert {message.correlation_id for message in tries} == {"c-7", "c-8"}

    delivered = {span.attributes["messaging.message.conversation_id"]: span for span in spans if span.name == "deliver"}
    assert delivered["c-7"].trace_id == trace.trace_of(SAMPLED)
    assert delivered["c-8"].trace_id == of_ours[0].trace_id
    for message_id, correlation_id in (("m-1", "c-7"), ("m-2", "c-8")):
        sent, span = returned[message_id], delivered[correlation_id]
        assert sent.headers["traceparent"] == f"00-{span.trace_id}-{span.span_id}-01"
    assert returned["m-1"].headers["x-correlation-id"] == "c-7"
    assert returned["m-2"].correlation_id == "c-8"
