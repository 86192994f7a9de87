"""CloudEvents as their own SDK writes them, through a real `redrive serve`, and read by the SDK where they arrive."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.bindings.http import HTTPMessage
from cloudevents.core.v1.event import CloudEvent

from support.holding import HoldingReceiver
from support.remote import Remote

BATCH = {"content-type": "application/cloudevents-batch+json"}


def _event(endpoint_id: str, data: Any, **attributes: Any) -> CloudEvent:
    given = {
        "id": uuid4().hex,
        "source": "/billing/über uns?a=1&b=100%",
        "type": "invoice.paid",
        "subject": 'a "quoted" name, 7 €',
        "time": datetime(2026, 1, 31, 9, 0, 0, 123456, tzinfo=UTC),
        "dataschema": "https://example.com/schema#1",
        "colour": "blue",
        "redriveendpoint": endpoint_id,
        **attributes,
    }
    return CloudEvent(given, data)


def _batch(event: CloudEvent) -> HTTPMessage:
    return HTTPMessage(BATCH, b"[" + http.to_structured_event(event).body + b"]")


MODES = {"binary": http.to_binary_event, "structured": http.to_structured_event, "batch": _batch}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ({"invoice": 7, "name": "Zoë"}, "application/json"),
        ({"invoice": 7}, "application/vnd.acme+json; charset=utf-8"),
        ("plain text, ümlauts too", "text/plain"),
        (b"\x00\xff\x10 bytes", "application/octet-stream"),
        (None, "application/json"),
    ],
)
async def test_a_receiver_reads_the_event_that_was_sent(
    api: Remote, receiver: HoldingReceiver, mode: str, data: Any, content_type: str
) -> None:
    endpoint = await api.endpoint(receiver.url)
    event = _event(endpoint["id"], data, datacontenttype=content_type)
    message = MODES[mode](event)
    answer = await api.http.request("POST", "/v1/events", body=message.body, headers=message.headers)
    assert answer.status == 202, answer.body
    (received,) = await receiver.wait_for(1)
    read = http.from_http_event(HTTPMessage(dict(received.headers), received.body))
    sent = {name: value for name, value in event.get_attributes().items() if name != "redriveendpoint"}
    assert read.get_attributes() == sent
    assert read.get_data() == data


async def test_the_evidence_shows_what_was_sent(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(receiver.url, headers={"x-tenant": "7"})
    event = _event(endpoint["id"], "some text", datacontenttype="text/plain")
    message = http.to_binary_event(event)
    answer = await api.http.request("POST", "/v1/events", body=message.body, headers=message.headers)
    event_id = answer.json["event_id"]
    await api.delivered(event_id)
    (attempt,) = await api.attempts(event_id)
    shown = attempt["request"]["headers"]
    assert (shown["content-type"], shown["ce-id"], shown["ce-type"]) == ("text/plain", event.get_id(), "invoice.paid")
    assert (shown["ce-colour"], shown["x-tenant"]) == ("[redacted]", "[redacted]")
    assert (await api.log(attempt["task_id"]))["request"]["body"] == "some text"


async def test_an_endpoint_s_own_header_beats_the_attribute(api: Remote, receiver: HoldingReceiver) -> None:
    endpoint = await api.endpoint(receiver.url, headers={"CE-Colour": "red"})
    body = json.dumps(
        {"id": "1", "source": uuid4().hex, "type": "t", "specversion": "1.0", "colour": "blue"}
        | {"redriveendpoint": endpoint["id"]}
    ).encode()
    headers = {"content-type": "application/cloudevents+json"}
    assert (await api.http.request("POST", "/v1/events", body=body, headers=headers)).status == 202
    (received,) = await receiver.wait_for(1)
    assert received.headers["ce-colour"] == "red"
    assert received.body == b""
