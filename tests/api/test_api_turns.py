"""Turns at the database: an org that takes all of its own leaves the others theirs."""

import asyncio
from uuid import uuid4

from redrive.api.turns import MAX_TURNS_PER_ORG, Turns
from redrive.app import APP_CONNECTIONS

from .conftest import Api


async def test_one_org_s_transactions_leave_room_for_the_others(api: Api) -> None:
    caller_like = await api.owner.get("/v1/session")
    assert caller_like.status == 200
    async with asyncio.TaskGroup() as group:
        go, busy = asyncio.Event(), asyncio.Semaphore(0)

        async def hold() -> None:
            async with api.context.turns.of(api.org_id):
                busy.release()
                await go.wait()

        for _ in range(MAX_TURNS_PER_ORG):
            group.create_task(hold())
        for _ in range(MAX_TURNS_PER_ORG):
            await busy.acquire()
        waiting = asyncio.create_task(api.owner.get("/v1/endpoints"))
        assert (await api.stranger.get("/v1/endpoints")).status == 200
        assert not waiting.done()
        go.set()
        assert (await waiting).status == 200


async def test_an_org_is_forgotten_with_its_last_turn_whatever_ended_it() -> None:
    turns, org = Turns(1), uuid4()
    try:
        async with turns.of(org):
            waiting = asyncio.create_task(_take(turns, org))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert turns._queues == {}


async def _take(turns: Turns, org: object) -> None:
    async with turns.of(org):  # type: ignore[arg-type]
        raise AssertionError("the turn is taken")


def test_no_org_has_all_connections() -> None:
    assert MAX_TURNS_PER_ORG < APP_CONNECTIONS
