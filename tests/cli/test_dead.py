"""`redrive dead`: what a person at a terminal does with dead letters."""

import json
from datetime import timedelta
from uuid import UUID

import pytest

from redrive.core.broker import QueueState
from redrive.core.decide import RetryIn
from redrive.core.outcome import Category, Failure
from redrive.store.check import check
from redrive.store.dead_messages import DeadMessages
from redrive.store.orgs import new_id

from .command import redrive
from .world import CLOCK, World


async def actions_on(world: World, subject: UUID) -> list[tuple[str, str, str | None]]:
    """Who did what and why, from the audit."""
    pool = world.engine._pool  # the store has no reader of the audit
    rows = await pool.fetch(
        "SELECT actor, action, because FROM redrive.audit WHERE subject_id = $1 ORDER BY id", subject
    )
    return [(row["actor"], row["action"], row["because"]) for row in rows]


async def test_the_list_shows_ids_whole_and_why_they_died(world: World) -> None:
    first, second = await world.dead("order.paid"), await world.dead("order.sent")
    ended = await redrive("dead", "list", url=world.url)
    assert ended.code == 0
    heading, *lines = ended.out.splitlines()
    assert heading.split()[:2] == ["ID", "EVENT"]
    assert [line.split()[0] for line in lines] == [str(second), str(first)]  # newest first
    assert all("exhausted" in line and "server_error" in line and "503" in line for line in lines)


async def test_json_is_one_object_per_line_and_nothing_else(world: World) -> None:
    task_id = await world.dead()
    letter = (await redrive("dead", "list", "--json", url=world.url)).object
    assert letter["id"] == letter["log_id"] == str(task_id)
    assert (letter["state"], letter["reason"], letter["category"]) == ("open", "exhausted", "server_error")
    assert letter["failed_at"].endswith("Z")
    assert letter["max_retries"] == 3


async def test_filters_narrow_the_list(world: World) -> None:
    await world.dead("order.paid")
    sent = await world.dead("order.sent")
    await world.mark(await world.dead("order.lost"), "ignore")

    async def listed(*words: str) -> list[str]:
        ended = await redrive("dead", "list", "--json", *words, url=world.url)
        assert ended.code == 0, ended.err
        return [letter["event_type"] for letter in ended.objects]

    assert await listed("--event-type", "order.sent") == ["order.sent"]
    assert await listed("--state", "ignored") == ["order.lost"]
    assert await listed("--endpoint", "billing", "--q", "sent") == ["order.sent"]
    assert await listed("--since", "1h", "--limit", "1") == ["order.sent"]
    assert await listed("--until", "2020-01-01") == []
    shown = await redrive("dead", "show", str(sent), "--json", url=world.url)
    assert shown.object["event_type"] == "order.sent"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--state", "alive"), "There are: open"),
        (("--reason", "bored"), "There are: permanent"),
        (("--since", "yesterday"), "is no time"),
        (("--limit", "0"), "--limit"),
        (("--kind", "pigeon"), "There are: http, relay"),
    ],
)
async def test_a_filter_that_cannot_be_meant_is_wrong_usage(world: World, words: tuple[str, ...], said: str) -> None:
    ended = await redrive("dead", "list", *words, url=world.url)
    assert ended.code == 2
    assert said in ended.err
    assert ended.out == ""


async def test_an_empty_list_says_so_on_stderr(world: World) -> None:
    ended = await redrive("dead", "list", url=world.url)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "No failed events. All integrations healthy.\n"


async def test_a21_an_empty_list_says_that_all_is_well_only_if_it_is(world: World) -> None:
    await world.accept()
    await world.fail(await world.claim_one())
    ended = await redrive("dead", "list", url=world.url)
    assert ended.err == "No dead letters. 1 delivery is waiting for a retry.\n"
    ended = await redrive("dead", "list", "--kind", "http", url=world.url)
    assert ended.err == "No dead letters match these filters.\n"


async def test_show_tells_every_attempt_and_hides_secrets_of_the_payload(world: World) -> None:
    await world.accept(body=b'{"order": 7, "password": "hunter2"}')
    await world.fail(await world.claim_one())
    job = await world.claim_one()
    await world.die(job)
    human, machine = (
        await redrive("dead", "show", str(job.id), url=world.url),
        await redrive("dead", "show", str(job.id), "--json", url=world.url),
    )
    assert human.code == 0
    assert str(job.id) in human.out
    assert human.out.count("the receiver answered 503") == 3  # the letter, and two attempts
    assert "hunter2" not in human.out + machine.out
    assert machine.object["payload_snapshot"] == {"order": 7, "password": "[redacted]"}
    assert [one["result"] for one in machine.object["attempts"]] == ["failed", "failed"]


async def test_show_tells_what_a_message_was_in_its_broker_and_the_queues_are_listed(world: World) -> None:
    task_id = await world.dead_message()
    shown = await redrive("dead", "show", str(task_id), url=world.url)
    assert all(said in shown.out for said in ("orders-dlq", "order.paid", '"x-tenant": "north"', "[redacted]"))
    assert (await redrive("broker", url=world.url)).out == ""
    seen = QueueState("orders-dlq", True, "Nobody may read it.", 3, 0, 2, 1)
    await DeadMessages(world.engine, world.org_id, CLOCK).note([seen, seen._replace(queue="orders", is_source=False)])
    listed = [json.loads(line) for line in (await redrive("broker", "--json", url=world.url)).out.splitlines()]
    assert [(queue["queue"], queue["messages"], queue["open_letters"]) for queue in listed] == [
        ("orders-dlq", 3, 0),
        ("orders", 3, 1),
    ]
    assert "Nobody may read it." in (await redrive("broker", url=world.url)).out


