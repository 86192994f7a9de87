"""Notices on their way to people: in queues of their own, which the API process serves: they need no worker."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook

from redrive.api_process import open_notice_worker, run_api
from redrive.app import open_sweeper
from redrive.core.channels import notice_queue
from redrive.core.ports import HTTP_QUEUE
from redrive.engine.herald import Herald
from redrive.engine.janitor import Janitor
from redrive.settings import Settings
from redrive.store.audit import Act
from redrive.store.notices import Notices
from redrive.store.retention import Retention
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks
from support.engine import Engine, ManualClock, Shared, claim_due, live, until
from support.holding import HoldingReceiver
from support.installation import Installation
from support.mail import MailServer
from support.oracle import assert_sound
from support.processes import SECRET_KEY

from .conftest import PUBLIC_URL
from .test_apprise import chat
from .test_mail import OPS, mailbox

__all__ = ["live"]


async def herald(redrive: Installation) -> int:
    return await Herald(Notices(redrive.stores.engine, redrive.clock)).look()


async def tell(redrive: Installation) -> None:
    """What the API's process does of it, without any worker."""
    await herald(redrive)
    sealer = Sealer.from_passphrase(SECRET_KEY)
    engine = redrive.stores.engine
    async with open_notice_worker(redrive.settings, engine, sealer, redrive.clock, dice=lambda: 0.5) as worker:
        await worker.run_until_idle()


