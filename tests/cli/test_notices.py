"""`redrive notices`: what people should hear of, narrowed down."""

from .command import redrive
from .world import World


async def test_notices_are_listed_newest_first_and_narrowed_down(world: World) -> None:
    nothing = await redrive("notices", url=world.url)
    assert (nothing.code, nothing.out, nothing.err.strip()) == (0, "", "There is nothing to tell.")
    letters = [str(await world.dead()) for _ in range(2)]
    found = (await redrive("notices", "--json", url=world.url)).objects
    assert [notice["subject_id"] for notice in found] == letters[::-1]
    assert {(notice["kind"], notice["severity"], notice["told_at"]) for notice in found} == {
        ("dead_letter", "error", None)
    }
    assert found[0]["facts"]["endpoint"] == "billing"
    (listed,) = (await redrive("notices", "--kind", "dead_letter", "--limit", "1", "--json", url=world.url)).objects
    assert listed == found[0]
    table = await redrive("notices", url=world.url)
    assert table.code == 0
    assert "dead_letter" in table.out
    assert (await redrive("notices", "--kind", "endpoint.disabled", "--json", url=world.url)).objects == []
