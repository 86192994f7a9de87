"""`redrive endpoints show` and `close-breaker`."""

from redrive.core.breaker import BreakerState
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.endpoint_states import BreakerStates

from .command import redrive
from .world import World

WHY = "16 of the last 20 tries failed, the last one with: HTTP 503 Service Unavailable"


async def trip(world: World) -> None:
    db = await Database.open(world.url, role="redrive_engine", size=1)
    states = BreakerStates(db, DatabaseClock())
    place = world.org_id, world.endpoint_id
    assert await states.open_breaker(*place, taken_for=BreakerState.CLOSED, reason=WHY)
    await db.close()


async def test_an_endpoint_is_shown_with_its_breaker_and_what_is_known_of_it(world: World) -> None:
    shown = await redrive("endpoints", "show", "billing", url=world.url)
    assert shown.code == 0, shown.err
    assert "breaker          closed" in shown.out
    assert "tries of a day   0 succeeded, 0 failed" in shown.out
    await trip(world)
    told = (await redrive("endpoints", "show", str(world.endpoint_id), "--json", url=world.url)).object
    assert (told["name"], told["health"]["breaker"]["state"]) == ("billing", "open")
    assert told["health"]["breaker"]["reason"] == WHY
    assert (await redrive("endpoints", "show", "nobody", url=world.url)).code == 1


async def test_a_breaker_is_closed_by_hand(world: World) -> None:
    nothing = await redrive("endpoints", "close-breaker", "billing", url=world.url)
    assert nothing.code == 0, nothing.err
    assert "is closed: it holds nothing" in nothing.err
    await trip(world)
    closed = await redrive("endpoints", "close-breaker", "billing", "--because", "back", "--json", url=world.url)
    assert closed.object == {"id": str(world.endpoint_id), "breaker": "ramping"}
    audit = (await redrive("audit", "--action", "endpoint.breaker_close", "--json", url=world.url)).object
    assert (audit["because"], audit["actor"][:4]) == ("back", "cli:")
