"""`redrive send` and `redrive events`: handing in, and the story of an event."""

from pathlib import Path

import pytest

from redrive.cli.history import FOR_A_PERSON
from redrive.core.decide import AwaitPerson
from redrive.store.check import check
from redrive.store.orgs import new_id
from redrive.store.pausing import PauseScope

from .command import redrive
from .world import BROKEN, World


async def test_a_sent_event_is_stored_byte_for_byte(world: World) -> None:
    payload = '{"amount": 1.10,  "currency":"€"}'
    sent = await redrive("send", "order.paid", "--payload", payload, url=world.url)
    assert sent.code == 0, sent.err
    event_id = sent.out.strip()
    shown = await redrive("events", "show", event_id, "--payload", url=world.url)
    assert shown.out == payload
    assert (await world.claim_one()).body == payload.encode()


async def test_the_payload_comes_from_a_file_or_from_stdin(world: World, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_bytes(b'{"from": "file"}')
    assert (await redrive("send", "order.paid", "--payload-file", str(file), url=world.url)).code == 0
    assert (await redrive("send", "order.paid", "-", stdin=b'{"from": "stdin"}', url=world.url)).code == 0
    assert {job.body for job in await world.claim(10)} == {b'{"from": "file"}', b'{"from": "stdin"}'}


async def test_the_same_event_id_is_one_event_and_another_payload_is_refused(world: World) -> None:
    words = ("send", "order.paid", "--event-id", str(new_id()), "--json")
    first = (await redrive(*words, "--payload", "1", url=world.url)).object
    again = (await redrive(*words, "--payload", "1", url=world.url)).object
    assert (first["deduplicated"], again["deduplicated"]) == (False, True)
    assert first["event_id"] == again["event_id"]
    other = await redrive(*words, "--payload", "2", url=world.url)
    assert (other.code, other.out) == (1, "")
    assert "another type or payload" in other.err


async def test_an_event_that_nobody_takes_waits_in_the_inbox_and_one_for_an_endpoint_does_not(world: World) -> None:
    inbox = await redrive("send", "some.thing", url=world.url)
    assert "waits in the inbox" in inbox.err
    direct = await redrive("send", "some.thing", "--endpoint", "billing", "--policy", "relay", "--json", url=world.url)
    assert direct.object["status"] == "queued"
    statuses = [e["status"] for e in (await redrive("events", "list", "--json", url=world.url)).objects]
    assert statuses == ["queued", "received"]  # newest first


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--payload", "{"), 2),
        (("--payload", "NaN"), 2),
        (("--payload", "{}", "-"), 2),
        (("--payload-file", "/no/such/file"), 2),
        (("--payload", '"' + "x" * 1_048_576 + '"'), 2),
        (("--policy", "no-such-policy"), 1),
        (("--endpoint", "no-such-endpoint"), 1),
        (("--org", "no-such-org"), 1),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_cannot_be_sent_is_told_and_nothing_is_stored(
    world: World, words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    if len(words[1]) > 100_000:  # more than a command line takes
        file = tmp_path / "large"
        file.write_text(words[1])
        words = ("--payload-file", str(file))
    ended = await redrive("send", "order.paid", *words, url=world.url)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err
    assert "Traceback" not in ended.err
    assert (await check(world.url)).total.events == 0


async def test_attempts_are_listed_oldest_first_the_open_one_included(world: World) -> None:
    event_id = await world.accept()
    await world.fail(await world.claim_one())
    await world.claim_one()
    ended = await redrive("events", "attempts", str(event_id), "--json", url=world.url)
    assert [(one["number"], one["result"]) for one in ended.objects] == [(1, "failed"), (2, "open")]
    human = await redrive("events", "attempts", str(event_id), url=world.url)
    assert len(human.out.splitlines()) == 3


async def test_history_tells_the_whole_story_in_order(world: World) -> None:
    event_id = await world.accept()
    await world.fail(await world.claim_one())
    await world.release(await world.claim_one())
    job = await world.claim_one()
    await world.die(job)
    await world.redrive(job.id, at_once=True)
    await world.succeed(await world.claim_one())
    ended = await redrive("events", "history", str(event_id), "--json", url=world.url)
    told = [happening["what"] for happening in ended.objects]
    assert told == [
        "accepted",
        "try failed",
        "lease given back",
        "try failed",
        "died",
        "redriven",
        "try succeeded",
        "resolved",
        "delivered",
    ]
    times = [happening["at"] for happening in ended.objects]
    assert times == sorted(times)
    human = await redrive("events", "history", str(event_id), url=world.url)
    assert human.out.count(str(job.id)) == 7


async def test_history_says_what_comes_next(world: World) -> None:
    event_id = await world.accept()
    await world.fail(await world.claim_one(), delay_s=60)
    last = (await redrive("events", "history", str(event_id), "--json", url=world.url)).objects[-1]
    assert last["what"] == "next try is due"


async def test_history_says_of_what_no_policy_retries_that_a_person_must_and_where(world: World) -> None:
    event_id = await world.accept(policy="manual")
    job = await world.claim_one()
    await world.settle(job, BROKEN, AwaitPerson())
    told = (await redrive("events", "history", str(event_id), "--json", url=world.url)).objects
    assert [happening["what"] for happening in told] == ["accepted", "try failed", FOR_A_PERSON]
    assert told[-1]["at"] is None
    assert told[-1]["details"] == {"policy": "manual", "retry": f"POST /v1/retry-queue/{job.id}/retry"}
    human = await redrive("events", "history", str(event_id), url=world.url)
    assert "waits for a person" in human.out.splitlines()[-1]
    assert "/integrations/logs/retry-queue" in human.err


async def test_history_says_of_what_is_held_all_that_holds_it(world: World) -> None:
    event_id = await world.accept()
    await world.set_paused(PauseScope.ORG, True)
    await world.set_paused(PauseScope.INSTALLATION, True)
    assert await world.claim() == []  # meets what is shut, and holds it

    async def told() -> str:
        ended = await redrive("events", "history", str(event_id), "--json", url=world.url)
        what: str = ended.objects[-1]["what"]
        return what

    assert await told() == "held: the installation is paused and the org is paused"
    await world.set_disabled(True)
    await world.set_paused(PauseScope.INSTALLATION, False)
    assert await told() == 'held: the org is paused and its endpoint "billing" is disabled'
    await world.set_disabled(False)
    await world.set_paused(PauseScope.ORG, False)
    assert await told() == "held no more: it goes on at any moment"
    human = await redrive("events", "history", str(event_id), url=world.url)
    assert "endpoint" not in human.out.splitlines()[-1]


@pytest.mark.parametrize("verb", ["show", "attempts", "history"])
async def test_an_unknown_event_is_refused(world: World, verb: str) -> None:
    ended = await redrive("events", verb, str(new_id()), url=world.url)
    assert (ended.code, ended.out) == (1, "")
    assert "There is no event" in ended.err
