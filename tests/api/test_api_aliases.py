"""Paths that earlier clients know: each is the canonical one under another name."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.api.aliases import ALIASES, meant_by, snake_cased

from .conftest import Api

RETRIES = "/api/integrations/retry-queue"
DEAD = "/api/integrations/dead-letter-queue"


async def test_the_lists_are_the_same_lists(api: Api) -> None:
    await api.endpoint()
    await api.failed_task()
    await api.dead_task()
    for alias, path in ((RETRIES, "/v1/retry-queue"), (DEAD, "/v1/dead-letters")):
        for query in ("", "?limit=1", "?event_type=invoice.paid", "?event_type=other"):
            assert (await api.viewer.get(alias + query)).body == (await api.viewer.get(path + query)).body
        assert (await api.viewer.get(f"{alias}?nonsense=1")).status == 400


async def test_retry_takes_an_entry_of_the_queue_and_a_dead_letter_alike(api: Api) -> None:
    await api.endpoint()
    waiting, dead = await api.failed_task(), await api.dead_task()
    first = await api.owner.post(f"{RETRIES}/{waiting['id']}/retry")
    assert (first.status, first.json["status"], first.json["warning"]) == (200, "pending", "no_worker")
    second = await api.owner.post(f"{RETRIES}/{dead['id']}/retry", {"because": "fixed"})
    shape = second.json
    assert (shape["status"], shape["retry_count"], shape["max_retries"], shape["in_dlq"]) == ("pending", 0, 3, False)
    assert shape["next_retry_at"] is not None


async def test_bulk_retry_takes_dead_letters_named_by_their_ids(api: Api) -> None:
    await api.endpoint()
    waiting, dead = await api.failed_task(), await api.dead_task()
    body = {"ids": [waiting["id"], dead["id"]]}
    made = await api.owner.post("/v1/retry-queue/bulk-retry", body)
    assert (made.status, made.json["total"], made.json["failed"]) == (202, 2, 0)
    stands = [(await api.owner.get(f"/v1/retry-queue/{each['id']}")).json["status"] for each in (waiting, dead)]
    assert stands == ["pending", "pending"]  # no worker is there to begin


async def test_skip_and_delete_do_what_the_canonical_paths_do(api: Api) -> None:
    await api.endpoint()
    entry = await api.failed_task()
    assert (await api.owner.post(f"{RETRIES}/{entry['id']}/skip")).json["in_dlq"] is True
    assert (await api.owner.request("DELETE", f"{DEAD}/{entry['id']}")).status == 204
    assert (await api.owner.get(f"/v1/dead-letters/{entry['id']}")).status == 404


async def test_who_may_not_use_a_path_may_not_use_its_alias(api: Api) -> None:
    await api.endpoint()
    entry = await api.failed_task()
    assert (await api.nobody.get(RETRIES)).status == 401
    assert (await api.viewer.post(f"{RETRIES}/{entry['id']}/skip")).status == 403
    assert (await api.staff.request("DELETE", f"{DEAD}/{entry['id']}")).status == 403
    assert (await api.stranger.post(f"{RETRIES}/{entry['id']}/skip")).status == 404


@pytest.mark.parametrize(
    ("method", "path"), [("POST", RETRIES), ("DELETE", f"{RETRIES}/7/retry"), ("GET", "/api/x"), ("GET", f"{DEAD}/")]
)
def test_what_is_not_in_the_table_is_no_alias(method: str, path: str) -> None:
    assert meant_by(method, path, b"", []) is None


def test_every_alias_leads_to_a_canonical_path_and_keeps_what_is_asked() -> None:
    for alias in ALIASES:
        meant = meant_by(alias.method, alias.path.format(id="an-id"), b"limit=5", [(b"x-api-key", b"a")])
        assert meant is not None
        assert meant.path == alias.means.format(id="an-id")
        assert meant.query.startswith(b"limit=5")


def test_camel_case_and_milliseconds_become_our_words() -> None:
    asked = {
        "mode": "FROM_STEP",
        "fromStepIndex": 2,
        "overrideRetryPolicy": {
            "baseDelayMs": 1500,
            "factor": 2,
            "maxDelayMs": 60000,
            "jitterRatio": 0.25,
            "maxRetries": 5,
        },
        "payload": {"orderId": 7},
    }
    assert json.loads(snake_cased(json.dumps(asked).encode())) == {
        "mode": "FROM_STEP",
        "from_step_index": 2,
        "override_retry_policy": {
            "base_s": 1.5,
            "factor": 2,
            "cap_s": 60,
            "jitter": 0.25,
            "max_retries": 5,
        },
        "payload": {"orderId": 7},
    }


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.recursive(st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _TEXT, st.lists))
def test_a_body_that_is_no_object_stays_as_it_is(value: object) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    assert snake_cased(body) == body


def test_every_alias_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for alias in ALIASES:
        assert f"| `{alias.method} {alias.path}` | `{alias.method} {alias.means}`" in page
