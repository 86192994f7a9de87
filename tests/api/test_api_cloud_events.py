"""CloudEvents over HTTP: three modes, one meaning, and a place for everything that is wrong."""

import json
from base64 import b64encode
from typing import Any
from uuid import uuid4

import pytest

from redrive.store.events import MAX_PAYLOAD_BYTES
from support.http import Answer

from .conftest import Api

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


def _event(**changed: object) -> dict[str, Any]:
    """One that is good, with these attributes changed; None takes one away."""
    given = {"id": uuid4().hex, "source": "/tests", "type": "invoice.paid", "specversion": "1.0", **changed}
    return {name: value for name, value in given.items() if value is not None}


async def _structured(api: Api, event: object, content_type: str = STRUCTURED, **headers: str) -> Answer:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    sent = {"content-type": content_type, **headers}
    return await api.owner.request("POST", "/v1/events", body=body, headers=sent)


async def _binary(api: Api, body: bytes = b"{}", content_type: str | None = None, **attributes: object) -> Answer:
    headers = {f"ce-{name}": str(value) for name, value in _event(**attributes).items()}
    if content_type is not None:
        headers["content-type"] = content_type
    return await api.owner.request("POST", "/v1/events", body=body, headers=headers)


async def _stored(api: Api, event_id: str) -> Any:
    async with api.context.app_db.tenant(api.org_id) as session:
        return await session.fetchrow("get_event", api.org_id, event_id)


async def test_the_attributes_become_the_event(api: Api) -> None:
    endpoint = await api.endpoint(event_types=["none"])
    event = _event(
        type="stock.low",
        time="2026-01-31T10:00:00.5+01:00",
        data={"n": 1},
        correlationid="c-7",
        redriveendpoint=endpoint["id"],
        redrivepolicy="triggers",
        redriveordering="sku 7",
        count=3,
        urgent=True,
        note=None,
    )
    made = await _structured(api, event)
    assert made.status == 202, made.body
    assert (made.json["status"], made.json["deduplicated"]) == ("queued", False)
    shown = (await api.owner.get(f"/v1/events/{made.json['event_id']}")).json
    assert (shown["event_type"], shown["timestamp"], shown["payload"]) == (
        "stock.low",
        "2026-01-31T09:00:00.500000Z",
        {"n": 1},
    )
    assert (shown["endpoint_id"], shown["policy"], shown["ordering_key"]) == (endpoint["id"], "triggers", "sku 7")
    assert shown["correlation_id"] == "c-7"
    (job,) = await api.claim()
    assert json.loads(job.headers or "") == {
        "ce-correlationid": "c-7",
        "ce-count": "3",
        "ce-id": event["id"],
        "ce-source": "/tests",
        "ce-specversion": "1.0",
        "ce-time": "2026-01-31T10:00:00.5+01:00",
        "ce-type": "stock.low",
        "ce-urgent": "true",
    }


async def test_the_same_event_in_another_mode_is_the_same_event(api: Api) -> None:
    attributes = {"id": "7", "source": "/one place", "subject": "é%"}
    first = await _structured(api, _event(**attributes, data={"n": 1}))
    batch = await _structured(api, [_event(**attributes, data={"n": 1})], BATCH)
    binary = await _binary(api, b'{"n": 1}', "application/json", id="7", source="/one%20place", subject="%C3%A9%25")
    assert (first.status, first.json["deduplicated"]) == (202, False)
    assert batch.json == {"accepted": 0, "deduplicated": 1, "rejected": []}
    assert (binary.status, binary.json) == (202, {**first.json, "deduplicated": True})


@pytest.mark.parametrize("changed", [{"data": {"n": 2}}, {"subject": "other"}, {"datacontenttype": "text/json"}])
async def test_the_same_source_and_id_with_anything_else_is_a_conflict(
    shared_api: Api, changed: dict[str, Any]
) -> None:
    event = _event(data={"n": 1}, subject="this")
    assert (await _structured(shared_api, event)).status == 202
    answer = await _structured(shared_api, {**event, **changed})
    assert (answer.status, answer.errors[0][0]) == (409, ["body", "id"])
    batch = (await _structured(shared_api, [{**event, **changed}], BATCH)).json
    assert batch["rejected"][0]["errors"][0]["loc"] == ["body", 0, "id"]


