"""`redrive workflows` and `redrive runs`: definitions from files, and runs begun, looked at, cancelled and replayed."""

import json
from pathlib import Path
from typing import Any

import pytest

from redrive.core.decide import Die, Reason, Succeed
from redrive.core.outcome import Category, Success
from redrive.core.ports import NO_EXCHANGE, STEP_HANDLER_PREFIX, Job, Settlement
from redrive.store.tasks import Tasks
from support.engine import claim_due

from .command import Ended, redrive
from .world import BROKEN, CLOCK, World

CHARGE = {"name": "charge", "kind": "handler", "handler": "pay"}
SHIP = {"name": "ship", "kind": "handler", "handler": "pay", "input": {"ref": "{{ steps.charge.output.id }}"}}
NO_RUN = "01a1e060-ffa4-7994-baec-3e968ddb2a3e"


async def apply(world: World, *words: str, **definition: Any) -> Ended:
    text = json.dumps({"name": "fulfil", "steps": [CHARGE, SHIP], **definition}).encode()
    return await redrive("workflows", "apply", "-", *words, url=world.url, stdin=text)


async def claim_step(world: World) -> Job:
    claim = await claim_due(Tasks(world.engine, CLOCK), 1, queues=(f"{STEP_HANDLER_PREFIX}pay",))
    [job] = claim.jobs
    return job


async def succeed(world: World, output: bytes = b'{"id": "c-7"}') -> Job:
    job = await claim_step(world)
    settlement = Settlement(job, Success(), Succeed(), NO_EXCHANGE, 0.01, output)
    await Tasks(world.engine, CLOCK).settle([settlement])
    return job


async def die(world: World) -> Job:
    job = await claim_step(world)
    await world.settle(job, BROKEN, Die(Reason.EXHAUSTED, Category.SERVER_ERROR))
    return job


async def shown(world: World, run_id: str) -> tuple[str, list[str]]:
    run = (await redrive("runs", "show", run_id, "--json", url=world.url)).object
    return run["status"], [step["status"] for step in run["steps"]]


async def started(world: World) -> str:
    assert (await apply(world)).code == 0
    begun = await redrive("runs", "start", "fulfil", "--input", '{"order": 7}', url=world.url)
    assert begun.code == 0, begun.err
    return begun.out.strip()


async def test_a_definition_is_applied_shown_changed_and_deleted(world: World) -> None:
    empty = await redrive("workflows", "list", url=world.url)
    assert (empty.code, empty.out) == (0, "")
    made = await apply(world, "--because", "first", description="Orders.")
    assert (made.code, made.err.strip()) == (0, 'Workflow "fulfil" is now at version 1.')
    again = await apply(world, "--json", description="Orders.")
    assert again.object["version"] == 1
    assert "as it was, at version 1" in (await apply(world, description="Orders.")).err
    assert (await apply(world, "--json", steps=[CHARGE])).object["version"] == 2
    other = await apply(world, "--name", "copy", "--json")
    assert (other.object["name"], other.object["version"]) == ("copy", 1)
    listed = (await redrive("workflows", "list", "--json", url=world.url)).objects
    assert [(one["name"], one["version"], len(one["steps"])) for one in listed] == [("copy", 1, 2), ("fulfil", 2, 1)]
    first = await redrive("workflows", "show", "fulfil", "--version", "1", url=world.url)
    assert "Orders." in first.out
    assert "ship" in first.out
    assert "fulfil" in (await redrive("workflows", "list", url=world.url)).out
    gone = await redrive("workflows", "delete", "fulfil", "--because", "not used", url=world.url)
    assert (gone.code, gone.err.strip()) == (0, 'Workflow "fulfil" is deleted. Its runs go on.')
    for words in (("show", "fulfil"), ("delete", "fulfil"), ("show", "copy", "--version", "9")):
        refused = await redrive("workflows", *words, url=world.url)
        assert refused.code == 1
        assert "redrive workflows list" in refused.err
    audit = (await redrive("audit", "--action", "workflow.delete", "--json", url=world.url)).object
    assert audit["because"] == "not used"