async def test_a_dead_letter_reaches_people_by_mail_and_webhook_without_a_worker(
    redrive: Installation,
    mail: MailServer,
    receiver: HoldingReceiver,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver.script(404, path="/broken")
    broken = await redrive.api.endpoint(receiver.url_of("/broken"))
    people = await mailbox(redrive, event_types=["redrive.dead_letter"])
    ops = await redrive.api.endpoint(receiver.url_of("/ops"), event_types=["redrive.*"], ordered=True)
    event_id = await redrive.api.event(broken["id"])
    await redrive.work()
    letter = await redrive.api.letter(broken["id"])
    waits = await redrive.api.event(broken["id"])  # not for the API's process

    await tell(redrive)
    (message,) = mail.messages
    (told,) = receiver.of_path("/ops")
    verifier = Webhook(ops["secret"])
    monkeypatch.setattr(verifier, "_Webhook__verify_timestamp", lambda _: clock.now())  # the test's clock is elsewhere
    notice = verifier.verify(told.body, dict(told.headers))
    assert message["subject"].startswith('[Redrive default] ERROR: invoice.paid for endpoint "endpoint ')
    text = message.get_content()
    assert f"Look at it: {PUBLIC_URL}/app/admin/dlq/{letter['id']}" in text
    assert f"event id: {event_id}" in text
    assert f"Notice: {notice['id']}" in text
    assert (notice["kind"], notice["subject"]["id"]) == ("dead_letter", letter["id"])
    assert (await redrive.api.status(waits))["status"] == "queued"

    assert await herald(redrive) == 0
    await redrive.work()
    assert len(mail.messages) == 1
    (delivery,) = await redrive.api.deliveries(people["id"])
    assert delivery["status"] == "delivered"


async def test_notices_wait_in_queues_of_their_own_and_in_the_order_of_their_endpoint(
    redrive: Installation, mail: MailServer, receiver: HoldingReceiver, clock: ManualClock, shared_database: Shared
) -> None:
    ops = await redrive.api.endpoint(receiver.url, event_types=["redrive.*"], ordered=True)
    await mailbox(redrive, event_types=["redrive.lane.*"])
    before = await redrive.api.event(ops["id"])
    for text in ("First.", "Second."):
        await shared_database.owner.execute(
            "SELECT redrive.note($1, 'lane.moving', 'info', 'org', NULL, $2, '{}', $3)",
            redrive.org_id,
            text,
            clock.advance(1),
        )
    await herald(redrive)
    tasks = Tasks(redrive.stores.engine, clock)
    rows = await shared_database.owner.fetch(
        "SELECT queue, count(*) AS n FROM redrive.task GROUP BY queue ORDER BY queue"
    )
    assert [tuple(row) for row in rows] == [("http", 1), ("notice.http", 2), ("notice.mail", 2)]
    assert (await claim_due(tasks, queues=(notice_queue(HTTP_QUEUE),))).jobs == []  # behind what came before

    await tell(redrive)
    assert receiver.requests == []
    assert {message["subject"] for message in mail.messages} == {"[Redrive default] First", "[Redrive default] Second"}
    await redrive.work()
    assert receiver.ids[0] == before
    assert [json.loads(request.body)["text"] for request in receiver.requests[1:]] == ["First.", "Second."]


async def test_a_notice_for_an_endpoint_that_is_paused_is_held_and_goes_on_when_it_is_resumed(
    redrive: Installation, mail: MailServer, clock: ManualClock, shared_database: Shared
) -> None:
    people = await mailbox(redrive, event_types=["redrive.*"])
    await redrive.api.post(f"/v1/endpoints/{people['id']}/pause")
    await shared_database.owner.execute(
        "SELECT redrive.note($1, 'endpoint.disabled', 'error', 'endpoint', $2, 'It fails.', '{}', $3)",
        redrive.org_id,
        UUID(people["id"]),
        clock.now(),
    )
    await tell(redrive)
    assert mail.messages == []
    await redrive.api.post(f"/v1/endpoints/{people['id']}/resume")
    await tell(redrive)
    assert [message["subject"] for message in mail.messages] == ["[Redrive default] ERROR: It fails"]
    assert f"{PUBLIC_URL}/endpoints/{people['id']}" in mail.messages[0].get_content()


async def test_whether_people_are_reached_can_be_tested_without_a_worker(
    redrive: Installation, mail: MailServer, receiver: HoldingReceiver
) -> None:
    people = await mailbox(redrive, ordered=True)
    service = await chat(redrive, receiver)
    for endpoint in (people, service):
        await redrive.api.post(f"/v1/endpoints/{endpoint['id']}/test")
    await tell(redrive)
    assert [message["subject"] for message in mail.messages] == ["[Redrive] Test"]
    assert [json.loads(request.body)["title"] for request in receiver.requests] == ["[Redrive] Test"]
    for endpoint in (people, service):
        (delivery,) = await redrive.api.deliveries(endpoint["id"])
        assert delivery["status"] == "delivered"


async def test_the_process_of_the_api_alone_tells_people(live: Engine, mail: MailServer) -> None:
    live.sealer = Sealer.from_passphrase(SECRET_KEY)
    await live.endpoint("people", None, kind="mail", to=(OPS,), event_types=("redrive.*",))
    settings = Settings(
        secret_key=SecretStr(SECRET_KEY), smtp_url=SecretStr(mail.url), mail_from="redrive@sender.test", port=0
    )
    listener = socket.create_server(("127.0.0.1", 0))
    stop = asyncio.Event()
    running = asyncio.create_task(run_api(settings, live.url, stop, listener=listener))
    try:
        await live.sql.execute(
            "SELECT redrive.note($1, 'worker.none', 'error', 'org', NULL, 'No worker is at work.')", live.org_id
        )

        async def has_come() -> bool:
            return bool(mail.messages)

        await until(has_come, within_s=20)
    finally:
        stop.set()
        await running
    assert mail.messages[0]["subject"] == "[Redrive default] ERROR: No worker is at work"
    await assert_sound(live.url)


async def test_a_task_that_used_up_its_retries_and_one_that_waited_for_a_week_are_each_a_mail(
    redrive: Installation, mail: MailServer, receiver: HoldingReceiver, clock: ManualClock
) -> None:
    """What administrators are told of: the last retry failed, and pending for seven days."""
    await mailbox(redrive, event_types=["redrive.dead_letter"])
    broken = await redrive.api.endpoint(receiver.url)
    relay = await redrive.api.relay()
    receiver.usual = 503
    await redrive.api.event(broken["id"])
    await redrive.work()
    for delay_s in (5, 30, 300):
        assert mail.messages == []
        clock.advance(delay_s)
        await redrive.work()
        await tell(redrive)
    (exhausted,) = mail.messages
    assert "its retries are used up" in " ".join(exhausted.get_content().split())

    await redrive.api.webhook(relay, b"1")
    clock.advance(7 * 86_400 + 3_600)
    async with open_sweeper(redrive.settings, redrive.url, Act("engine"), clock=clock) as sweeper:
        await Janitor(lambda: _opened(sweeper), every_s=3_600, dice=lambda: 0.5, rest=0).sweep(rested_s=1_800)
    await tell(redrive)
    _, expired = mail.messages
    assert "it is older than its policy allows" in " ".join(expired.get_content().split())


@asynccontextmanager
async def _opened(sweeper: Retention) -> AsyncIterator[Retention]:
    yield sweeper
