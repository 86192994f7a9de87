"""Bad input: a clear error with its place, nothing stored, nothing broken for the next request."""

import asyncio
import json
from typing import Any

import pytest

from redrive.api import body as body_module
from redrive.api.event_input import MAX_BATCH_BYTES, MAX_EVENT_BYTES
from redrive.store.events import MAX_PAYLOAD_BYTES

from .conftest import URL, Api

GOOD = {"event_type": "a", "payload": 1}


async def _stored(api: Api) -> int:
    total: int = (await api.owner.get("/v1/events?limit=1")).json["pagination"]["total_count"]
    return total


@pytest.mark.parametrize(
    ("body", "loc", "message"),
    [
        (b'{"event_type":"a","payload":NaN}', ["body", "payload"], "NaN"),
        (b'{"event_type":"a","payload":{"x":[Infinity]}}', ["body", "payload", "x", 0], "Infinity"),
        (b'{"event_type":"a","payload":{"x":1e999}}', ["body", "payload", "x"], "out of range"),
        (b'{"event_type":"a","payload":' + b"7" * 5_000 + b"}", ["body", "payload"], "digits"),
        (b'{"event_type":"a","payload":"\\ud800"}', ["body", "payload"], "surrogate"),
        (b'{"event_type":"\\udfff","payload":1}', ["body", "event_type"], "surrogate"),
        (b'{"event_type":"a","payload":"\xff"}', ["body", "payload"], "UTF-8"),
        (b'{"event_type":"\xff","payload":1}', ["body"], "UTF-8 at byte 15"),
        (b'{"event_type":"a","payload":' + b"[" * 65 + b"]" * 65 + b"}", ["body", "payload"] + [0] * 64, "deeper"),
        (
            b'{"event_type":"a","payload":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
            ["body", "payload"] + [0] * 63,
            "deeper",
        ),
        (b'{"event_type":"a","payload":}', ["body"], "byte 28"),
        (b'{"event_type":"a","payload":1', ["body"], "byte 29"),
        (b"", ["body"], "byte 0"),
        (b"[]", ["body"], "object"),
        (b'{"payload":1}', ["body", "event_type"], "missing"),
        (b'{"event_type":"a"}', ["body", "payload"], "missing"),
        (b'{"event_type":"","payload":1}', ["body", "event_type"], ">= 1"),
        (b'{"event_type":"' + b"a" * 201 + b'","payload":1}', ["body", "event_type"], "<= 200"),
        (b'{"event_type":"a\\u0000b","payload":1}', ["body", "event_type"], "control"),
        (b'{"event_type":"a\\nb","payload":1}', ["body", "event_type"], "control"),
        (b'{"event_type":"a\\u0085b","payload":1}', ["body", "event_type"], "control"),
        (b'{"event_type":5,"payload":1}', ["body", "event_type"], "str"),
        (b'{"event_type":"a","payload":1,"priority":1}', ["body", "priority"], "unknown"),
        (b'{"event_type":"a","payload":1,"event_id":"seven"}', ["body", "event_id"], "UUID"),
        (b'{"event_type":"a","payload":1,"endpoint_id":7}', ["body", "endpoint_id"], "uuid"),
        (b'{"event_type":"a","payload":1,"timestamp":"yesterday"}', ["body", "timestamp"], "datetime"),
        (b'{"event_type":"a","payload":1,"timestamp":"2024-01-01T00:00:00"}', ["body", "timestamp"], "timezone"),
        (
            b'{"event_type":"a","payload":1,"timestamp":"0001-01-01T00:00:00+23:00"}',
            ["body", "timestamp"],
            "between the years",
        ),
        (
            b'{"event_type":"a","payload":1,"timestamp":"9999-12-31T23:59:59.999999Z"}',
            ["body", "timestamp"],
            "between the years",
        ),
        (b'{"event_type":"a","payload":1,"external_system":"\\u0000"}', ["body", "external_system"], "control"),
        (b'{"event_type":"a","payload":1,"policy":"\\u0007"}', ["body", "policy"], "control"),
    ],
)
async def test_an_unusable_event_is_refused_with_its_place(
    shared_api: Api, body: bytes, loc: list[Any], message: str
) -> None:
    before = await _stored(shared_api)
    answer = await shared_api.owner.request("POST", "/v1/events", body=body)
    assert answer.status == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.errors[0][0] == loc
    assert message in answer.errors[0][1]
    assert answer.json["correlation_id"] == answer.headers["x-correlation-id"]
    assert await _stored(shared_api) == before


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "tab\there"])
async def test_an_idempotency_key_that_cannot_be_one_is_refused(shared_api: Api, key: str) -> None:
    answer = await shared_api.owner.post("/v1/events", GOOD, Idempotency_Key=key)
    assert (answer.status, answer.errors[0][0]) == (422, ["header", "Idempotency-Key"])


