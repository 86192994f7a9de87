"""Alerts among real processes: that no worker is left is noticed and told by the API's, and that one is back."""

from contextlib import AsyncExitStack

import asyncpg
import pytest

from support.engine import until
from support.processes import ADMIN_KEY, serve, worker
from support.remote import Remote

pytestmark = pytest.mark.faults

# As in earnest, but faster.
HURRIED = {"REDRIVE_HEARTBEAT_EVERY_S": "0.5", "REDRIVE_ALERTS_EVERY_S": "0.5"}
TOLD = "SELECT kind FROM redrive.notice WHERE facts ->> 'rule' = 'no_worker' AND told_at IS NOT NULL ORDER BY at"


async def test_that_all_workers_were_killed_is_told_by_the_api_and_so_is_that_one_is_back(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        given = {"REDRIVE_DATABASE_URL": database_url, **HURRIED}
        served = await stack.enter_async_context(serve("--no-worker", env=given))
        api = Remote(served.host, served.port, ADMIN_KEY)
        stack.callback(api.close)
        put = await api.http.request("PUT", "/v1/alerts/rules/no_worker", {"threshold_s": 3})
        assert put.status == 200, put.body
        workers = [await stack.enter_async_context(worker(database_url, env=HURRIED)) for _ in range(2)]
        for one in workers:
            await one.kill()
        fired = await served.program.said("notice", kind="alert.fired")
        assert fired["text"].startswith("No worker was heard of for 3")
        (alert,) = (await api.get("/v1/alerts", state="firing"))["data"]
        assert (alert["rule"], alert["severity"]) == ("no_worker", "error")
        back = await stack.enter_async_context(worker(database_url, env=HURRIED))
        engine = await asyncpg.connect(database_url, server_settings={"role": "redrive_engine"})
        stack.push_async_callback(engine.close)

        async def is_told() -> bool:
            return len(await engine.fetch(TOLD)) > 1

        await until(is_told, within_s=30)
        assert [row["kind"] for row in await engine.fetch(TOLD)] == ["alert.fired", "alert.over"]
        assert back.process.returncode is None
        assert {row["rule"] for row in (await api.get("/v1/alerts"))["data"]} == {"no_worker"}
