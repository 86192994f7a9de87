"""Endpoints of kind apprise and a real receiver: what arrives, where nothing may go, and that nobody sees the URL."""

import asyncio
import json
import os
import socket
import subprocess
import threading
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from redrive.app import open_worker
from redrive.core.address import AddressRules
from redrive.core.outcome import Success
from redrive.core.ports import Released, Try
from redrive.destinations.apprise import MAX_AT_ONCE, AppriseDestination
from redrive.destinations.guard import Refused, Watch, guarded
from redrive.destinations.services import without
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks
from support.engine import START, ManualClock, claim_due
from support.holding import HoldingReceiver
from support.installation import Installation
from support.page import read
from support.processes import SECRET_KEY
from support.receiver import HANG, Answer

OPEN = AddressRules.parse("127.0.0.0/8")
SHUT = AddressRules()


async def chat(redrive: Installation, receiver: HoldingReceiver, path: str = "canary-token", **fields: object) -> Any:
    given = {
        "name": f"chat {uuid4().hex}",
        "kind": "apprise",
        "apprise_url": f"json://canary-user:canary-password@127.0.0.1:{receiver.port}/{path}",
        "event_types": ["only.this"],
    }
    return await redrive.api.post("/v1/endpoints", {**given, **fields})


async def test_an_event_reaches_the_service_and_its_url_reaches_nobody(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as lines:
        endpoint = await chat(redrive, receiver)
        event_id = await redrive.api.event(endpoint["id"], {"order": 7})
        receiver.usual = 500
        await redrive.work()
        receiver.usual = 200
        clock.advance(5)
        await redrive.work()
        receiver.usual = 404
        await redrive.api.event(endpoint["id"])
        await redrive.work()
        letter = await redrive.api.letter(endpoint["id"])
    sent = receiver.requests[1]
    assert (sent.path, sent.headers["authorization"][:6]) == ("/canary-token", "Basic ")
    body = json.loads(sent.body)
    assert (body["title"], body["type"]) == ("[Redrive] invoice.paid", "info")
    assert f"Event: {event_id}" in body["message"]

    failed, succeeded = await redrive.api.attempts(event_id)
    assert (failed["category"], succeeded["result"]) == ("server_error", "succeeded")
    assert (failed["request"]["method"], failed["request"]["url"]) == ("NOTIFY", "apprise://json")
    assert (letter["kind"], letter["category"]) == ("apprise", "client_error")
    assert endpoint["apprise_url"] == "json://[redacted]"
    path = f"/v1/endpoints/{endpoint['id']}"
    shown = [
        endpoint,
        await redrive.api.get(path),
        await redrive.api.get("/v1/endpoints"),
        await redrive.api.get(f"/v1/dead-letters/{letter['id']}"),
        await redrive.api.get("/v1/audit"),
        [failed, succeeded],
        lines,
        (await read(redrive.api.http, f"/endpoints/{endpoint['id']}")).text,
        (await read(redrive.api.http, f"/endpoints/{endpoint['id']}/edit")).text,
        (await read(redrive.api.http, f"/integrations/logs/{failed['task_id']}")).text,
        capfd.readouterr(),
    ]
    assert "canary" not in json.dumps(shown, default=str)
    assert str(receiver.port) not in json.dumps([failed, letter], default=str)

    changed = await redrive.api.http.request("PATCH", path, {"apprise_url": "json://[redacted]", "name": "c"})
    assert (changed.status, changed.json["apprise_url"]) == (200, "json://[redacted]")
    receiver.usual = 200
    await redrive.api.post(f"{path}/test")
    await redrive.work()
    assert (receiver.requests[-1].path, json.loads(receiver.requests[-1].body)["title"]) == (
        "/canary-token",
        "[Redrive] Test",
    )


async def test_a_service_that_hangs_or_sends_elsewhere_costs_a_try_and_no_thread(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    before = threading.active_count()
    slow = await chat(redrive, receiver, "slow?rto=60&redirect=yes", timeout_s=1)
    receiver.script(HANG, Answer(302, headers={"location": receiver.url_of("/elsewhere")}))
    event_id = await redrive.api.event(slow["id"])
    await redrive.work()
    clock.advance(5)
    await redrive.work()
    hung, sent_away = await redrive.api.attempts(event_id)
    assert (hung["category"], hung["possible_duplicate"]) == ("timeout", True)
    assert (sent_away["category"], "error=302" in sent_away["error_message"]) == ("client_error", True)
    assert receiver.of_path("/elsewhere") == []
    assert threading.active_count() <= before + 1


async def test_while_a_service_hangs_others_are_told(redrive: Installation, receiver: HoldingReceiver) -> None:
    book = EndpointTermsBook(redrive.stores.engine, Sealer.from_passphrase(SECRET_KEY))
    made = AppriseDestination(OPEN, book, slot_wait_s=0.05)
    slow, quick = await chat(redrive, receiver, "slow"), await chat(redrive, receiver, "quick")
    receiver.script(*[HANG] * MAX_AT_ONCE, path="/slow")
    for endpoint in [slow] * (2 * MAX_AT_ONCE) + [quick]:
        await redrive.api.event(endpoint["id"])
    jobs = (await claim_due(Tasks(redrive.stores.engine, redrive.clock), queues=made.queues)).jobs
    await made.prepare(jobs)
    (to_quick,) = (job for job in jobs if str(job.endpoint_id) == quick["id"])
    tries = [
        asyncio.create_task(made.attempt(job._replace(timeout_s=9.0), START)) for job in jobs if job is not to_quick
    ]
    given_back = [await each for each in asyncio.as_completed(tries[MAX_AT_ONCE // 4 :])]
    assert {str(each.why) for each in given_back if isinstance(each, Released)} == {
        "Not tried: 4 messages of its endpoint were on their way, and none ended within 0.05 s."
    }
    told = await made.attempt(to_quick, START)
    assert isinstance(told, Try)
    assert told.outcome == Success()
    for each in tries:
        each.cancel()
    ended = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, asyncio.CancelledError) for each in ended) == MAX_AT_ONCE // 4


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_what_deliveries_may_not_reach_apprise_may_not_either(
    redrive: Installation, receiver: HoldingReceiver, host: str
) -> None:
    endpoint = await chat(redrive, receiver, apprise_url=f"json://{host}:{receiver.port}/x")
    event_id = await redrive.api.event(endpoint["id"])
    shut = redrive.settings.model_copy(update={"allow_networks": ()})
    async with open_worker(shut, redrive.stores.engine, clock=redrive.clock, dice=lambda: 0.5) as worker:
        await worker.run_until_idle()
    (attempt,) = await redrive.api.attempts(event_id)
    assert attempt["category"] == "configuration"
    assert "may not be sent to" in attempt["error_message"]
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mailto://user:canary@example.com", "kind mail"),
        ("dbus://", "cannot be used"),
        ("gnome://", "cannot be used"),
        ("macosx://", "cannot be used"),
        ("syslog://", "cannot be used"),
        ("windows://", "cannot be used"),
        ("RSYSLOG://127.0.0.1/canary", "cannot be used"),
        ("nothing://canary", "not a URL of a service"),
        ("slack://canary", "not a URL of a service"),
        ("canary", "begins with"),
        ("json://10.0.0.7/canary", "not reachable"),
        ("json://0.0.0.0/canary", "not reachable"),
        ("json://[::1]/canary", "not reachable"),
        ("json://a.example/can\r\nary", "visible ASCII"),
        ("json://[redacted]", "no stored URL"),
        ("ntfy://chat.example/canary/canary-two", "has 2 targets: make an endpoint for each"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused_and_not_repeated(
    redrive: Installation, url: str, said: str
) -> None:
    answer = await redrive.api.http.post("/v1/endpoints", {"name": "c", "kind": "apprise", "apprise_url": url})
    assert (answer.status, answer.json["errors"][0]["loc"][:2]) == (422, ["body", "apprise_url"])
    assert said in answer.json["errors"][0]["msg"]
    assert b"canary" not in answer.body


async def test_an_endpoint_with_several_targets_that_was_saved_before_goes_on_and_says_who_may_be_told_twice(
    redrive: Installation, receiver: HoldingReceiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"mmost://127.0.0.1:{receiver.port}/canarycanarycanarycanary12?channels=told,failing"
    with monkeypatch.context() as older:
        older.setattr("redrive.destinations.services._targets", lambda _: 1)
        endpoint = await chat(redrive, receiver, apprise_url=url)
    receiver.script(200, 503)
    event_id = await redrive.api.event(endpoint["id"])
    await redrive.work()
    path = f"/v1/endpoints/{endpoint['id']}"
    for change in ({"name": "renamed"}, {"apprise_url": "mmost://[redacted]"}):
        assert (await redrive.api.http.request("PATCH", path, change)).status == 200
    refused = await redrive.api.http.request("PATCH", path, {"apprise_url": url})
    assert (refused.status, refused.json["errors"][0]["loc"]) == (422, ["body", "apprise_url"])
    clock.advance(5)
    await redrive.work()
    failed, succeeded = await redrive.api.attempts(event_id)
    assert (failed["result"], failed["possible_duplicate"]) == ("failed", True)
    assert succeeded["result"] == "succeeded"


def test_inside_a_guarded_call_nothing_else_of_the_machine_is_to_be_had(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    watch = Watch(OPEN)
    with guarded(watch):
        for forbidden in (
            lambda: subprocess.run(["true"], check=False),
            lambda: os.system("true"),
            lambda: secret.read_text(),
            lambda: (tmp_path / "new").write_text("x"),
            lambda: secret.unlink(),
            lambda: threading.Thread(target=print).start(),
            lambda: socket.socket(socket.AF_UNIX).connect("/run/nothing"),
            lambda: socket.socket().connect(("localhost", 1)),
            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("10.0.0.1", 9)),
        ):
            with pytest.raises(Refused):
                forbidden()
    assert secret.read_text() == "canary"
    assert subprocess.run(["true"], check=False).returncode == 0
    with guarded(Watch(SHUT)), pytest.raises(Refused):
        socket.create_connection(("127.0.0.1", 1), timeout=1)


def test_no_part_of_a_url_is_left_in_what_apprise_says() -> None:
    url = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/%23general?footer=no"
    said = "POST to hooks.example/T1JJ3T3L2/a1brtd4jd for #general failed: TIiajkdnlazkcOXrIdevi7FQ"
    assert without(url, said) == "POST to hooks.example/[redacted]/[redacted] for #[redacted] failed: [redacted]"