@pytest.mark.parametrize(
    "body", [b"{}", b'[{"event_type":"a","payload":1}', b"[NaN", b"[1] 2", b"[1,]", b'["\xff"]', b""]
)
async def test_a_batch_that_is_no_array_is_refused_whole(shared_api: Api, body: bytes) -> None:
    assert (await shared_api.owner.request("POST", "/v1/events/batch", body=body)).status == 422


async def test_an_unusable_element_says_where_in_the_batch_it_lies(shared_api: Api) -> None:
    body = b'[{"event_type":"a","payload":1},{"event_type":"a","payload":{"x":1e999}},{"event_type":"a","payload":NaN}]'
    answer = await shared_api.owner.request("POST", "/v1/events/batch", body=body.replace(b"NaN", b"0"))
    assert answer.json["accepted"] == 2
    assert answer.json["rejected"][0]["errors"][0]["loc"] == ["body", 1, "payload", "x"]
    whole = await shared_api.owner.request("POST", "/v1/events/batch", body=body)
    assert whole.status == 202
    assert whole.json["rejected"][1]["errors"][0]["loc"] == ["body", 2, "payload"]


async def test_an_array_of_millions_is_refused_without_being_built(shared_api: Api) -> None:
    answer = await shared_api.owner.request("POST", "/v1/events/batch", body=b"[" + b"1," * 3_000_000 + b"1]")
    assert answer.status == 413
    blank = await shared_api.owner.request(
        "POST", "/v1/events/batch", body=b"\n" * 3_000_000, headers={"Content-Type": "application/x-ndjson"}
    )
    assert blank.status == 413


async def test_a_payload_of_the_largest_size_is_taken_and_one_byte_more_is_not(shared_api: Api) -> None:
    largest = b'"' + b"x" * (MAX_PAYLOAD_BYTES - 2) + b'"'
    taken = await shared_api.owner.request("POST", "/v1/events", body=b'{"event_type":"a","payload":%b}' % largest)
    assert taken.status == 202
    more = b'{"event_type":"a","payload":%b}' % (b'"x' + largest[1:])
    assert (await shared_api.owner.request("POST", "/v1/events", body=more)).status == 413
    batch = await shared_api.owner.request("POST", "/v1/events/batch", body=b"[%b]" % more)
    assert "larger than" in batch.json["rejected"][0]["errors"][0]["msg"]


@pytest.mark.parametrize(
    ("path", "limit_bytes"),
    [("/v1/events", MAX_EVENT_BYTES), ("/v1/events/batch", MAX_BATCH_BYTES), ("/v1/endpoints", 524_288)],
)
async def test_a_body_too_large_is_refused_by_its_declared_length(shared_api: Api, path: str, limit_bytes: int) -> None:
    reader, writer = await asyncio.open_connection(shared_api.host, shared_api.port)
    writer.write(_head(shared_api, path, f"content-length: {limit_bytes + 1}"))
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)  # before a single byte of the body was sent
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    writer.close()


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch", "/v1/endpoints"])
async def test_a_body_too_large_without_a_length_is_refused_while_it_streams(shared_api: Api, path: str) -> None:
    reader, writer = await asyncio.open_connection(shared_api.host, shared_api.port)
    writer.write(_head(shared_api, path, "transfer-encoding: chunked"))
    sent = 0

    async def stream() -> None:
        nonlocal sent
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        try:
            while True:
                writer.write(chunk)
                await writer.drain()
                sent += 0x10000
        except ConnectionError:
            return

    streaming = asyncio.create_task(stream())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert answer.startswith(b"HTTP/1.1 413 ")
    await asyncio.wait_for(streaming, 10)  # the server hangs up: an endless body is not read for ever
    writer.close()


