"""What people are shown of answers, URLs and long lists: secrets hidden, limits said."""

import json
from datetime import timedelta
from itertools import product

import asyncpg
import pytest

from redrive.api import shapes
from redrive.api.evidence import redacted_answer
from redrive.core.address import BadUrl, parse_target
from redrive.core.decide import Die, Reason, RetryIn
from redrive.core.outcome import Category, Failure
from redrive.core.ports import Exchange
from redrive.core.redact import redact_url

from .conftest import URL, Api

FAILURE = Failure(Category.SERVER_ERROR, "HTTP 500", status_code=500)
MANY = 10_001


async def _died_of(api: Api, body: bytes, *, truncated: bool = False) -> str:
    await api.event()
    (job,) = await api.claim()
    exchange = Exchange(URL, None, 500, None, body, truncated)
    await api.settle(job, FAILURE, Die(Reason.EXHAUSTED, Category.SERVER_ERROR), exchange)
    return str(job.id)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"token": "canary", "n": 12345678901234567890123}', '{"token":"[redacted]","n":12345678901234567890123}'),
        (b'{"token": "canary", "n": [1.10, 1E+2, -0.0]}', '{"token":"[redacted]","n":[1.10,1E+2,-0.0]}'),
        (b'[{"card_number": 4111111111111111, "a": "Bearer canary"}]', None),
        (b'{"a": "password=canary", "a": 1}', None),
        (b"<p>password=canary</p>", None),
        ("é token: canary é".encode()[:-1], None),
        (b'{ "ok" :true }', '{ "ok" :true }'),
        (b"busy", "busy"),
        (b"", ""),
    ],
)
async def test_an_answer_is_shown_everywhere_without_its_secrets(api: Api, body: bytes, shown: str | None) -> None:
    await api.endpoint()
    task_id = await _died_of(api, body, truncated=body.endswith(b"\xc3"))
    detail = await api.owner.get(f"/v1/dead-letters/{task_id}")
    log = await api.owner.get(f"/v1/logs/{task_id}")
    attempts = await api.owner.get(f"/v1/events/{detail.json['event_id']}/attempts")
    texts = [
        detail.json["attempts"][0]["response"]["body"],
        log.json["attempts"][0]["response"]["body"],
        log.json["response"]["body"],
        attempts.json["data"][0]["response"]["body"],
    ]
    assert len(set(texts)) == 1
    assert shown is None or texts[0] == shown
    for answer in (detail, log, attempts):
        assert b"canary" not in answer.body
        assert b"4111111111111111" not in answer.body
    stored = await api.context.engine_db._pool.fetchval(
        "SELECT response_body FROM redrive.attempt WHERE task_id = $1", task_id
    )
    assert stored == body


async def test_the_numbers_of_a_payload_are_shown_as_they_were_written(api: Api) -> None:
    await api.endpoint()
    numbers = b"[1.10, 1E+2, 12345678901234567890123, 0.30000000000000000001]"
    sent = b'{"event_type": "n", "payload": {"token": "canary", "n": ' + numbers + b"}}"
    event_id = (await api.owner.request("POST", "/v1/events", body=sent)).json["event_id"]
    for job in await api.claim():
        await api.die(job)
    letter = next(
        letter for letter in (await api.owner.get("/v1/dead-letters")).json["data"] if letter["event_id"] == event_id
    )
    shown = b'"token":"[redacted]","n":' + numbers.replace(b" ", b"")
    assert shown in (await api.owner.get(f"/v1/dead-letters/{letter['id']}")).body
    assert shown in (await api.viewer.get(f"/v1/events/{event_id}")).body


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert redacted_answer(b"\xff\x00", truncated=False) == "base64:/wA="
    assert redacted_answer(b"\xff\x00", truncated=True) == "base64:/wA="


