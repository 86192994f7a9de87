"""Dead letters that tests and benches make by the thousand are such as the engine leaves behind."""

from support.installation import installation
from support.letters import ERRORS, seed
from support.oracle import assert_sound
from support.receiver import open_receiver

COUNT = 300


async def test_seeded_letters_hold_to_every_rule_and_can_all_be_redriven(database_url: str) -> None:
    async with installation(database_url) as redrive, open_receiver() as receiver:
        await seed(database_url, redrive.api, redrive.org_id, COUNT, url=receiver.url)
        await assert_sound(database_url)
        groups = (await redrive.api.get("/v1/dead-letters/groups"))["data"]
        assert sorted(group["count"] for group in groups) == [COUNT // len(ERRORS)] * len(ERRORS)
        chosen = {"action": "retry", "filter": {"category": "client_error"}, "now": True}
        async with redrive.working():
            assert await redrive.api.post("/v1/dead-letters/bulk?wait=true", chosen) == {
                "succeeded": COUNT,
                "failed": 0,
            }
        assert len(receiver.requests) == COUNT
        await assert_sound(database_url, received=[request.headers["webhook-id"] for request in receiver.requests])