@pytest.mark.parametrize("path", ["/v1/session", "/v1/endpoints", "/v1/dead-letters/bulk", "/v1/nothing"])
async def test_of_who_is_not_known_no_large_body_is_read(shared_api: Api, path: str) -> None:
    """What is being read takes room from all: nobody fills it without a key."""
    for line, start in ((f"content-length: {2**17}", b""), ("transfer-encoding: chunked", b"8000\r\n" + b" " * 0x8000)):
        for key in ("", "X-API-Key: rdk_unknown\r\n"):
            reader, writer = await asyncio.open_connection(shared_api.host, shared_api.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: test\r\n{key}{line}\r\n\r\n".encode() + start)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)  # the body is not whole
            assert answer.startswith(b"HTTP/1.1 401 "), (line, key)
            assert b"connection: close" in answer
            writer.close()


async def test_a_body_that_never_ends_is_given_up(shared_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection(shared_api.host, shared_api.port)
    writer.write(_head(shared_api, "/v1/events", "content-length: 100") + b"{")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"HTTP/1.1 408 ")
    writer.close()


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch", "/v1/endpoints"])
async def test_a_body_that_never_begins_is_given_up(
    shared_api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(body_module, "BODY_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection(shared_api.host, shared_api.port)
    writer.write(_head(shared_api, path, "content-length: 100"))
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_client_that_leaves_in_the_middle_disturbs_nobody(shared_api: Api) -> None:
    _, writer = await asyncio.open_connection(shared_api.host, shared_api.port)
    writer.write(_head(shared_api, "/v1/events", "content-length: 100") + b"{")
    await writer.drain()
    writer.close()
    assert (await shared_api.owner.post("/v1/events", GOOD)).status == 202


def _head(api: Api, path: str, *lines: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: test", f"x-api-key: {api.owner.key}", "content-type: application/json"]
    return "\r\n".join([*head, *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/events?sort=payload",
        "/v1/events?status=lost",
        "/v1/events?limit=0",
        "/v1/events?limit=251",
        "/v1/events?limit=many",
        "/v1/events?event_type=%00",
        "/v1/events?cursor=tampered",
        "/v1/events?cursor=" + "A" * 600,
        "/v1/events?cursor=%FF%FE",
        "/v1/endpoints?name=x",
        "/v1/retry-queue?sort=colour",
        "/v1/retry-queue?status=failed",
        "/v1/retry-queue?endpoint_id=7",
        "/v1/dead-letters?state=deleted",
        "/v1/dead-letters?reason=tired",
        "/v1/dead-letters?since=someday",
        "/v1/dead-letters?since=1700000000",
        "/v1/dead-letters?until=-0.5e3",
        "/v1/dead-letters?until=0001-01-01T00:00:00%2B10:00",
        "/v1/dead-letters?colour=red",
        "/v1/dead-letters?category=tired",
        "/v1/dead-letters/groups?category=tired",
        "/v1/dead-letters?reason=exhausted&reason=permanent",
        "/api/integrations/retry-queue?limit=1&%6Cimit=2",
        "/v1/policies?x=1",
        "/v1/policies/integration/preview?x=1",
        "/v1/logs/01890000-0000-7000-8000-000000000000?x=1",
    ],
)
async def test_a_query_that_is_not_understood_is_refused(shared_api: Api, path: str) -> None:
    answer = await shared_api.owner.get(path)
    assert answer.status == 400
    assert answer.json["errors"][0]["loc"][0] == "query"


async def test_a_batch_of_lines_without_its_type_is_told_which(shared_api: Api) -> None:
    refused = await shared_api.owner.request(
        "POST", "/v1/events/batch", body=b'{"event_type": "a", "payload": 1}\n' * 2
    )
    ((loc, message),) = refused.errors
    assert (refused.status, loc, "application/x-ndjson" in message) == (422, ["body"], True)


async def test_a_post_with_a_query_is_refused(shared_api: Api) -> None:
    assert (await shared_api.owner.post("/v1/events?sync=true", GOOD)).status == 400


def _headers(headers: dict[str, str]) -> dict[str, object]:
    return {"name": "n", "url": URL, "headers": headers}


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"url": URL}, "name", "needed"),
        ({"name": "", "url": URL}, "name", "at least 1"),
        ({"name": "a\x00b", "url": URL}, "name", "control"),
        ({"name": "n"}, "url", "needed"),
        ({"name": "n", "url": "ftp://example.com/"}, "url", "http://"),
        ({"name": "n", "url": "http://user:pw@example.com/"}, "url", "user name"),
        ({"name": "n", "url": "http://2130706433/"}, "url", "four decimal"),
        ({"name": "n", "url": "http://127.0.0.1:8000/"}, "url", "REDRIVE_ALLOW_NETWORKS"),
        ({"name": "n", "url": "http://[::ffff:169.254.169.254]/"}, "url", "metadata"),
        ({"name": "n", "url": URL, "kind": "relay"}, "url", "a relay has none"),
        ({"name": "n", "url": URL, "verify": {"scheme": "github", "secret": "x"}}, "verify", "of kind relay"),
        ({"name": "n", "exchange": "orders", "kind": "rabbitmq"}, "kind", "belongs to another org"),
        ({"name": "n", "url": URL, "exchange": "orders"}, "exchange", "of kind rabbitmq"),
        ({"name": "n", "kind": "relay", "routing_key": "k"}, "routing_key", "of kind rabbitmq"),
        ({"name": "n", "url": URL, "exchange": "x" * 256}, "exchange", "255"),
        ({"name": "n", "url": URL, "routing_key": "ü" * 128}, "routing_key", "longer than 255 bytes"),
        ({"name": "n", "url": URL, "exchange": "a\x00"}, "exchange", "control"),
        ({"name": "n", "url": URL, "kind": "pigeon"}, "kind", "http"),
        ({"name": "n", "url": URL, "event_types": []}, "event_types", "at least 1"),
        ({"name": "n", "url": URL, "event_types": "a"}, "event_types", "list"),
        ({"name": "n", "url": URL, "policy": "nightly"}, "policy", "no such policy"),
        ({"name": "n", "url": URL, "timeout_s": 0}, "timeout_s", "greater"),
        ({"name": "n", "url": URL, "timeout_s": -5}, "timeout_s", "greater"),
        ({"name": "n", "url": URL, "timeout_s": 1e9}, "timeout_s", "less"),
        ({"name": "n", "url": URL, "timeout_s": "30"}, "timeout_s", "number"),
        ({"name": "n", "url": URL, "max_in_flight": 0}, "max_in_flight", "greater"),
        ({"name": "n", "url": URL, "rate_per_s": 0}, "rate_per_s", "greater"),
        ({"name": "n", "url": URL, "ordered": 1}, "ordered", "boolean"),
        ({"name": "n", "url": URL, "ca_pem": "not a certificate"}, "ca_pem", "PEM"),
        ({"name": "n", "url": URL, "ca_pem": "kein Schlüssel"}, "ca_pem", "PEM"),
        ({"name": "n", "url": URL, "colour": "red"}, "colour", "unknown field"),
        (_headers({"X-A": "a\r\nb"}), "headers", "line breaks"),
        (_headers({"X-A": "a\x00"}), "headers", "line breaks"),
        (_headers({"X-A": " a"}), "headers", "blanks"),
        (_headers({"X-A": "é"}), "headers", "ASCII"),
        (_headers({"X A": "a"}), "headers", "name"),
        (_headers({"X-A:": "a"}), "headers", "name"),
        (_headers({"": "a"}), "headers", "name"),
        (_headers({"Host": "a"}), "headers", "itself"),
        (_headers({"Content-Length": "1"}), "headers", "itself"),
        (_headers({"Transfer-Encoding": "chunked"}), "headers", "itself"),
        (_headers({"Connection": "close"}), "headers", "itself"),
        (_headers({"Webhook-Id": "a"}), "headers", "itself"),
        (_headers({"redrive-attempt": "1"}), "headers", "itself"),
        (_headers({"User-Agent": "a"}), "headers", "itself"),
        (_headers({"X-A": "1", "x-a": "2"}), "headers", "twice"),
        (_headers({f"X-{n}": "v" * 900 for n in range(10)}), "headers", "8192 bytes"),
        (_headers({f"X-{n}": "v" for n in range(51)}), "headers", "at most 50"),
    ],
)
async def test_an_unusable_endpoint_is_refused_with_its_place(
    shared_api: Api, given: dict[str, object], field: str, message: str
) -> None:
    answer = await shared_api.owner.post("/v1/endpoints", given)
    assert answer.status == 422
    assert answer.errors[0][0][:2] == ["body", field]
    assert message in answer.errors[0][1]


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        (b'{"name": "n", "timeout_s": NaN}', ["body", "timeout_s"]),
        (b'{"name": "n", "timeout_s": 1e999}', ["body", "timeout_s"]),
        (b'{"name": "\xff"}', ["body"]),
        (b'{"name": "\\ud800"}', ["body", "name"]),
        (b'{"headers": ' + b"[" * 100 + b"]" * 100 + b"}", ["body", "headers"] + [0] * 63),
        (b'{"name": ', ["body"]),
        (b"[1]", ["body"]),
    ],
)
async def test_the_other_routes_read_json_as_strictly(shared_api: Api, body: bytes, loc: list[Any]) -> None:
    answer = await shared_api.owner.request("POST", "/v1/endpoints", body=body)
    assert (answer.status, answer.errors[0][0]) == (422, loc)


