"""`redrive operations`, as a person and a script use it."""

from redrive.store.orgs import new_id

from .command import redrive
from .world import World


async def test_operations_are_listed_and_shown(world: World) -> None:
    empty = await redrive("operations", "list", url=world.url)
    assert (empty.code, empty.out) == (0, "")
    assert "No bulk action" in empty.err
    operation_id = await world.bulk_skip((await world.retrying()).id, new_id())
    listed = await redrive("operations", "list", "--json", url=world.url)
    assert listed.object["id"] == str(operation_id)
    assert listed.object["message"] == "Bulk skip complete. 1 succeeded, 1 failed."
    table = await redrive("operations", "list", "--state", "completed", url=world.url)
    assert "2 / 2" in table.out
    assert (await redrive("operations", "list", "--state", "running", url=world.url)).out == ""
    shown = await redrive("operations", "show", str(operation_id), url=world.url)
    assert "1/2 succeeded, 1/2 failed" in shown.out
    as_json = await redrive("operations", "show", str(operation_id), "--json", url=world.url)
    assert as_json.object == listed.object


async def test_an_operation_is_paused_resumed_and_cancelled(world: World) -> None:
    operation_id = str(await world.bulk_ignore_slowly(new_id(), new_id()))
    paused = await redrive("operations", "pause", operation_id, "--because", "lunch", url=world.url)
    assert (paused.code, paused.out) == (0, f"{operation_id} is paused: 0/2 succeeded, 1/2 failed.\n")
    again = await redrive("operations", "pause", operation_id, url=world.url)
    assert (again.code, again.err) == (1, "The operation is paused: there is nothing to pause.\n")
    resumed = await redrive("operations", "resume", operation_id, "--json", url=world.url)
    assert resumed.object["state"] == "running"
    cancelled = await redrive("operations", "cancel", operation_id, "--json", url=world.url)
    assert (cancelled.object["state"], cancelled.object["cancelled"]) == ("cancelled", 1)


async def test_what_does_not_exist_or_makes_no_sense_is_refused(world: World) -> None:
    for words in (("show",), ("pause",), ("resume",), ("cancel",)):
        ended = await redrive("operations", *words, str(new_id()), url=world.url)
        assert ended.code == 1
        assert "redrive operations list" in ended.err
    assert (await redrive("operations", "list", "--state", "odd", url=world.url)).code == 2
    assert (await redrive("operations", "show", "odd", url=world.url)).code == 2
