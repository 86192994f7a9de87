"""Answers that get lost, connections that tenants share, claimers that meet: what must not depend on luck."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from redrive.store.orgs import new_id
from support.engine import open_engine
from support.holding import HoldingReceiver
from support.installation import Installation, installation
from support.oracle import all_succeed, assert_sound, counts
from support.processes import ADMIN_KEY, until, worker
from support.proxy import postgres_proxy, tcp_proxy
from support.remote import Remote

CLAIMERS = 50


async def test_the_same_key_after_a_lost_answer_gives_one_event(database_url: str, receiver: HoldingReceiver) -> None:
    async with installation(database_url) as redrive, tcp_proxy(redrive.host, redrive.port) as (proxy, port):
        endpoint = await redrive.api.endpoint(receiver.url)
        far = Remote("127.0.0.1", port, ADMIN_KEY)
        proxy.swallow_answers(2)
        for _ in range(2):
            with pytest.raises(OSError):  # noqa: PT011 - whatever the system calls a connection that is gone
                await far.try_event(endpoint["id"], Idempotency_Key="order-7")
            far.close()
        assert proxy.swallowed == 2
        answer = await far.try_event(endpoint["id"], Idempotency_Key="order-7")
        far.close()
        assert (answer.status, answer.json["deduplicated"]) == (202, True)
        await redrive.work()
        await redrive.api.delivered(answer.json["event_id"])
        assert receiver.ids == [answer.json["event_id"]]
        assert (await redrive.api.get("/v1/events"))["pagination"]["total_count"] == 1
    await assert_sound(database_url, accepted=receiver.ids, received=receiver.ids)


async def test_a_commit_whose_answer_is_lost_between_api_and_database_is_one_event(
    database_url: str, data_dir: Path, receiver: HoldingReceiver
) -> None:
    async with postgres_proxy(database_url, data_dir) as (proxy, far_url), installation(far_url) as redrive:
        endpoint = await redrive.api.endpoint(receiver.url)
        await redrive.api.event(endpoint["id"])  # the key is known now: the next answer is that of the commit
        proxy.swallow_answers()
        answer = await redrive.api.try_event(endpoint["id"])
        assert proxy.swallowed == 1
        assert (answer.status, answer.json["deduplicated"]) == (202, False)  # a second try of ours is not the client's
        assert (await redrive.api.get("/v1/events"))["pagination"]["total_count"] == 2
        await redrive.work()
    assert len(receiver.ids) == len(set(receiver.ids)) == 2
    await assert_sound(database_url, accepted=[answer.json["event_id"]], received=receiver.ids)


async def test_tenants_on_one_connection_see_each_their_own(database_url: str) -> None:
    async with installation(database_url, pool_size=1) as redrive:
        names = ["blue", "green", "red"]
        tenants = [await redrive.other_org(name) for name in names]
        mine: dict[str, str] = {}
        for name, tenant in zip(names, tenants, strict=True):
            mine[name] = (await tenant.endpoint("https://example.com/hook", name=name))["id"]

        async def look(name: str, tenant: Remote) -> None:
            others = [id for owner, id in mine.items() if owner != name]
            for _ in range(10):
                seen = (await tenant.get("/v1/endpoints"))["data"]
                assert [one["name"] for one in seen] == [name]
                missing = await tenant.http.get(f"/v1/endpoints/{others[0]}")
                unknown = await tenant.http.get(f"/v1/endpoints/{new_id()}")
                assert _shape(missing.json) == _shape(unknown.json)
                assert missing.status == unknown.status == 404
                changed = await tenant.http.request("PATCH", f"/v1/endpoints/{others[1]}", {"name": "stolen"})
                assert changed.status == 404

        await asyncio.gather(*(look(name, tenant) for name, tenant in zip(names, tenants, strict=True)))
        for tenant in tenants:
            tenant.close()
        await _same_id_in_two_orgs(redrive)
    await assert_sound(database_url)


def _shape(problem: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in problem.items() if name != "correlation_id"}


async def _same_id_in_two_orgs(redrive: Installation) -> None:
    """An id or a key of one tenant is none of another's."""
    one, other = redrive.api, await redrive.other_org("yellow")
    event = {"event_type": "nobody.listens", "payload": {"of": "one"}, "event_id": str(new_id())}
    assert (await one.http.post("/v1/events", event)).status == 202
    theirs = await other.http.post("/v1/events", {**event, "payload": {"of": "another"}})
    assert (theirs.status, theirs.json["deduplicated"]) == (202, False)
    assert (await other.get(f"/v1/events/{event['event_id']}"))["payload"] == {"of": "another"}
    assert (await one.get(f"/v1/events/{event['event_id']}"))["payload"] == {"of": "one"}
    other.close()


async def test_fifty_claimers_at_once_get_each_task_once(database_url: str) -> None:
    async with open_engine(database_url, size=CLAIMERS) as engine:
        await engine.endpoint()
        await engine.accept_many(1_000)
        claims = await asyncio.gather(*(engine.claim(40, worker_id=new_id()) for _ in range(CLAIMERS)))
        rest = await engine.claim(1_000)
        jobs = [job for claim in (*claims, rest) for job in claim]
        assert Counter(job.id for job in jobs).most_common(1)[0][1] == 1
        assert {job.fence for job in jobs} == {1}
        assert len(jobs) == 1_000
        fences = await counts(database_url, "SELECT fence, count(*) FROM redrive.task GROUP BY fence")
    assert fences == {"1": 1_000}
    await assert_sound(database_url)


@pytest.mark.faults
async def test_tries_that_hang_leave_what_room_is_left_to_others(database_url: str, receiver: HoldingReceiver) -> None:
    async with installation(database_url) as redrive, worker(database_url, "--concurrency", "100"):
        hanging = await redrive.api.endpoint(receiver.url_of("/hangs"))
        healthy = await redrive.api.endpoint(receiver.url_of("/healthy"))
        receiver.hold(lambda request: request.path == "/hangs")
        stuck = await redrive.api.batch(hanging["id"], 95)
        await until(lambda: receiver.held == 20)  # a fifth of the room
        passing = await redrive.api.batch(healthy["id"], 50)
        await until(lambda: len(receiver.of_path("/healthy")) == 50)
        assert receiver.held == 20
        receiver.release()
        await all_succeed(database_url)
    await assert_sound(database_url, accepted=[*stuck, *passing], received=receiver.ids)
