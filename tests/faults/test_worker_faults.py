"""Workers that die, stall, are cut off or told to stop: real processes on one database."""

import asyncio
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import asyncpg
import pytest
from standardwebhooks.webhooks import Webhook

from redrive.store.embedded import EmbeddedPostgres
from support.holding import HoldingReceiver
from support.installation import installation
from support.load import volume
from support.oracle import TransitionLog, all_succeed, assert_check_passes, assert_sound, counts, states
from support.processes import altered, until, worker
from support.proxy import postgres_proxy
from support.remote import QUICK, seconds_between

pytestmark = pytest.mark.faults

_LEASES = "SELECT worker_id, count(*) FROM redrive.task WHERE state = 'leased' GROUP BY worker_id"


async def test_what_a_killed_worker_was_delivering_is_taken_over_after_its_lease(
    database_url: str, receiver: HoldingReceiver
) -> None:
    async with installation(database_url) as redrive:
        await redrive.api.policy("quick", **QUICK)
        endpoint = await redrive.api.endpoint(receiver.url, policy="quick", timeout_s=1)
        receiver.hold()
        async with worker(database_url) as first:
            ids = [await redrive.api.event(endpoint["id"]) for _ in range(3)]
            await receiver.wait_for(3, within_s=30)
            await first.kill()
        receiver.release()
        async with worker(database_url):
            for event_id in ids:
                await redrive.api.delivered(event_id)
        for event_id in ids:
            lost, *_, last = await redrive.api.attempts(event_id)
            assert (lost["result"], lost["possible_duplicate"], lost["number"]) == ("lost", True, 1)
            assert seconds_between(lost["started_at"], lost["ended_at"]) >= 2  # the time-out and the margin
            assert last["result"] == "succeeded"
    assert all(receiver.ids.count(event_id) >= 2 for event_id in ids)
    await assert_sound(database_url, accepted=ids, received=receiver.ids)
    await assert_check_passes(REDRIVE_DATABASE_URL=database_url)


async def run_with_a_paused_worker(
    url: str, watch: TransitionLog, receiver: HoldingReceiver, build: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, object], list[str]]:
    """A worker is stopped in mid-delivery and wakes up while another one holds its task.

    Answers with the first attempt as the API shows it, and with what the log of transitions finds wrong.
    """
    await watch.install()
    logins = [await watch.login(name) for name in ("sleeper", "successor")]
    async with installation(url) as redrive:
        await redrive.api.policy("quick", **QUICK)
        endpoint = await redrive.api.endpoint(receiver.url, policy="quick", timeout_s=2)
        receiver.hold()
        async with worker(logins[0], env=build) as sleeper, worker(logins[1], env=build) as successor:
            successor.send(signal.SIGSTOP)
            event_id = await redrive.api.event(endpoint["id"])
            await receiver.wait_for(1, within_s=30)
            sleeper.send(signal.SIGSTOP)
            successor.send(signal.SIGCONT)
            await receiver.wait_for(2, within_s=30)  # the lease ended, and the other one tries
            sleeper.send(signal.SIGCONT)
            await until(lambda: bool(sleeper.lines("lease_lost") or sleeper.lines("delivery_failure")))
            receiver.release()
            await redrive.api.delivered(event_id)
        first = (await redrive.api.attempts(event_id))[0]
    found = await watch.offences()
    await watch.forget("sleeper", "successor")
    return first, found


async def test_the_late_result_of_a_stopped_worker_is_refused_and_kept_as_evidence(
    database_url: str, postgres: EmbeddedPostgres, receiver: HoldingReceiver
) -> None:
    watch = TransitionLog(database_url, postgres.superuser_url)
    first, found = await run_with_a_paused_worker(database_url, watch, receiver)
    assert found == []
    assert (first["result"], first["possible_duplicate"]) == ("lost", True)
    assert isinstance(first["late"], dict)
    assert first["late"]["result"] in ("failed", "succeeded")
    await assert_sound(database_url, received=receiver.ids)


