"""Endpoints of kind mail and apprise on their pages: made by forms of their own, shown without what is secret."""

from redrive.core.ports import WorkerCard
from redrive.store.orgs import new_id
from redrive.store.workers import Workers
from support.holding import HoldingReceiver
from support.installation import Installation
from support.page import read

from .test_apprise import chat
from .test_mail import OPS, mailbox


async def test_each_kind_has_a_form_that_suggests_what_people_want_to_hear_of(redrive: Installation) -> None:
    for kind, field in (("mail", ("textarea", "to")), ("apprise", ("input", "apprise_url"))):
        new = await read(redrive.api.http, f"/endpoints/new?kind={kind}")
        assert new.one("input", name="kind").attributes["value"] == kind
        assert new.has(field[0], name=field[1])
        assert new.one("textarea", name="event_types").text.split() == ["redrive.alert.*", "redrive.dead_letter"]
        for name in ("url", "headers", "ca_pem"):
            assert not new.has("input", name=name)
            assert not new.has("textarea", name=name)
    usual = await read(redrive.api.http, "/endpoints/new")
    assert usual.has("a", text="Send mail")
    assert usual.has("a", text="Chat and the like")


async def test_their_pages_say_whom_they_reach_and_whether_a_worker_can(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    mail, service = await mailbox(redrive), await chat(redrive, receiver)
    listed = (await read(redrive.api.http, "/endpoints")).text
    assert f"mail to {OPS}" in listed
    assert "json://[redacted]" in listed
    workers = Workers(redrive.stores.engine, redrive.clock)
    card = WorkerCard(new_id(), "h", 1, "1", ("http",), 9)
    await workers.beat(card)
    for made, missing in ((mail, "REDRIVE_SMTP_URL"), (service, "redrive[notify]")):
        page = await read(redrive.api.http, f"/endpoints/{made['id']}")
        assert missing in page.text
        assert not page.has("button", text="Rotate secret")
        assert page.has("button", text="Test delivery")
        edit = await read(redrive.api.http, f"/endpoints/{made['id']}/edit")
        assert not edit.has("input", name="kind")
        assert "canary" not in page.text + edit.text
    await workers.beat(card._replace(worker_id=new_id(), queues=("http", "mail", "apprise")))
    for made in (mail, service):
        assert "No worker" not in (await read(redrive.api.http, f"/endpoints/{made['id']}")).text