async def test_what_show_prints_can_be_applied_again_and_keeps_its_secrets(world: World, tmp_path: Path) -> None:
    call = {
        "name": "call",
        "kind": "http",
        "url": "https://pay.example.com/",
        "headers": {"Authorization": "Bearer t0p"},
    }
    without_key = {"REDRIVE_DATABASE_URL": world.url, "REDRIVE_DATA_DIR": str(tmp_path)}
    file = tmp_path / "fulfil.json"
    file.write_text(json.dumps({"name": "fulfil", "steps": [call]}))
    refused = await redrive("workflows", "apply", str(file), env=without_key)
    assert refused.code == 1
    assert "REDRIVE_SECRET_KEY" in refused.err
    assert (await redrive("workflows", "apply", str(file), url=world.url)).code == 0
    text = (await redrive("workflows", "show", "fulfil", "--json", url=world.url)).out
    assert "t0p" not in text
    file.write_text(text)
    again = await redrive("workflows", "apply", str(file), "--json", url=world.url)
    assert (again.code, again.object["version"]) == (0, 1)
    copied = await redrive("workflows", "apply", str(file), "--name", "copy", url=world.url)
    assert copied.code == 2
    assert "steps.0.headers.Authorization: has no stored value" in copied.err
    file.write_text(json.dumps({"name": "plain", "steps": [CHARGE]}))
    plain = await redrive("workflows", "apply", str(file), env=without_key)
    assert plain.code == 0, "without headers there is nothing to seal"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            '{"name": "a", "steps": [{"name": "1", "kind": "fax"}]}',
            2,
            ["steps.0.name: must be", "steps.0.kind: must be"],
        ),
        (
            '{"name": "a", "steps": [{"name": "s", "kind": "wait", "wait_s": 1, "policy": "none"}]}',
            1,
            ["steps.0.policy: "],
        ),
        ('{"steps": []}', 2, ["--name"]),
        ("[]", 2, ["JSON object"]),
        ('{"name": NaN}', 2, ["is not JSON (name): NaN"]),
        ("{", 2, ["is not JSON"]),
    ],
)
async def test_a_definition_that_cannot_be_used_is_told_with_the_places(
    world: World, text: str, code: int, said: list[str]
) -> None:
    ended = await redrive("workflows", "apply", "-", url=world.url, stdin=text.encode())
    assert (ended.code, ended.out) == (code, "")
    assert all(part in ended.err for part in said), ended.err


async def test_a_file_that_is_not_there_is_told(world: World) -> None:
    ended = await redrive("workflows", "apply", "/no/such/file.json", url=world.url)
    assert (ended.code, ended.err.strip()) == (2, "/no/such/file.json cannot be read: No such file or directory.")


async def test_a_run_is_begun_once_under_a_key(world: World, tmp_path: Path) -> None:
    assert (await redrive("runs", "start", "fulfil", url=world.url)).code == 1
    assert (await apply(world)).code == 0
    file = tmp_path / "input.json"
    file.write_text('{"order": 7}')
    words = ("runs", "start", "fulfil", "--key", "order-7", "--correlation-id", "c-1", "--input")
    begun = (await redrive(*words, f"@{file}", "--json", url=world.url)).object
    assert (begun["status"], begun["deduplicated"]) == ("PENDING", False)
    again = (await redrive(*words, "-", "--json", url=world.url, stdin=b'{"order": 7}')).object
    assert again == begun | {"deduplicated": True}
    other = await redrive(*words, '{"order": 8}', url=world.url)
    assert other.code == 1
    assert '"order-7" was used for another' in other.err
    assert (await redrive(*words, "{", url=world.url)).code == 2
    assert (await redrive("runs", "start", "fulfil", "--key", "ä", url=world.url)).code == 2
    without = await redrive("runs", "start", "fulfil", url=world.url)
    run = (await redrive("runs", "show", without.out.strip(), "--json", url=world.url)).object
    assert run["input"] is None
    run = (await redrive("runs", "show", begun["run_id"], "--json", url=world.url)).object
    assert (run["input"], run["correlation_id"]) == ({"order": 7}, "c-1")


