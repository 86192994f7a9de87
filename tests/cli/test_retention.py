"""`redrive retention run`: a pass at once, or what it would remove."""

from pathlib import Path

from redrive.core.policy import Policy
from redrive.store import inbox
from redrive.store.check import check
from redrive.store.policies import put_policy

from .command import redrive
from .world import ACT, CLOCK, World


async def nothing_kept(world: World) -> None:
    """Two events that may go, one that may not, and one that waited too long."""
    async with world.app.tenant(world.org_id) as session:
        retention = {"delivered_s": 0, "failed_s": None, "dead_s": None}
        await put_policy(session, "integration", Policy.from_spec({"kind": "manual", "retention": retention}), ACT)
        await put_policy(session, "hasty", Policy.from_spec({"kind": "manual", "max_age_s": 0.001}), ACT)
    await world.succeeded()
    acked = await world.to_inbox()
    async with world.app.tenant(world.org_id) as session:
        assert await inbox.acknowledge(session, acked, ACT, CLOCK) == "received"
    await world.dead()
    await world.accept(policy="hasty")


async def test_a_dry_run_tells_and_a_run_removes(world: World, tmp_path: Path) -> None:
    await nothing_kept(world)
    told = await redrive("retention", "run", "--dry-run", "--json", url=world.url)
    assert told.code == 0, told.err
    counts = {"events": 2, "tasks": 1, "attempts": 3, "dead_letters": 0, "payload_bytes": 4, "idempotency_keys": 0}
    counts |= {"operations": 0, "notices": 0, "runs": 0, "alerts": 0, "expired": 1}
    assert told.object == {"org": "default", "dry_run": True, **counts}
    done = await redrive("retention", "run", "--json", url=world.url, env={"REDRIVE_ARCHIVE_DIR": str(tmp_path)})
    assert done.object == {"org": "default", "dry_run": False, **counts}
    assert len(next(tmp_path.rglob("*.ndjson")).read_text().splitlines()) == 6
    report = await check(world.url)
    assert report.clean
    assert report.total.events == 2
    async with world.app.tenant(world.org_id) as session:
        rows = await session.fetch("list_audit_of", world.org_id, [world.org_id])
    assert [(row["action"], row["actor"].partition(":")[0]) for row in rows] == [("retention.delete", "cli")]


async def test_people_see_a_table_or_that_there_is_nothing(world: World) -> None:
    nothing = await redrive("retention", "run", url=world.url)
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing that the policies do not keep" in nothing.err
    await nothing_kept(world)
    told = await redrive("retention", "run", "--dry-run", url=world.url)
    assert told.out.splitlines()[1].split() == ["default", "2", "1", "3", "0", "4", "0", "0", "0", "0", "0", "1"]
    assert "dry run" in told.err
    done = await redrive("retention", "run", url=world.url)
    assert done.out == told.out


async def test_what_cannot_be_archived_stays(world: World, tmp_path: Path) -> None:
    await nothing_kept(world)
    (tmp_path / "default").write_text("in the way")
    refused = await redrive("retention", "run", url=world.url, env={"REDRIVE_ARCHIVE_DIR": str(tmp_path)})
    assert (refused.code, refused.out) == (1, "")
    assert "Nothing was removed" in refused.err
    assert (await check(world.url)).total.events == 4
