"""The page of one event."""

from api.conftest import Api
from support.page import read


async def test_an_event_shows_every_task_with_its_tries_and_the_way_to_it(api: Api) -> None:
    await api.endpoint(name="billing")
    await api.endpoint(name="audit trail")
    event_id = await api.event("invoice.paid", {"n": 1})
    one, other = await api.claim()
    await api.die(one)
    await api.succeed(other)
    page = await read(api.owner, f"/events/{event_id}")
    assert page.one("h1").text == "invoice.paid"
    assert page.has("span", class_="badge failed", text="failed")
    headings = {element.text for element in page.all("h2")}
    assert headings >= {"billing dead", "audit trail succeeded"} or headings >= {
        "billing succeeded",
        "audit trail dead",
    }
    assert page.has("a", href=f"/app/admin/dlq/{one.id}", text="Open the dead letter")
    assert page.has("a", href=f"/integrations/logs/{other.id}", text="View Log")
    assert len(page.all("span", class_="try-name")) == 2


async def test_the_payload_is_whole_for_those_who_may_read_it(api: Api) -> None:
    event_id = await api.event("n", {"token": "canary"})
    assert '"token": "canary"' in (await read(api.owner, f"/events/{event_id}")).one("pre", aria_label="Payload").text
    page = await read(api.viewer, f"/events/{event_id}")
    assert '"token": "[redacted]"' in page.one("pre", aria_label="Payload").text
    assert "canary" not in page.answer.body.decode()


async def test_an_event_that_nobody_gets_is_said_to_wait_in_the_inbox(api: Api) -> None:
    page = await read(api.owner, f"/events/{await api.event('stray')}")
    assert page.has("span", class_="badge created", text="received")
    assert "No endpoint gets this event" in page.text


async def test_an_edit_is_told_with_the_task_that_it_was_made_for(api: Api) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"a": 1})
    given = {"payload": {"a": 2}, "because": "a typo"}
    assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/replay", given)).status == 200
    page = await read(api.owner, f"/events/{letter['event_id']}")
    assert "Edited and replayed by you because “a typo”" in page.one("li", class_="redriven").text
    assert "/a changed 1 2" in page.text