async def test_runs_are_listed_and_shown_with_where_they_stand(world: World) -> None:
    run_id = await started(world)
    await succeed(world)
    job = await die(world)
    table = await redrive("runs", "list", "--workflow", "fulfil", "--status", "dlq_pending", url=world.url)
    assert run_id in table.out
    assert "1 / 2" in table.out
    [listed] = (await redrive("runs", "list", "--since", "1h", "--json", url=world.url)).objects
    assert (listed["run_id"], listed["status"]) == (run_id, "DLQ_PENDING")
    none = await redrive("runs", "list", "--status", "SUCCESS", url=world.url)
    assert (none.code, none.out, none.err.strip()) == (0, "", "There are no such runs.")
    assert (await redrive("runs", "list", "--status", "LOST", url=world.url)).code == 2
    run = await redrive("runs", "show", run_id, url=world.url)
    for part in ("DLQ_PENDING", str(job.id), "the receiver answered 503", '"order": 7', '"id": "c-7"'):
        assert part in run.out
    letter = (await redrive("dead", "show", str(job.id), "--json", url=world.url)).object
    assert (letter["kind"], letter["run_id"], letter["step_index"]) == ("step", run_id, 1)
    nobody = await redrive("runs", "show", NO_RUN, url=world.url)
    assert (nobody.code, "redrive runs list" in nobody.err) == (1, True)


async def test_a_run_is_replayed_from_a_step_or_that_step_alone(world: World) -> None:
    run_id = await started(world)
    await succeed(world)
    job = await die(world)
    both = ("--new-key", "--because", "charged wrongly", "--policy", "immediate")
    replayed = await redrive("runs", "replay", run_id, "--from-step", "0", *both, url=world.url)
    assert (replayed.code, replayed.err.strip()) == (0, f"Run {run_id} goes on with step 0.")
    assert await world.letter_state(job.id) == "replaying"
    again = await redrive("runs", "replay", run_id, "--from-step", "0", url=world.url)
    assert (again.code, "is under way" in again.err) == (1, True)
    await succeed(world, b'{"id": "c-8"}')
    last = await claim_step(world)
    assert (last.id, json.loads(last.body)) == (job.id, {"ref": "c-8"})
    await world.settle(last, BROKEN, Die(Reason.EXHAUSTED, Category.SERVER_ERROR))
    words = ("runs", "replay", run_id, "--from-step")
    assert "has 2 steps" in (await redrive(*words, "2", url=world.url)).err
    assert "no policy named" in (await redrive(*words, "1", "--policy", "none", url=world.url)).err
    alone = await redrive(*words, "0", "--only", "--input", '{"order": 8}', "--json", url=world.url)
    assert alone.object["status"] == "RUNNING"
    first = await succeed(world)
    assert json.loads(first.body) == {"order": 8}
    assert (await shown(world, run_id))[1] == ["SUCCESS", "DLQ"]
    audit = (await redrive("audit", "--action", "run.replay", "--json", url=world.url)).objects
    assert [(one["because"], one["after"]["mode"]) for one in audit] == [
        (None, "STEP_ONLY"),
        ("charged wrongly", "FROM_STEP"),
    ]
    assert (await redrive("runs", "replay", NO_RUN, "--from-step", "0", url=world.url)).code == 1


async def test_a_run_is_cancelled_after_the_try_under_way(world: World) -> None:
    run_id = await started(world)
    ended = await redrive("runs", "cancel", run_id, "--because", "wrong order", url=world.url)
    assert (ended.code, ended.err.strip()) == (0, f"Run {run_id} is cancelled.")
    assert await shown(world, run_id) == ("FAILED", ["FAILED", "PENDING"])
    assert "wrong order" in (await redrive("runs", "show", run_id, url=world.url)).out
    again = await redrive("runs", "cancel", run_id, url=world.url)
    assert (again.code, "nothing left to cancel" in again.err) == (1, True)
    begun = await redrive("runs", "start", "fulfil", url=world.url)
    await claim_step(world)
    meanwhile = await redrive("runs", "cancel", begun.out.strip(), url=world.url)
    assert "ends with the try that is under way" in meanwhile.err
    assert (await redrive("runs", "cancel", begun.out.strip(), "--json", url=world.url)).object["cancelled"][
        "because"
    ] is None
    assert (await redrive("runs", "cancel", NO_RUN, url=world.url)).code == 1


async def test_the_history_of_a_steps_event_tells_that_its_run_waits(world: World) -> None:
    await started(world)
    job = await die(world)
    told = (await redrive("events", "history", str(job.event_id), "--json", url=world.url)).objects
    assert [one["what"] for one in told if one["what"] not in ("accepted", "try failed", "failed")] == [
        "died",
        "its run waits for a person",
    ]


async def test_a_step_that_leads_to_a_closed_address_is_refused(world: World) -> None:
    inward = {"name": "call", "kind": "http", "url": "http://169.254.169.254/{{ input.x }}"}
    refused = await apply(world, steps=[inward])
    assert (refused.code, "steps.0.url: 169.254.169.254 is not reachable" in refused.err) == (1, True)
