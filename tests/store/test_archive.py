"""The archive: what is removed is on disk first, readable line by line, and what cannot be kept is not removed."""

import asyncio
import os
import stat
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from redrive.core.policy import DAY_S
from redrive.core.sweep import Swept, SweptOrg
from redrive.store import archive
from redrive.store.archive import Archive, ArchiveError, folder_name
from redrive.store.edits import Edit, replay
from support.engine import PERSON, START, Engine, ManualClock

from .test_retention import dead, delivered, left, sweep, sweeping

ID = UUID("01890000-0000-7000-8000-000000000000")


def lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.rglob("*.ndjson")
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def test_all_that_is_removed_stands_in_the_archive(engine: Engine, clock: ManualClock, tmp_path: Path) -> None:
    await engine.endpoint(policy="relay")
    fine = await delivered(engine, body=b'{\n "n": 1.50,\r\n "n": 2 }')
    raw = await dead(engine, body=b"\xff\x00")
    clock.advance(31 * DAY_S)
    assert (await sweep(engine, archive=Archive(tmp_path / "kept"))).events == 2
    records = lines(tmp_path)
    assert [record["record"] for record in records] == [*["event"] * 2, *["task"] * 2, *["attempt"] * 2, "dead_letter"]
    events = {record["id"]: record for record in records if record["record"] == "event"}
    assert events[str(fine)]["payload"] == {"n": 2}
    assert b64decode(events[str(raw)]["payload_base64"]) == b"\xff\x00"
    assert {record["policy"] for record in records if record["record"] == "task"} == {"relay"}
    assert {record["org_id"] for record in records} == {str(engine.org_id)}
    text = next(tmp_path.rglob("*.ndjson")).read_bytes()
    assert b'{  "n": 1.50,   "n": 2 }' in text  # numbers and doubled names as they came


async def test_edits_stand_in_the_archive_without_the_values_of_headers(
    engine: Engine, clock: ManualClock, tmp_path: Path
) -> None:
    await engine.endpoint(policy="relay")
    task = await engine.task_of(await dead(engine))
    for edit in (Edit(body=b'{"n":2.50}', headers={"x-key": "hunter2"}), Edit(headers={"x-a": "1"}, discard=True)):
        async with engine.app.tenant(engine.org_id) as session:
            await replay(session, task["id"], PERSON, clock, edit=edit, roll=0.5, at_once=True)
        await engine.kill(await engine.claim_one())
    clock.advance(31 * DAY_S)
    assert (await sweep(engine, archive=Archive(tmp_path))).events == 1
    first, second = (record for record in lines(tmp_path) if record["record"] == "edit")
    assert (first["number"], first["payload"], first["headers"]) == (1, {"n": 2.5}, ["x-key"])
    assert (second["number"], second.get("payload"), second["headers"]) == (2, None, ["x-a"])
    text = next(tmp_path.rglob("*.ndjson")).read_bytes()
    assert b'{"n":2.50}' in text
    assert b"hunter2" not in text


async def test_files_are_for_their_owner_only_one_for_each_org_and_day(
    engine: Engine, clock: ManualClock, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    for _ in range(2):
        event_id = await engine.accept("for nobody")
        await engine.acknowledge(event_id)
        clock.advance(31 * DAY_S)
        await sweep(engine, archive=Archive(folder))
    days = [START.date().replace(month=6, day=4), START.date().replace(month=7, day=5)]
    assert sorted(folder.rglob("*.ndjson")) == [folder / "default" / f"{day}.ndjson" for day in days]
    for path in (folder, folder / "default", *folder.rglob("*.ndjson")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


async def test_what_cannot_be_kept_is_not_removed(engine: Engine, clock: ManualClock, tmp_path: Path) -> None:
    event_id = await engine.accept("for nobody")
    await engine.acknowledge(event_id)
    clock.advance(31 * DAY_S)
    (tmp_path / "default").write_text("in the way")
    with pytest.raises(ArchiveError, match="Nothing was removed"):
        await sweep(engine, archive=Archive(tmp_path))
    assert await left(engine) == {event_id}
    (tmp_path / "default").unlink()
    assert (await sweep(engine, archive=Archive(tmp_path))).events == 1


async def test_a_full_disk_leaves_no_half_batch(
    engine: Engine, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "WRITE_BYTES", 1)
    (tmp_path / "default").mkdir()
    path = tmp_path / "default" / f"{START.date().replace(month=6, day=4)}.ndjson"
    path.write_bytes(b'{"record":"event"}\n')
    for _ in range(3):
        await engine.acknowledge(await engine.accept("for nobody"))
    clock.advance(31 * DAY_S)
    written = []
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        written.append(data)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ArchiveError, match="No space left"):
        await sweep(engine, archive=Archive(tmp_path))
    assert path.read_bytes() == b'{"record":"event"}\n'
    assert len(await left(engine)) == 3


async def test_a_line_cut_short_by_a_crash_does_not_spoil_the_next(
    engine: Engine, clock: ManualClock, tmp_path: Path
) -> None:
    (tmp_path / "default").mkdir()
    path = tmp_path / "default" / f"{START.date().replace(month=6, day=4)}.ndjson"
    path.write_bytes(b'{"record":"ev')
    await engine.acknowledge(await engine.accept("for nobody"))
    clock.advance(31 * DAY_S)
    await sweep(engine, archive=Archive(tmp_path))
    cut, whole = path.read_bytes().splitlines()
    assert (cut, msgspec.json.decode(whole)["record"]) == (b'{"record":"ev', "event")


async def test_a_pass_that_is_broken_off_while_it_writes_removes_nothing(
    engine: Engine, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled as a stopping worker does: the thread that writes goes on for a moment."""
    event_id = await engine.accept("for nobody")
    await engine.acknowledge(event_id)
    clock.advance(31 * DAY_S)
    loop, begun, sync = asyncio.get_running_loop(), asyncio.Event(), os.fsync

    def slow(descriptor: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        sync(descriptor)

    async with sweeping(engine, archive=Archive(tmp_path)) as sweeper:
        (org,) = await sweeper.orgs(0)
        monkeypatch.setattr(os, "fsync", slow)
        batch = asyncio.create_task(sweeper.batch(org, None))
        await asyncio.wait_for(begun.wait(), 10)
        batch.cancel()
        await asyncio.wait([batch])
        assert batch.cancelled()
    assert await left(engine) == {event_id}
    assert await sweep(engine, archive=Archive(tmp_path)) == Swept(events=1, payload_bytes=7)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("default", "default"),
        ("Acme-2.eu", "Acme-2.eu"),
        ("../etc", str(ID)),
        (".", str(ID)),
        ("a/b", str(ID)),
        ("Ärzte", str(ID)),
        ("01890000-0000-7000-8000-000000000001", str(ID)),
    ],
)
def test_an_org_s_folder_is_its_name_where_that_is_safe(name: str, folder: str) -> None:
    assert folder_name(SweptOrg(ID, name, START, None, None)) == folder
