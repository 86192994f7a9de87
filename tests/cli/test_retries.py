"""`redrive retries`, `redrive endpoints update` and `redrive policy set`."""

import json
from typing import Any
from uuid import uuid4

import pytest

from redrive.core.decide import AwaitPerson

from .command import redrive
from .test_dead import actions_on
from .world import BROKEN, World


async def test_the_retry_queue_is_listed_and_filtered(world: World) -> None:
    job = await world.retrying()
    ended = await redrive("retries", "list", url=world.url)
    heading, line = ended.out.splitlines()
    assert heading.split()[:3] == ["ID", "EVENT", "TYPE"]
    assert line.split()[0] == str(job.id)
    assert "1 / 3" in line
    entry = (await redrive("retries", "list", "--json", url=world.url)).object
    expected = {"id": str(job.id), "status": "pending", "retry_count": 1, "max_retries": 3, "in_dlq": False}
    assert {name: entry[name] for name in expected} == expected

    async def listed(*words: str) -> int:
        return len((await redrive("retries", "list", "--json", *words, url=world.url)).objects)

    for words, count in ((("--endpoint", "billing"), 1), (("--status", "in_progress"), 0), (("--q", "503"), 1)):
        assert await listed(*words) == count, words
    assert (await redrive("retries", "list", "--event-type", "other", url=world.url)).err == (
        "No entries match this filter.\n"
    )
    assert (await redrive("retries", "list", "--status", "dead", url=world.url)).code == 2


async def test_a_manual_entry_is_retried_by_hand_and_the_audit_knows(world: World) -> None:
    await world.accept(policy="manual")
    job = await world.claim_one()
    await world.settle(job, BROKEN, AwaitPerson())
    assert (await redrive("retries", "list", "--json", url=world.url)).object["next_retry_at"] is None
    ended = await redrive("retries", "retry", str(job.id), "--because", "it is back", url=world.url)
    assert (ended.code, ended.out, ended.err) == (0, "", "1 due now.\n")
    ((actor, action, because),) = await actions_on(world, job.id)
    assert (actor.partition(":")[0], action, because) == ("cli", "task.retry", "it is back")
    again = await world.claim_one()
    assert (again.id, again.attempts) == (job.id, 1)


async def test_entries_are_skipped_and_what_cannot_be_is_told(world: World) -> None:
    job, unknown = await world.retrying(), uuid4()
    ended = await redrive("retries", "skip", str(job.id), str(unknown), "--json", url=world.url)
    assert ended.code == 1
    assert {one["id"]: one["done"] for one in ended.objects} == {str(job.id): True, str(unknown): False}
    letter = (await redrive("dead", "list", "--json", url=world.url)).object
    assert (letter["id"], letter["reason"]) == (str(job.id), "skipped")
    again = await redrive("retries", "retry", str(job.id), url=world.url)
    assert again.code == 1
    assert "redrive dead retry" in again.err


async def test_all_of_a_filter_are_acted_on_and_all_of_the_org_only_when_confirmed(world: World) -> None:
    ids = {str((await world.retrying()).id) for _ in range(3)}
    refused = await redrive("retries", "skip", "--all", url=world.url)
    assert refused.code == 1
    assert "--yes-all" in refused.err
    for words in ((), ("--all", next(iter(ids))), (next(iter(ids)), "--q", "503")):
        assert (await redrive("retries", "skip", *words, url=world.url)).code == 2
    retried = await redrive("retries", "retry", "--all", "--yes-all", "--json", url=world.url)
    assert {one["id"] for one in retried.objects if one["done"]} == ids
    skipped = await redrive("retries", "skip", "--all", "--endpoint", "billing", url=world.url)
    assert skipped.err == "3 skipped.\n"
    assert (await redrive("retries", "list", url=world.url)).err == "The retry queue is empty.\n"


async def _endpoint(world: World) -> dict[str, Any]:
    shown: dict[str, Any] = (await redrive("endpoints", "show", "billing", "--json", url=world.url)).object
    return shown


async def test_an_endpoint_is_updated_and_what_is_not_given_stays(world: World) -> None:
    before = await _endpoint(world)
    words = ("--url", "https://example.com/in", "--policy", "relay", "--rate-per-s", "7", "--event-type", "order.*")
    ended = await redrive("endpoints", "update", "billing", *words, "--because", "it moved", "--json", url=world.url)
    assert ended.code == 0, ended.err
    changed = {"url": "https://example.com/in", "policy": "relay", "rate_per_s": 7, "event_types": ["order.*"]}
    after = await _endpoint(world)
    same = before.keys() - changed.keys() - {"updated_at"}
    assert {name: after[name] for name in changed} == changed
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    cleared = await redrive("endpoints", "update", "billing", "--clear", "rate-per-s", "--name", "books", url=world.url)
    assert "is updated" in cleared.err
    shown = (await redrive("endpoints", "show", "books", "--json", url=world.url)).object
    assert (shown["rate_per_s"], shown["policy"]) == (None, "relay")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "Give at least one field to change"),
        (("--url", "http://10.0.0.7/x"), 1, "may not reach"),
        (("--url", "nothing"), 2, "cannot be used"),
        (("--policy", "weekly"), 1, "no policy"),
        (("--clear", "url"), 2, "url"),
        (("--clear", "policy", "--policy", "relay"), 2, "exclude each other"),
    ],
)
async def test_an_update_that_cannot_be_is_refused(world: World, words: tuple[str, ...], code: int, told: str) -> None:
    before = await _endpoint(world)
    ended = await redrive("endpoints", "update", "billing", *words, url=world.url)
    assert (ended.code, ended.out) == (code, "")
    assert told in ended.err
    assert await _endpoint(world) == before


async def test_a_policy_is_set_and_keeps_the_events_it_is_for(world: World) -> None:
    spec = {"kind": "list", "delays_s": [1, 2], "classify": {"retry": ["all"], "fail": []}}
    made = await redrive("policy", "set", "mine", json.dumps(spec), "--json", url=world.url)
    assert made.code == 0, made.err
    assert (made.object["delays_s"], made.object["classify"]["fail"]) == ([1, 2], [])
    await redrive("policy", "bind", "mine", "--event-type", "invoice.*", url=world.url)
    again = await redrive(
        "policy", "set", "mine", "-", "--json", url=world.url, stdin=json.dumps(spec | {"delays_s": [9]}).encode()
    )
    assert (again.object["delays_s"], again.object["event_types"]) == ([9], ["invoice.*"])
    bound = await redrive("policy", "set", "mine", json.dumps(spec | {"event_types": []}), "--json", url=world.url)
    assert bound.object["event_types"] == []


@pytest.mark.parametrize(
    ("name", "spec", "told"),
    [
        ("mine", '{"kind": "weekly"}', "kind must be one of"),
        ("mine", "[]", "JSON object"),
        ("mine", "{", "is not JSON"),
        ("a b", '{"kind": "manual"}', "name"),
        ("mine", '{"kind": "manual", "name": "other"}', "a different name"),
        ("mine", '{"kind": "list", "delays_s": [-1]}', "delays_s.0"),
    ],
)
async def test_a_policy_that_cannot_be_is_wrong_usage(world: World, name: str, spec: str, told: str) -> None:
    ended = await redrive("policy", "set", name, spec, url=world.url)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert (await redrive("policy", "preview", "mine", url=world.url)).code == 1