async def test_the_same_id_of_another_source_or_org_is_another_event(api: Api) -> None:
    one = (await _structured(api, _event(id="1", source="/a"))).json["event_id"]
    two = (await _structured(api, _event(id="1", source="/b"))).json["event_id"]
    body = json.dumps(_event(id="1", source="/a")).encode()
    theirs = await api.stranger.request("POST", "/v1/events", body=body, headers={"content-type": STRUCTURED})
    assert len({one, two, theirs.json["event_id"]}) == 3


@pytest.mark.parametrize(
    ("content_type", "body", "stored_type", "shown"),
    [
        ("text/plain; charset=utf-8", "grüß".encode(), "text/plain; charset=utf-8", "grüß"),
        ("application/xml", b"<a/>", "application/xml", "<a/>"),
        ("application/octet-stream", b"\x00\xff", "application/octet-stream", "base64:AP8="),
        ("application/json", b'{"a": 1.0,  "a":2}', "application/json", {"a": 2}),
        (None, b"[1, 2]", "application/json", [1, 2]),
        (None, b"not json", "application/octet-stream", "not json"),
        ("application/json", b"", "application/json", ""),
    ],
)
async def test_a_body_is_kept_byte_for_byte_with_its_type(
    shared_api: Api, content_type: str | None, body: bytes, stored_type: str, shown: object
) -> None:
    answer = await _binary(shared_api, body, content_type)
    assert answer.status == 202, answer.body
    row = await _stored(shared_api, answer.json["event_id"])
    assert (row["body"], row["content_type"]) == (body, stored_type)
    assert (await shared_api.owner.get(f"/v1/events/{answer.json['event_id']}")).json["payload"] == shown


@pytest.mark.parametrize(
    ("event", "body", "content_type"),
    [
        (_event(data=[1, "é"]), b'[1, "\\u00e9"]', "application/json"),
        (_event(data="text"), b'"text"', "application/json"),
        (_event(data="text", datacontenttype="text/plain"), b"text", "text/plain"),
        (_event(data={"a": 1}, datacontenttype="text/plain"), b'{"a": 1}', "text/plain"),
        (_event(data_base64="AP8="), b"\x00\xff", "application/octet-stream"),
        (_event(data_base64="e30="), b"{}", "application/json"),
        (_event(data_base64="AP8=", datacontenttype="image/png"), b"\x00\xff", "image/png"),
        (_event(), b"", "application/json"),
    ],
)
async def test_structured_data_is_stored_as_the_bytes_it_stands_for(
    shared_api: Api, event: dict[str, Any], body: bytes, content_type: str
) -> None:
    answer = await _structured(shared_api, event)
    assert answer.status == 202, answer.body
    row = await _stored(shared_api, answer.json["event_id"])
    assert (row["body"], row["content_type"]) == (body, content_type)