@pytest.mark.parametrize(
    ("spec", "loc"),
    [
        ({"kind": "list", "delays_s": [-1]}, ["body", "delays_s", 0]),
        ({"kind": "list", "delays_s": [1e12]}, ["body", "delays_s", 0]),
        ({"kind": "list", "delays_s": []}, ["body", "delays_s"]),
        ({"kind": "list", "delays_s": [1], "jitter": 2}, ["body", "jitter"]),
        ({"kind": "fibonacci"}, ["body", "kind"]),
        ({}, ["body", "kind"]),
        ({"kind": "list"}, ["body", "delays_s"]),
        ({"kind": "list", "delays_s": [1], "colour": "red"}, ["body", "colour"]),
        ({"kind": "list", "delays_s": [1], "max_retries": None}, ["body", "max_age_s"]),
        ({"kind": "list", "delays_s": [1], "classify": {"retry": ["tired"]}}, ["body", "classify", "retry", 0]),
        ({"kind": "list", "delays_s": [1], "name": "other"}, ["body", "name"]),
    ],
)
async def test_an_unusable_policy_is_refused_with_its_place(
    shared_api: Api, spec: dict[str, object], loc: list[Any]
) -> None:
    answer = await shared_api.owner.request("PUT", "/v1/policies/mine", spec)
    assert (answer.status, answer.errors[0][0]) == (422, loc)
    assert "None" not in answer.errors[0][1]


