"""Endpoints of kind mail and a real mail server: what people read, whom it reaches, and what follows else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from client.harness import Authority
from redrive.app import open_worker
from redrive.core.mail import parse_sender, parse_server
from redrive.core.mail_message import Headers, written
from redrive.core.ports import Released, Try
from redrive.destinations.mail import MailDestination
from redrive.engine.worker import Worker
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.seal import Sealer
from redrive.store.tasks import Tasks
from support.engine import START, ManualClock, claim_due, until
from support.installation import Installation
from support.mail import MailServer, mail_server
from support.page import read
from support.processes import SECRET_KEY

OPS = "ops@example.com"
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
HEADERS += ["X-Redrive-Event-Id", "X-Redrive-Event-Type"]
HEADERS += ["Content-Type", "Content-Transfer-Encoding", "MIME-Version"]


async def mailbox(redrive: Installation, *to: str, **fields: object) -> dict[str, Any]:
    given = {"name": f"mail {uuid4().hex}", "kind": "mail", "to": list(to or (OPS,)), "event_types": ["only.this"]}
    made: dict[str, Any] = await redrive.api.post("/v1/endpoints", {**given, **fields})
    return made


@asynccontextmanager
async def worker(redrive: Installation, smtp_url: str) -> AsyncIterator[Worker]:
    settings = redrive.settings.model_copy(update={"smtp_url": SecretStr(smtp_url)})
    async with open_worker(settings, redrive.stores.engine, clock=redrive.clock, dice=lambda: 0.5) as opened:
        yield opened


async def test_an_event_is_one_mail_to_all_of_its_endpoint_and_shows_its_payload(
    redrive: Installation, mail: MailServer, clock: ManualClock
) -> None:
    endpoint = await mailbox(redrive, OPS, "on-call@example.org")
    event_id = await redrive.api.event(endpoint["id"], {"order": 7, "who": "Zoë ✓"})
    await redrive.work()
    (message,) = mail.messages
    assert mail.envelopes == [[OPS, "on-call@example.org"]]
    assert message["subject"] == "[Redrive] invoice.paid"
    assert (message["from"], message["to"]) == ("Redrive <redrive@sender.test>", f"{OPS}, on-call@example.org")
    assert message["date"].datetime == clock.now()
    assert (message["auto-submitted"], message["x-redrive-event-id"]) == ("auto-generated", event_id)
    body = message.get_content()
    assert "Event type: invoice.paid" in body
    assert '"who": "Zoë ✓"' in body
    assert mail.raw[0].isascii()  # whatever the server can take

    (attempt,) = await redrive.api.attempts(event_id)
    assert message["message-id"] == f"<{attempt['task_id']}@sender.test>"
    assert (attempt["request"]["method"], attempt["request"]["url"]) == ("MAIL", f"mailto:{OPS},on-call@example.org")
    assert "webhook-signature" not in attempt["request"]["headers"]
    page = await read(redrive.api.http, f"/integrations/logs/{attempt['task_id']}")
    assert "The mail server has taken it." in page.text
    assert "cURL" not in page.text

    test = await redrive.api.post(f"/v1/endpoints/{endpoint['id']}/test")
    await redrive.work()
    assert (mail.messages[-1]["subject"], mail.messages[-1]["x-redrive-event-id"]) == (
        "[Redrive] Test",
        test["event_id"],
    )
    assert "There is nothing to do." in mail.messages[-1].get_content()


async def test_what_an_event_holds_makes_no_header_and_breaks_no_line_of_one(
    redrive: Installation, mail: MailServer
) -> None:
    endpoint = await mailbox(redrive)
    kind = "ordér\u2028bcc: everybody@example.com" + "x" * 150
    event = {"event_type": kind, "payload": {"text": "\r\n.\r\nMAIL FROM:<a@b.c>\r\n"}, "endpoint_id": endpoint["id"]}
    await redrive.api.post("/v1/events", event)
    await redrive.work()
    (message,) = mail.messages
    assert mail.envelopes == [[OPS]]
    assert message["subject"].startswith("[Redrive] ordér bcc: everybody@example.com")
    assert sorted({name.lower() for name in message} & {"bcc", "cc"}) == []
    assert b"\nbcc" not in mail.raw[0].lower()
    assert "\\r\\n.\\r\\nMAIL FROM" in message.get_content()


@pytest.mark.parametrize(
    "kind",
    [
        "=?utf-8?q?=0D=0AContent-Type:_text/html=0D=0A=0D=0A<h1>evil</h1>?=",
        "a =?utf-8?b?DQpCY2M6IGVAZS5vcmcNCg0KPGgxPmV2aWw=?=",
        "=?unicode_escape?q?=5Cud800?=",
    ],
)
async def test_an_event_type_that_reads_as_an_encoded_word_is_shown_and_does_nothing(
    redrive: Installation, mail: MailServer, kind: str
) -> None:
    endpoint = await mailbox(redrive)
    await redrive.api.post("/v1/events", {"event_type": kind, "payload": {}, "endpoint_id": endpoint["id"]})
    await redrive.work()
    (message,) = mail.messages
    assert message.keys() == HEADERS
    assert (message["subject"], message["x-redrive-event-type"]) == (f"[Redrive] {kind}", kind)
    assert (message.get_content_type(), message.is_multipart()) == ("text/plain", False)
    assert message.get_content().startswith(f"Event type: {kind}")


async def test_an_address_that_reads_as_an_encoded_word_is_refused_and_one_saved_before_fails_for_good(
    redrive: Installation, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = "=?utf-8?q?x=0D=0ABcc=3A_e=40e.org?=@example.com"
    given = {"name": "m", "kind": "mail", "to": [OPS, encoded]}
    answer = await redrive.api.http.post("/v1/endpoints", given)
    assert (answer.status, answer.json["errors"][0]["loc"]) == (422, ["body", "to"])
    assert "address 2 holds =?" in answer.json["errors"][0]["msg"]

    with monkeypatch.context() as older:
        older.setattr("redrive.api.endpoint_input.recipients_problem", lambda _: None)
        endpoint = await mailbox(redrive, encoded)
    await redrive.api.event(endpoint["id"])
    await redrive.work()
    letter = await redrive.api.letter(endpoint["id"])
    assert (letter["reason"], letter["category"], mail.messages) == ("permanent", "configuration", [])
    assert "address 1 holds =?, which begins an encoded word" in letter["error_message"]


async def test_a_mail_with_other_headers_than_were_set_is_not_sent_and_fails_for_good(
    redrive: Installation, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(headers: Headers, text: str) -> bytes:
        return written(headers, text).replace(b"invoice.paid", b"invoice.paid\r\nBcc: e@example.org")

    monkeypatch.setattr("redrive.destinations.mail.written", careless)
    endpoint = await mailbox(redrive)
    await redrive.api.event(endpoint["id"])
    await redrive.work()
    letter = await redrive.api.letter(endpoint["id"])
    assert (letter["reason"], letter["category"], mail.begun) == ("permanent", "configuration", [])
    assert "other headers than those that Redrive writes" in letter["error_message"]


async def test_what_the_server_does_not_take_now_is_tried_again_under_the_same_id_and_what_it_refuses_is_not(
    redrive: Installation, mail: MailServer, clock: ManualClock
) -> None:
    endpoint = await mailbox(redrive)
    mail.at_data.append("451 try later, token=canary")
    event_id = await redrive.api.event(endpoint["id"])
    await redrive.work()
    (failed,) = await redrive.api.attempts(event_id)
    assert (failed["category"], "canary" in json.dumps(failed)) == ("server_error", False)
    clock.advance(5)
    await redrive.work()
    (message,) = mail.messages
    assert message["message-id"] == f"<{failed['task_id']}@sender.test>"

    mail.at_data.append("554 no spam here")
    await redrive.api.event(endpoint["id"])
    await redrive.work()
    letter = await redrive.api.letter(endpoint["id"])
    assert (letter["kind"], letter["reason"], letter["category"]) == ("mail", "permanent", "client_error")
    assert "554 no spam here" in letter["error_message"]
    detail = await redrive.api.get(f"/v1/dead-letters/{letter['id']}")
    assert detail["config_snapshot"]["endpoint"]["to"] == [OPS]


async def test_who_can_be_reached_is_reached_and_who_was_left_out_is_told(
    redrive: Installation, mail: MailServer, clock: ManualClock
) -> None:
    endpoint = await mailbox(redrive, OPS, "gone@example.com")
    mail.at_rcpt["gone@example.com"] = "550 no such user"
    event_id = await redrive.api.event(endpoint["id"])
    with capture_logs() as lines:
        await redrive.work()
    assert mail.envelopes == [[OPS]]
    (attempt,) = await redrive.api.attempts(event_id)
    assert attempt["result"] == "succeeded"
    assert attempt["request"]["headers"]["not-taken-for"] == "gone@example.com: 550 no such user"
    assert [line["refused"] for line in lines if line["event"] == "mail_refused_for_some"] == [1]

    mail.at_rcpt["gone@example.com"] = "450 greylisted"
    event_id = await redrive.api.event(endpoint["id"])
    await redrive.work()
    (attempt,) = await redrive.api.attempts(event_id)
    assert (attempt["result"], attempt["possible_duplicate"]) == ("failed", True)
    assert "The others have it." in attempt["error_message"]
    mail.at_rcpt.clear()
    clock.advance(5)
    await redrive.work()
    assert mail.envelopes[1:] == [[OPS], [OPS, "gone@example.com"]]
    assert mail.messages[1]["message-id"] == mail.messages[2]["message-id"]

    mail.at_rcpt.update({OPS: "550 gone", "gone@example.com": "550 gone"})
    await redrive.api.event(endpoint["id"])
    await redrive.work()
    assert (await redrive.api.letter(endpoint["id"]))["category"] == "client_error"
    assert len(mail.messages) == 3


async def test_a_server_that_hangs_or_is_gone_costs_a_try_and_no_thread(
    redrive: Installation, mail: MailServer, clock: ManualClock
) -> None:
    endpoint = await mailbox(redrive, timeout_s=1)
    mail.hangs = True
    event_id = await redrive.api.event(endpoint["id"])
    await redrive.work()
    (attempt,) = await redrive.api.attempts(event_id)
    assert (attempt["category"], attempt["possible_duplicate"]) == ("timeout", True)
    async with worker(redrive, "smtp://127.0.0.1:9?starttls=none") as nowhere:
        clock.advance(5)
        await nowhere.run_until_idle()
    attempts = await redrive.api.attempts(event_id)
    assert [each["category"] for each in attempts] == ["timeout", "network"]
    assert attempts[1]["possible_duplicate"] is False


async def test_a_mail_that_finds_no_thread_is_given_back_and_told_how_many_there_are(
    redrive: Installation, mail: MailServer
) -> None:
    book = EndpointTermsBook(redrive.stores.engine, Sealer.from_passphrase(SECRET_KEY))
    made = MailDestination(parse_server(mail.url), parse_sender(OPS), book, at_once=1, slot_wait_s=0.01)
    mail.hangs = True
    endpoint = await mailbox(redrive, timeout_s=1)
    await redrive.api.event(endpoint["id"])
    (job,) = (await claim_due(Tasks(redrive.stores.engine, redrive.clock), queues=made.queues)).jobs
    await made.prepare([job])
    short = job._replace(timeout_s=0.2)
    first, second = await asyncio.gather(*(made.attempt(short, START) for _ in range(2)))
    assert isinstance(first, Try)
    assert isinstance(second, Released)
    assert second.why == "Not tried: 1 mails were on their way, and none ended within 0.01 s."

    async def is_free() -> bool:
        return isinstance(await made.attempt(short, START), Try)

    await until(is_free)


async def test_mail_goes_out_under_a_certificate_that_is_verified_and_a_password_that_nobody_sees(
    redrive: Installation, clock: ManualClock, tmp_path: Path
) -> None:
    authority = Authority.create()
    certificate = authority.server_files(tmp_path, "localhost")
    (tmp_path / "ca.pem").write_text(authority.pem)
    endpoint = await mailbox(redrive)
    with mail_server(certificate=certificate, password="canary pw") as mail, capture_logs() as lines:
        ca = f"ca={tmp_path / 'ca.pem'}"
        event_id = await redrive.api.event(endpoint["id"])
        for password, terms in (("canary%20pw", ""), ("canary%20wrong", f"?{ca}")):
            async with worker(redrive, f"smtp://ops:{password}@localhost:{mail.port}{terms}") as working:
                await working.run_until_idle()
            clock.advance(5)
        assert [each["category"] for each in await redrive.api.attempts(event_id)] == ["network", "configuration"]
        assert set(mail.logins) == {("ops", "canary wrong")}
        await redrive.api.event(endpoint["id"])
        async with worker(redrive, f"smtp://ops:canary%20pw@localhost:{mail.port}?starttls=required&{ca}") as working:
            await working.run_until_idle()
        assert len(mail.messages) == 1
    letter = await redrive.api.letter(endpoint["id"])
    assert "REDRIVE_SMTP_URL" in letter["error_message"]
    shown = await redrive.api.get(f"/v1/dead-letters/{letter['id']}"), await redrive.api.attempts(event_id), lines
    assert "canary" not in json.dumps(shown, default=str)

    with mail_server() as plain:  # offers no TLS
        event_id = await redrive.api.event(endpoint["id"])
        async with worker(redrive, f"smtp://ops:canary@127.0.0.1:{plain.port}") as working:
            await working.run_until_idle()
        assert [each["category"] for each in await redrive.api.attempts(event_id)] == ["configuration"]
        assert (plain.messages, plain.logins) == ([], [])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "to"),
        ({"to": []}, "to"),
        ({"to": ["no address"]}, "to"),
        ({"to": ["a@b.example\r\nBcc: c@d.example"]}, "to"),
        ({"to": ["Name <a@b.example>"]}, "to"),
        ({"to": ["a@b.example", "A@B.example"]}, "to"),
        ({"to": [f"a{n}@b.example" for n in range(21)]}, "to"),
        ({"to": [OPS], "url": "https://a.example/"}, "url"),
        ({"to": [OPS], "headers": {"x-a": "b"}}, "headers"),
        ({"to": [OPS], "apprise_url": "json://a.example/"}, "apprise_url"),
        ({"to": [OPS], "event_types": []}, "event_types"),
    ],
)
async def test_what_nobody_can_be_mailed_at_is_refused_with_its_place(
    redrive: Installation, given: dict[str, object], field: str
) -> None:
    answer = await redrive.api.http.post("/v1/endpoints", {"name": "m", "kind": "mail", **given})
    assert (answer.status, answer.json["errors"][0]["loc"][:2]) == (422, ["body", field])