@pytest.mark.parametrize(
    ("changed", "name", "message"),
    [
        ({"id": None}, "id", "is needed"),
        ({"source": None}, "source", "is needed"),
        ({"type": None}, "type", "is needed"),
        ({"id": ""}, "id", "must not be empty"),
        ({"type": "a" * 201}, "type", "at most 200"),
        ({"type": "a\nb"}, "type", "control characters"),
        ({"specversion": "0.3"}, "specversion", "must be 1.0"),
        ({"Colour": "red"}, "Colour", "lower-case letters and digits"),
        ({"a_b": "red"}, "a_b", "lower-case letters and digits"),
        ({"a" * 65: "red"}, "a" * 64, "lower-case letters and digits"),
        ({"time": "yesterday"}, "time", "a time with a zone"),
        ({"time": "2026-01-31T09:00:00"}, "time", "a time with a zone"),
        ({"time": "0001-01-01T00:00:00Z"}, "time", "between the years"),
        ({"colour": 1.5}, "colour", "must be a text"),
        ({"colour": {"r": 1}}, "colour", "must be a text"),
        ({"colour": 2**31}, "colour", "32 bits"),
        ({"data": 1, "data_base64": "AA=="}, "data_base64", "together"),
        ({"data_base64": "A"}, "data_base64", "base64"),
        ({"data_base64": 5}, "data_base64", "base64"),
        ({"datacontenttype": "nonsense"}, "datacontenttype", "media type"),
        ({"datacontenttype": "text/plain\r\nx: y", "data": "a"}, "datacontenttype", "media type"),
        ({"redriveendpoint": "seven"}, "redriveendpoint", "UUID"),
        ({"redriveendpoint": str(uuid4())}, "redriveendpoint", "no such endpoint"),
        ({"redrivepolicy": "none such"}, "redrivepolicy", "no such policy"),
        ({"redrivepolicy": "a" * 101}, "redrivepolicy", "at most 100"),
        ({"correlationid": "a" * 129}, "correlationid", "at most 128"),
    ],
)
async def test_what_is_wrong_is_named_with_its_place(
    shared_api: Api, changed: dict[str, Any], name: str, message: str
) -> None:
    answer = await _structured(shared_api, _event(**changed))
    assert answer.status == 422, answer.body
    ((place, said),) = answer.errors
    assert place == ["body", name]
    assert message in said
    good = _event()
    batch = (await _structured(shared_api, [good, _event(**changed)], BATCH)).json
    assert batch["accepted"] == 1
    assert [(r["index"], r["errors"][0]["loc"]) for r in batch["rejected"]] == [(1, ["body", 1, name])]


@pytest.mark.parametrize(
    ("attributes", "name", "message"),
    [
        ({"id": None}, "ce-id", "is needed"),
        ({"specversion": "2.0"}, "ce-specversion", "must be 1.0"),
        ({"subject": "100%"}, "ce-subject", "%25"),
        ({"subject": "%zz"}, "ce-subject", "%25"),
        ({"subject": "%ff"}, "ce-subject", "UTF-8"),
        ({"subject": "%0a"}, "ce-subject", "control"),
        ({"datacontenttype": "text/plain"}, "ce-datacontenttype", "Content-Type"),
        ({"a-b": "1"}, "ce-a-b", "lower-case"),
        ({"data": "1"}, "ce-data", "no attribute"),
        ({"redriveendpoint": str(uuid4())}, "ce-redriveendpoint", "no such endpoint"),
    ],
)
async def test_a_bad_header_is_named(shared_api: Api, attributes: dict[str, Any], name: str, message: str) -> None:
    answer = await _binary(shared_api, **attributes)
    assert answer.status == 422, answer.body
    ((place, said),) = answer.errors
    assert place == (["body"] if name == "ce-data" else ["header", name])
    assert message in said


async def test_a_quoted_header_is_unquoted(api: Api) -> None:
    await api.endpoint()
    assert (await _binary(api, subject='"a \\"b\\" %41"')).status == 202
    (job,) = await api.claim()
    assert json.loads(job.headers or "")["ce-subject"] == "a%20%22b%22%20A"


@pytest.mark.parametrize(
    ("body", "content_type", "place"),
    [
        (b"{", "application/json", ["body"]),
        (b'{"a": [1, "\\ud800"]}', "application/problem+json", ["body", "a", 1]),
        (b"{}", "nonsense", ["header", "content-type"]),
    ],
)
async def test_what_is_called_json_must_be_json(
    shared_api: Api, body: bytes, content_type: str, place: list[object]
) -> None:
    answer = await _binary(shared_api, body, content_type)
    assert (answer.status, answer.errors[0][0]) == (422, place)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", ["body"]),
        (b"[]", ["body"]),
        (b'{"id": "\xff"}', ["body", "id"]),
        (b'{"id": "\\ud800", "source": "a", "type": "b", "specversion": "1.0"}', ["body", "id"]),
        (b'{"id": "1", "source": "a", "type": "b", "specversion": "1.0", "data": "\\ud800"}', ["body", "data"]),
        (
            b'{"id": "1", "source": "a", "type": "b", "specversion": "1.0", "data": "\\ud800", '
            b'"datacontenttype": "text/plain"}',
            ["body", "data"],
        ),
        (
            b'{"id": "1", "source": "a", "type": "b", "specversion": "1.0", "data": ' + b"[" * 65 + b"]" * 65 + b"}",
            None,
        ),
        (b'{"data": ' + b"[" * 3_000 + b"]" * 3_000 + b"}", None),
    ],
)
async def test_a_broken_document_is_refused(shared_api: Api, body: bytes, place: list[object] | None) -> None:
    answer = await _structured(shared_api, body)
    assert answer.status == 422, answer.body
    assert place is None or answer.errors[0][0] == place


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"[1,", b"\xff", b'[{"id": NaN}', b"[" * 100_000])
async def test_a_broken_batch_is_refused_whole(shared_api: Api, body: bytes) -> None:
    answer = await _structured(shared_api, body, BATCH)
    assert (answer.status, answer.errors[0][0][0]) == (422, "body")