async def test_text_from_outside_cannot_reach_the_terminal(world: World) -> None:
    await world.accept()
    job = await world.claim_one()
    nasty = Failure(Category.SERVER_ERROR, "\x1b[2Jgone \u202e[red]mark[/red]\nup", status_code=500)
    await world.settle(job, nasty, RetryIn(timedelta(hours=1)))
    await world.skip(job.id)
    ended = await redrive("dead", "list", url=world.url)
    assert "\\x1b[2Jgone \\u202e[red]mark[/red]\\nup" in ended.out


async def test_retry_redrives_each_id_and_is_audited(world: World) -> None:
    ids = [await world.dead() for _ in range(3)]
    ended = await redrive("dead", "retry", *map(str, ids), "--because", "fixed", url=world.url)
    assert (ended.code, ended.out, ended.err) == (0, "", "3 redriven.\n")
    assert [await world.letter_state(task_id) for task_id in ids] == ["replaying"] * 3
    [(actor, action, because)] = await actions_on(world, ids[0])
    assert actor.startswith("cli:")
    assert (action, because) == ("dead_letter.retry", "fixed")
    assert await world.claim() == []  # due after the policy's first delay


async def test_retry_now_is_due_at_once(world: World) -> None:
    task_id = await world.dead()
    assert (await redrive("dead", "retry", str(task_id), "--now", url=world.url)).code == 0
    assert (await world.claim_one()).id == task_id


@pytest.mark.parametrize(("verb", "state"), [("resolve", "resolved"), ("ignore", "ignored")])
async def test_closing_needs_nothing_but_the_id(world: World, verb: str, state: str) -> None:
    task_id = await world.dead()
    ended = await redrive("dead", verb, str(task_id), url=world.url)
    assert (ended.code, ended.err) == (0, f"1 {state}.\n")
    assert await world.letter_state(task_id) == state


async def test_what_was_closed_by_mistake_is_reopened(world: World) -> None:
    one, other = await world.dead(), await world.dead()
    await world.mark(one, "resolve")
    await world.mark(other, "ignore")
    ended = await redrive("dead", "reopen", str(one), url=world.url)
    assert (ended.code, ended.err) == (0, "1 reopened.\n")
    assert await world.letter_state(one) == "open"
    unclear = await redrive("dead", "reopen", "--all", "--yes-all", url=world.url)
    assert unclear.code == 2
    assert "--state ignored" in unclear.err
    every = ("dead", "reopen", "--all", "--state", "ignored")
    assert "every ignored dead letter" in (await redrive(*every, url=world.url)).err
    assert (await redrive(*every, "--yes-all", url=world.url)).code == 0
    assert await world.letter_state(other) == "open"


async def test_delete_is_refused_without_yes_and_leaves_an_audit_entry(world: World) -> None:
    task_id = await world.dead()
    refused = await redrive("dead", "delete", str(task_id), url=world.url)
    assert refused.code == 1
    assert "--yes" in refused.err
    assert await world.letter_state(task_id) == "open"
    assert (await redrive("dead", "delete", str(task_id), "--yes", url=world.url)).code == 0
    assert await world.letter_state(task_id) is None
    assert [action for _, action, _ in await actions_on(world, task_id)] == ["dead_letter.delete"]


async def test_what_cannot_be_done_is_told_per_id_and_the_rest_is_done(world: World) -> None:
    good, unknown = await world.dead(), new_id()
    replaying = await world.dead()
    await world.redrive(replaying)
    ended = await redrive("dead", "resolve", str(good), str(unknown), str(replaying), "--json", url=world.url)
    assert ended.code == 1
    problems = {answer["id"]: answer["problem"] for answer in ended.objects}
    assert problems[str(good)] is None
    assert "no such dead letter" in problems[str(unknown)]
    assert "being replayed" in problems[str(replaying)]
    assert await world.letter_state(good) == "resolved"


async def test_all_with_a_filter_takes_only_what_it_matches(world: World) -> None:
    mine = [await world.dead("order.paid") for _ in range(5)]
    other = await world.dead("order.sent")
    ended = await redrive("dead", "retry", "--all", "--event-type", "order.paid", url=world.url)
    assert (ended.code, ended.err) == (0, "5 redriven.\n")
    assert {await world.letter_state(task_id) for task_id in mine} == {"replaying"}
    assert await world.letter_state(other) == "open"
    assert (await check(world.url)).clean


async def test_all_without_a_filter_must_be_said_twice(world: World) -> None:
    task_id = await world.dead()
    refused = await redrive("dead", "ignore", "--all", url=world.url)
    assert refused.code == 1
    assert "--yes-all" in refused.err
    assert await world.letter_state(task_id) == "open"
    assert (await redrive("dead", "ignore", "--all", "--yes-all", url=world.url)).code == 0
    assert await world.letter_state(task_id) == "ignored"


async def test_all_goes_over_more_than_one_page(world: World) -> None:
    for _ in range(260):
        await world.accept()
    while jobs := await world.claim(100):
        for job in jobs:
            await world.die(job)
    ended = await redrive("dead", "resolve", "--all", "--category", "server_error", url=world.url)
    assert (ended.code, ended.err) == (0, "260 resolved.\n")
    assert (await check(world.url)).total.dead_resolved == 260


@pytest.mark.parametrize("words", [(), ("--all", "IDS"), ("IDS", "--event-type", "a")])
async def test_ids_and_filters_do_not_mix(world: World, words: tuple[str, ...]) -> None:
    given = [str(new_id()) if word == "IDS" else word for word in words]
    ended = await redrive("dead", "retry", *given, url=world.url)
    assert (ended.code, ended.out) == (2, "")