async def test_the_bodies_of_the_oldest_tries_give_way_where_there_are_too_many(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event()
    for _ in range(10):
        (job,) = await api.claim()
        exchange = Exchange(URL, None, 500, None, b"x" * 65_536)
        await api.settle(job, FAILURE, RetryIn(timedelta(0)), exchange)
    tries = (await api.owner.get(f"/v1/events/{event_id}/attempts")).json["data"]
    assert [one["number"] for one in tries] == list(range(1, 11))
    whole = shapes.MAX_ANSWERS_BYTES // 65_536
    assert [one["response"]["body"] is None for one in tries] == [True] * (10 - whole) + [False] * whole
    assert [one["response"]["truncated"] for one in tries] == [True] * (10 - whole) + [False] * whole


async def test_of_very_many_tries_the_newest_are_shown_and_the_rest_admitted(api: Api) -> None:
    await api.endpoint()
    event_id = await api.event()
    (job,) = await api.claim()
    await api.fail(job, retry_in_s=0)
    (job,) = await api.claim()
    engine = await _as_engine(api)
    try:
        for first, last, has_more in ((1, 998, False), (999, 999, True)):  # one more is open, and one has failed
            await engine.execute(
                "INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, started_at, ended_at)"
                " SELECT org_id, task_id, -n, 0, 1, 'released', started_at - n * interval '1 s', started_at"
                "   FROM redrive.attempt, generate_series($2::int, $3::int) AS n WHERE task_id = $1 AND fence = 1",
                job.id,
                first,
                last,
            )
            answer = (await api.owner.get(f"/v1/events/{event_id}/attempts")).json
            log = (await api.owner.get(f"/v1/logs/{job.id}")).json
            total = None if has_more else 1_000
            assert answer["pagination"] == {"limit": 1000, "cursor": None, "has_more": has_more, "total_count": total}
            for tries in (answer["data"], log["attempts"]):
                assert len(tries) == 1_000
                assert [one["result"] for one in tries[-2:]] == ["failed", "open"]
                assert [one["started_at"] for one in tries] == sorted(one["started_at"] for one in tries)
    finally:
        await engine.close()


async def test_a_count_beyond_the_limit_is_not_said(own_api: Api) -> None:
    api = own_api
    await api.endpoint()
    await api.event("many")
    (job,) = await api.claim()
    await api.fail(job)
    engine = await _as_engine(api)
    try:
        await engine.execute(
            "INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, due_at,"
            " received_at, begun_at, updated_at, attempts) SELECT org_id, gen_random_uuid(), event_id, policy_id, kind,"
            " 'nobody', 'waiting', 'many', due_at, received_at, begun_at, updated_at, 1"
            " FROM redrive.task, generate_series(2, $2::int)"
            " WHERE id = $1",
            job.id,
            MANY,
        )
        path = "/v1/retry-queue?limit=1&event_type=many"
        first = (await api.owner.get(path)).json["pagination"]
        second = (await api.owner.get(f"{path}&cursor={first['cursor']}")).json["pagination"]
        assert (first["total_count"], second["total_count"]) == (None, None)
        dead = "UPDATE redrive.task SET event_type = 'one', state = 'dead', reason = 'skipped' WHERE id = $1"
        await engine.execute(dead, job.id)
        assert (await api.owner.get(path)).json["pagination"]["total_count"] == MANY - 1
        await engine.execute("UPDATE redrive.task SET state = 'dead', reason = 'skipped' WHERE state = 'waiting'")
        await engine.execute(
            "INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, event_type, reason, category,"
            " fingerprint, error_message, failed_at, generation, created_at, updated_at)"
            " SELECT org_id, id, 'open', kind, event_id, event_type, 'skipped', 'unknown', '', '', due_at, 0, due_at,"
            " due_at FROM redrive.task WHERE org_id = $1",
            api.org_id,
        )
        for query, total in (
            ("kind=http", None),
            ("event_type=many", MANY - 1),
            ("event_type=one", 1),
            ("state=open", MANY),
        ):
            answer = (await api.owner.get(f"/v1/dead-letters?limit=1&{query}")).json
            assert answer["pagination"]["total_count"] == total, query
    finally:
        await engine.close()


_PARTS = (
    ["http", "https", "HTTPS"],
    ["x.org", "x.org:8443", "[2001:db8::1]", "[2001:db8::1]:80", "203.0.113.7"],
    ["", "/", "/hooks/secret", "/a/hooks/s'e\"secret/b", "/@scope/x", "/hooks", "/hooks//x", "//hooks/a:secret"],
    ["", "?", "#", "?a=secret#c", "#c?a=b@secret", "/c?hooks/d=/hooks/secret", "?/hooks/e"],
)


async def test_a_url_is_hidden_alike_in_python_and_in_sql(shared_api: Api) -> None:
    spelled = (f"{scheme}://{host}{path}{rest}" for scheme, host, path, rest in product(*_PARTS))
    urls = [url for url in spelled if _can_be_stored(url)]
    rows = await shared_api.sql("SELECT u, redrive.redact_url(u) AS told FROM unnest($1::text[]) AS u", urls)
    assert {row["u"]: row["told"] for row in rows} == {url: redact_url(url) for url in urls}
    assert not any("secret" in row["told"] for row in rows)
    assert len(urls) > 100


def _can_be_stored(url: str) -> bool:
    try:
        parse_target(url)
    except BadUrl:
        return False
    return True


async def test_openapi_says_the_limit_of_a_correlation_id(shared_api: Api) -> None:
    schema = json.loads((await shared_api.nobody.get("/openapi.json")).body)
    event = schema["components"]["schemas"]["NewEvent"]["properties"]
    assert event["correlation_id"]["anyOf"][0]["maxLength"] == 128


async def _as_engine(api: Api) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(api.url, server_settings={"role": "redrive_engine"})
