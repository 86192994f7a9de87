"""`redrive top` itself: from one org to the next."""

from redrive.cli.top import _chosen, _Screen

from .world import World, make_org

MANY = 60


async def test_of_however_many_orgs_each_is_found_by_its_name_and_reached_by_its_key(world: World) -> None:
    names = [f"org {number:02}" for number in range(MANY)]
    for name in names:
        await make_org(world.engine, name)
    last = await _chosen(world.engine, names[-1])
    assert last is not None
    screen, shown = _Screen(world.engine, None, 2.0), []
    for _ in range(MANY + 3):
        screen._turn()
        await screen._look()
        shown.append(screen._org)
    assert shown[MANY] == last
    assert [org and org[1] for org in shown] == ["default", *names, None, "default"]