async def test_the_limits_hold(shared_api: Api) -> None:
    large = b"x" * MAX_PAYLOAD_BYTES
    assert (await _binary(shared_api, large, "text/plain")).status == 202
    assert (await _binary(shared_api, large + b"x", "text/plain")).status == 413
    encoded = {"datacontenttype": "a/b", "data_base64": b64encode(large).decode()}
    assert (await _structured(shared_api, _event(**encoded))).status == 202
    encoded["data_base64"] = b64encode(large + b"x").decode()
    assert (await _structured(shared_api, _event(**encoded))).status == 413
    assert (await _structured(shared_api, [_event()] * 1_000, BATCH)).json["accepted"] == 1
    assert (await _structured(shared_api, [_event()] * 1_001, BATCH)).status == 413
    assert (await _structured(shared_api, _event(**{f"a{n}": "1" for n in range(65)}))).status == 422
    assert "8192 bytes" in (await _structured(shared_api, _event(subject="€" * 2_000))).errors[0][1]


async def test_a_batch_is_taken_at_both_paths_and_a_single_event_at_one(shared_api: Api) -> None:
    body = json.dumps([_event(), _event(), {"id": 7}]).encode()
    for path in ("/v1/events", "/v1/events/batch"):
        answer = await shared_api.owner.request("POST", path, body=body, headers={"content-type": f"{BATCH}; x=y"})
        assert (answer.status, [r["index"] for r in answer.json["rejected"]]) == (202, [2])
    headers = {"content-type": STRUCTURED}
    single = await shared_api.owner.request("POST", "/v1/events/batch", body=b"{}", headers=headers)
    assert (single.status, BATCH in single.json["detail"]) == (415, True)
    xml = await shared_api.owner.request(
        "POST", "/v1/events", body=b"<a/>", headers={"content-type": "application/cloudevents+xml"}
    )
    assert (xml.status, STRUCTURED in xml.json["detail"]) == (415, True)


async def test_plain_json_is_read_as_before_however_it_is_labelled(shared_api: Api) -> None:
    body = b'{"event_type": "a", "payload": 1}'
    for headers in ({"content-type": "text/plain"}, {"content-type": "application/cloud"}, {"ce-id": "1"}):
        answer = await shared_api.owner.request("POST", "/v1/events", body=body, headers=headers)
        assert answer.status == 202, headers


async def test_an_idempotency_key_adds_nothing_to_its_source_and_id(shared_api: Api) -> None:
    first = await _structured(shared_api, _event(id="keyed"), **{"idempotency-key": "k"})
    again = await _structured(shared_api, _event(id="keyed"), **{"idempotency-key": "another"})
    other = await _structured(shared_api, _event(id="keyed too"), **{"idempotency-key": "k"})
    assert first.json["event_id"] == again.json["event_id"] != other.json["event_id"]


async def test_who_may_not_produce_may_not_send_them(shared_api: Api) -> None:
    body = json.dumps(_event()).encode()
    for client, status in ((shared_api.staff, 403), (shared_api.viewer, 403), (shared_api.nobody, 401)):
        answer = await client.request("POST", "/v1/events", body=body, headers={"content-type": STRUCTURED})
        assert answer.status == status
