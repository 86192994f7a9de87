"""`redrive pause`, `resume` and `stats`, and what `redrive endpoints` does with one endpoint."""

from uuid import UUID

import pytest

from redrive.core import sign
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.seal import Sealer

from .command import redrive
from .world import SECRET_KEY, World


@pytest.mark.parametrize("words", [("pause",), ("pause", "--endpoint", "billing"), ("pause", "--installation")])
async def test_pausing_holds_tasks_and_resuming_lets_them_go_on(world: World, words: tuple[str, ...]) -> None:
    await world.accept()
    paused = await redrive(*words, "--because", "maintenance", "--json", url=world.url)
    assert paused.code == 0, paused.err
    assert (paused.object["paused"], paused.object["because"]) == (True, "maintenance")
    assert paused.object["paused_by"].startswith("cli:")
    assert await world.claim() == []
    stats = (await redrive("stats", "--json", url=world.url)).object
    assert (stats["tasks"]["held"], stats["tasks"]["waiting"]) == (1, 0)
    resumed = await redrive("resume", *words[1:], url=world.url)
    assert (resumed.code, resumed.out) == (0, "")
    assert "is not paused." in resumed.err
    assert len(await world.claim()) == 1


async def test_stats_say_how_deliveries_went_by_endpoint(world: World) -> None:
    await world.accept()
    shown = await redrive("stats", "--by", "endpoint", "--window", "24h", url=world.url)
    assert shown.code == 0, shown.err
    since, heading, whole = shown.out.splitlines()
    assert since.startswith("Since 2")
    assert heading.split()[:3] == ["ENDPOINT", "DELIVERED", "FAILED"]
    assert whole.split()[:3] == ["all", "0", "0"]
    told = (await redrive("stats", "--by", "event_type", "--json", url=world.url)).object
    assert told["tasks"]["waiting"] == 1
    assert [key["created"] for key in told["analytics"]["keys"]] == [1]


async def test_an_endpoint_is_paused_by_its_name(world: World) -> None:
    await world.accept()
    paused = await redrive("endpoints", "pause", "billing", url=world.url)
    assert paused.code == 0, paused.err
    assert "0 tasks are held" in paused.err
    assert await world.claim() == []
    listed = (await redrive("endpoints", "list", "--json", url=world.url)).object
    assert (listed["paused"], listed["disabled"]) == (True, False)
    resumed = await redrive("endpoints", "resume", str(world.endpoint_id), "--json", url=world.url)
    assert (resumed.object["paused"], resumed.object["held"]) == (False, 0)
    assert len(await world.claim()) == 1


async def test_what_cannot_be_paused_is_refused(world: World) -> None:
    assert (await redrive("pause", "--endpoint", "nobody", url=world.url)).code == 1
    assert (await redrive("pause", "--endpoint", "billing", "--installation", url=world.url)).code == 2
    assert (await redrive("endpoints", "pause", "nobody", url=world.url)).code == 1
    assert (await redrive("pause", "--org", "nobody", url=world.url)).code == 1


async def test_a_rotated_secret_is_shown_once_and_the_old_one_signs_for_a_while(world: World) -> None:
    rotated = await redrive("endpoints", "rotate-secret", "billing", "--overlap-s", "60", url=world.url)
    assert rotated.code == 0, rotated.err
    assert "signs too until" in rotated.err
    book = EndpointTermsBook(world.engine, Sealer.from_passphrase(SECRET_KEY))
    (terms,) = await book.terms([(world.org_id, world.endpoint_id)])
    assert terms.secrets[0] == sign.decode_secret(rotated.out.strip())
    assert len(terms.secrets) == 2
    assert terms.all_until is not None
    alone = await redrive("endpoints", "rotate-secret", "billing", "--overlap-s", "0", "--json", url=world.url)
    assert alone.object["previous_valid_until"] is None
    assert (await redrive("endpoints", "rotate-secret", "billing", "--overlap-s", "604801", url=world.url)).code == 2


async def test_a_test_goes_to_the_endpoint_alone(world: World) -> None:
    sent = await redrive("endpoints", "test", "billing", "--payload", '{"n": 7}', url=world.url)
    assert sent.code == 0, sent.err
    job = await world.claim_one()
    assert (job.event_id, job.endpoint_id) == (UUID(sent.out.strip()), world.endpoint_id)
    assert (job.event_type, job.body) == ("redrive.test", b'{"n": 7}')
    assert (await redrive("endpoints", "test", "billing", "--payload", "{", url=world.url)).code == 2
    assert (await redrive("endpoints", "test", "nobody", url=world.url)).code == 1


async def test_the_numbers_are_readable_for_people(world: World) -> None:
    await world.succeeded()
    await world.dead()
    shown = await redrive("stats", url=world.url)
    assert shown.code == 0, shown.err
    assert "0 waiting, 0 leased, 0 held, 1 succeeded, 1 dead" in shown.out
    assert "success rate   50.0%" in shown.out
    assert "paused         nothing" in shown.out
    assert (await redrive("pause", "--endpoint", "billing", url=world.url)).code == 0
    assert (await redrive("pause", url=world.url)).code == 0
    assert "paused         the org, 1 endpoint" in (await redrive("stats", url=world.url)).out
