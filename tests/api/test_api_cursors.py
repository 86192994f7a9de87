"""Cursors are good for the list they came from, and for nothing else."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis.strategies import binary, datetimes, just, text, uuids

from redrive.api.cursors import Cursors, ListPlace
from redrive.api.problems import Problem

from .conftest import Api

CURSORS = Cursors(b"k" * 32)
PLACE = ListPlace("events", uuid4(), {"status": "failed", "event_type": None})
KEY = (datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), uuid4())


@given(at=datetimes(timezones=just(UTC)), id_=uuids())
def test_a_cursor_brings_its_key_back_exactly(at: datetime, id_: object) -> None:
    assert CURSORS.read(PLACE, CURSORS.write(PLACE, (at, id_))) == (at, id_)


@pytest.mark.parametrize(
    "other",
    [
        ListPlace("endpoints", PLACE.org_id, PLACE.filters),
        ListPlace("events", uuid4(), PLACE.filters),
        ListPlace("events", PLACE.org_id, {"status": "queued"}),
        ListPlace("events", PLACE.org_id, {"status": "failed", "event_type": "a"}),
    ],
)
def test_a_cursor_is_refused_anywhere_else(other: ListPlace) -> None:
    with pytest.raises(Problem) as refused:
        CURSORS.read(other, CURSORS.write(PLACE, KEY))
    assert refused.value.status == 400


def test_a_cursor_of_another_installation_is_refused() -> None:
    with pytest.raises(Problem):
        Cursors(b"x" * 32).read(PLACE, CURSORS.write(PLACE, KEY))


@example(position=b"K", replacement=":d")
@given(position=binary(min_size=1, max_size=1), replacement=text(max_size=3))
def test_a_changed_cursor_is_refused(position: bytes, replacement: str) -> None:
    cursor = CURSORS.write(PLACE, KEY)
    at = position[0] % (len(cursor) - 2)
    changed = cursor[:at] + replacement + cursor[at + 1 :]
    if changed != cursor:
        with pytest.raises(Problem):
            CURSORS.read(PLACE, changed)
    for passed_over in (":", "\n", "=", "*"):
        with pytest.raises(Problem):
            CURSORS.read(PLACE, cursor[:at] + passed_over + cursor[at:])


async def test_a_cursor_over_http_holds_for_the_same_filters_and_org_only(api: Api) -> None:
    for number in range(3):
        await api.event(payload=number)
    cursor = (await api.owner.get("/v1/events?limit=1")).json["pagination"]["cursor"]
    assert (await api.owner.get(f"/v1/events?limit=2&cursor={cursor}")).status == 200
    assert (await api.owner.get(f"/v1/events?limit=1&status=received&cursor={cursor}")).status == 400
    assert (await api.owner.get(f"/v1/endpoints?cursor={cursor}")).status == 400
    assert (await api.stranger.get(f"/v1/events?limit=1&cursor={cursor}")).status == 400
