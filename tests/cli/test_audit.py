"""`redrive audit`: what was done, narrowed down."""

from .command import redrive
from .world import World


async def test_what_was_done_is_listed_newest_first_and_narrowed_down(world: World) -> None:
    made = (await redrive("keys", "create", "--name", "one", "--json", url=world.url)).object
    await redrive("keys", "revoke", made["id"], url=world.url)
    found = (await redrive("audit", "--subject", made["id"], "--json", url=world.url)).objects
    assert [entry["action"] for entry in found] == ["key.revoke", "key.create"]
    assert found[1]["after"] == {"name": "one", "role": "ADMIN", "scope": None, "expires_at": None}
    listed = await redrive("audit", "--action", "key.revoke", "--since", "1h", url=world.url)
    assert listed.code == 0
    assert made["id"] in listed.out
    none = await redrive("audit", "--actor", "nobody", "--until", "2020-01-01", "--limit", "3", url=world.url)
    assert (none.out, none.err.strip()) == ("", "Nothing was done that this asks for.")