async def test_everything_wrong_with_a_policy_is_said_at_once(shared_api: Api) -> None:
    spec = {"kind": "list", "delays_s": [-1, -2], "jitter": 7}
    answer = await shared_api.owner.request("PUT", "/v1/policies/mine", spec)
    assert len(answer.errors) == 3


@pytest.mark.parametrize("name", ["%00", "a%20b", ".hidden", "x" * 101])
async def test_a_policy_has_a_plain_name(shared_api: Api, name: str) -> None:
    put = await shared_api.owner.request("PUT", f"/v1/policies/{name}", {"kind": "manual"})
    assert (put.status, put.errors[0][0]) == (422, ["path", "name"])
    assert (await shared_api.owner.get(f"/v1/policies/{name}")).status == 404


async def test_a_body_is_json_whatever_it_is_called(shared_api: Api) -> None:
    body = json.dumps({"kind": "manual"}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await shared_api.owner.request("PUT", "/v1/policies/from-curl", body=body, headers=form)
    assert answer.status == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nothing", 404), ("PUT", "/v1/events", 405)])
async def test_a_wrong_path_or_method_is_a_problem_too(shared_api: Api, method: str, path: str, status: int) -> None:
    answer = await shared_api.owner.request(method, path)
    assert (answer.status, answer.json["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