async def test_a_build_without_the_fence_is_caught(
    database_url: str, postgres: EmbeddedPostgres, receiver: HoldingReceiver
) -> None:
    watch = TransitionLog(database_url, postgres.superuser_url)
    _, found = await run_with_a_paused_worker(database_url, watch, receiver, altered("no_fence"))
    assert any("by sleeper, but successor holds the lease" in offence for offence in found), found


async def test_two_workers_share_the_work_and_never_hold_a_task_together(
    database_url: str, postgres: EmbeddedPostgres, receiver: HoldingReceiver
) -> None:
    watch = TransitionLog(database_url, postgres.superuser_url)
    await watch.install()
    logins = [await watch.login(name) for name in ("left", "right")]
    async with installation(database_url) as redrive:
        endpoint = await redrive.api.endpoint(receiver.url)
        receiver.hold()
        async with worker(logins[0], "--concurrency", "50"), worker(logins[1], "--concurrency", "50"):
            ids = [id for _ in range(volume(2, 4)) for id in await redrive.api.batch(endpoint["id"], 500)]
            # Of an endpoint that does not answer, a worker has a fifth of its room in flight at most.
            await until(lambda: receiver.held == 20, why=lambda: receiver.held)
            assert sorted((await counts(database_url, _LEASES)).values()) == [10, 10]
            receiver.release()
            await until(lambda: len(receiver.requests) >= len(ids), within_s=60, why=lambda: len(receiver.requests))
            await all_succeed(database_url)
    assert sorted(receiver.ids) == sorted(ids)  # each once
    shares = await watch.successes()
    assert set(shares) == {"left", "right"}
    assert min(shares.values()) >= 50
    assert await watch.offences() == []
    await watch.forget("left", "right")
    await assert_sound(database_url, accepted=ids, received=receiver.ids)


async def test_a_worker_cut_off_from_the_database_stops_sending(
    database_url: str, data_dir: Path, receiver: HoldingReceiver
) -> None:
    async with postgres_proxy(database_url, data_dir) as (proxy, far_url), installation(database_url) as redrive:
        await redrive.api.policy("quick", **QUICK)
        endpoint = await redrive.api.endpoint(receiver.url, policy="quick", timeout_s=1)
        receiver.hold()
        async with worker(far_url, "--concurrency", "4") as cut_off:
            ids = await redrive.api.batch(endpoint["id"], 20)
            await until(lambda: receiver.held == 4)
            proxy.go_silent()
            receiver.release()
            await until(lambda: receiver.in_flight == 0)
            sent_before = len(receiver.requests)
            async with worker(database_url) as second:
                for event_id in ids:
                    await redrive.api.delivered(event_id)
                # The four went out again, by the other worker, once their leases had ended. Nothing else came twice.
                assert len(receiver.requests) == 24
                again = [request for request in receiver.requests if request.headers["redrive-attempt"] == "2"]
                assert sorted(request.headers["webhook-id"] for request in again) == sorted(receiver.ids[:4])
                proxy.heal()
                for event_id in set(receiver.ids[:sent_before]):
                    await cut_off.said("lease_lost", event_id=event_id)
                await cut_off.terminated()
                await second.terminated()
        for event_id in set(receiver.ids[:sent_before]):
            first, last = await redrive.api.attempts(event_id)
            assert (first["result"], first["late"]["result"]) == ("lost", "succeeded")
            assert last["result"] == "succeeded"
    assert sent_before == 4
    await assert_sound(database_url, accepted=ids, received=receiver.ids)


async def test_a_worker_ends_in_time_although_its_database_is_gone_or_does_not_answer(
    database_url: str, data_dir: Path, tmp_path: Path, receiver: HoldingReceiver
) -> None:
    """What it has tried cannot be written down: it is tried again."""
    async with (
        postgres_proxy(database_url, data_dir) as (vanishing, near_url),
        postgres_proxy(database_url, tmp_path) as (falling_silent, far_url),
        installation(database_url) as redrive,
    ):
        await redrive.api.policy("quick", **QUICK)
        endpoint = await redrive.api.endpoint(receiver.url, policy="quick", timeout_s=1)
        receiver.hold()
        async with worker(near_url, "--concurrency", "4") as first, worker(far_url, "--concurrency", "4") as second:
            ids = await redrive.api.batch(endpoint["id"], 20)
            await until(lambda: receiver.held == 8)
            falling_silent.go_silent()
            vanishing.vanish()
            receiver.release()
            await until(lambda: receiver.in_flight == 0)
            assert max(await asyncio.gather(first.terminated(), second.terminated())) < 10
            assert first.lines("drain_incomplete")
            assert second.lines("drain_incomplete")
        async with worker(database_url):
            for event_id in ids:
                await redrive.api.delivered(event_id)
    await assert_sound(database_url, accepted=ids, received=receiver.ids)


async def test_polling_delivers_while_the_wake_up_connection_is_down(
    database_url: str, receiver: HoldingReceiver
) -> None:
    async with installation(database_url) as redrive, worker(database_url) as running:
        endpoint = await redrive.api.endpoint(receiver.url)
        connection = await asyncpg.connect(database_url)

        async def keep_cutting() -> None:
            while True:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'redrive-listen' AND datname = current_database()"
                )
                await asyncio.sleep(0.01)

        cutting = asyncio.create_task(keep_cutting())
        ids = []
        for _ in range(5):
            ids.append(await redrive.api.event(endpoint["id"]))
            await redrive.api.delivered(ids[-1])
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)
        await connection.close()
        assert running.lines("listen_lost") or running.lines("listen_ended")
    await assert_sound(database_url, accepted=ids, received=receiver.ids)


async def test_a_worker_whose_clock_is_a_day_off_does_everything_on_time(
    database_url: str, receiver: HoldingReceiver
) -> None:
    async with installation(database_url) as redrive, worker(database_url, env=altered("clock_off")) as wrong:
        await redrive.api.policy("aging", kind="list", delays_s=[0.2], max_retries=3, max_age_s=3600)
        endpoint = await redrive.api.endpoint(receiver.url, policy="aging")
        receiver.script(503)
        event_id = await redrive.api.event(endpoint["id"])
        await redrive.api.delivered(event_id)
        first, second = await redrive.api.attempts(event_id)
        failure = await wrong.said("delivery_failure")
    assert 0.2 <= seconds_between(first["ended_at"], second["started_at"]) < 5
    assert seconds_between(second["started_at"], failure["@timestamp"]) > 80_000  # its clock is off indeed
    for request in receiver.requests:
        Webhook(endpoint["secret"]).verify(request.body, dict(request.headers))  # within minutes of the true time
    await assert_sound(database_url, accepted=[event_id], received=receiver.ids)


async def test_a_worker_that_is_told_to_stop_drains_and_gives_leases_back(
    database_url: str, receiver: HoldingReceiver
) -> None:
    async with installation(database_url) as redrive:
        slow = await redrive.api.endpoint(receiver.url_of("/slow"))
        quick = await redrive.api.endpoint(receiver.url_of("/quick"))
        receiver.hold(lambda request: request.path == "/slow")
        async with worker(database_url) as leaving:
            slow_ids = await redrive.api.batch(slow["id"], 5)
            await until(lambda: receiver.held == 5)
            quick_ids = [id for _ in range(volume(1, 3)) for id in await redrive.api.batch(quick["id"], 1_000)]
            await until(lambda: len(receiver.of_path("/quick")) >= 100)
            took_s = await leaving.terminated()
        assert took_s < 10
        assert "leased" not in await states(database_url)
        for event_id in slow_ids:
            (given_back,) = await redrive.api.attempts(event_id)
            assert (given_back["result"], given_back["possible_duplicate"]) == ("released", True)
            assert (await redrive.api.status(event_id))["retry_attempts"] == 0  # it cost no attempt
        await assert_sound(database_url, accepted=[*slow_ids, *quick_ids], received=receiver.ids)
        receiver.release()
        async with worker(database_url):
            await all_succeed(database_url)
    came = Counter(receiver.ids)
    assert all(came[event_id] == 1 for event_id in quick_ids)
    assert all(came[event_id] == 2 for event_id in slow_ids)
    await assert_sound(database_url, accepted=[*slow_ids, *quick_ids], received=receiver.ids)
