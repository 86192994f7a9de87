"""Order in a browser: a halted lane is seen, resumed, or goes on with the retry of what halted it."""

from uuid import uuid4

from playwright.async_api import expect

from support.axe import assert_accessible
from support.installation import Installation
from support.layout import assert_fits
from support.receiver import Receiver

from .conftest import SignedIn


async def halted(redrive: Installation, receiver: Receiver) -> tuple[str, str, list[str]]:
    """An ordered endpoint, the dead letter that halted it, and its three events. What follows is taken."""
    receiver.script(422)
    endpoint = await redrive.api.endpoint(receiver.url, name="billing", ordered=True, on_block="halt")
    events = [await redrive.api.event(endpoint["id"], {"n": number}) for number in range(3)]
    letter = await redrive.api.letter(endpoint["id"])
    return endpoint["id"], letter["id"], events


async def ids(receiver: Receiver) -> list[str]:
    """Of the events in the order of their tries, once there were four."""
    return [request.headers["webhook-id"] for request in await receiver.wait_for(4)]


async def test_a_halted_lane_is_resumed_from_the_page_of_its_endpoint(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    endpoint_id, letter_id, _ = await halted(live, receiver)
    page = await signed_in("ADMIN")
    await page.goto(f"/endpoints/{endpoint_id}")
    panel = page.get_by_role("region", name="Order")
    await expect(panel.locator(".badge")).to_have_text("halted")
    await expect(panel.get_by_role("link")).to_have_attribute("href", f"/app/admin/dlq/{letter_id}")
    await assert_fits(page)
    await assert_accessible(page)
    await panel.get_by_role("button", name="Resume lane").click()
    question = page.get_by_role("dialog", name="Resume this lane?")
    await question.get_by_label("Why?").fill("sent by hand")
    await question.get_by_role("button", name="Resume lane").click()
    await expect(page.locator(".toast")).to_contain_text("Resumed. The lane goes on.")
    await expect(panel.locator(".badge", has_text="halted")).to_have_count(0)


async def test_the_retry_of_what_halted_a_lane_asks_where_it_goes(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    _, letter_id, events = await halted(live, receiver)
    page = await signed_in("ADMIN")
    await page.goto(f"/app/admin/dlq/{letter_id}")
    await expect(page.get_by_text("It halted its lane")).to_be_visible()
    await page.get_by_role("button", name="Retry now").click()
    question = page.get_by_role("dialog", name="Retry it now?")
    await expect(question).to_contain_text("Its lane is halted: nothing behind it is sent until you decide.")
    await expect(question.get_by_role("radio", name="In its place.")).to_be_checked()
    await assert_accessible(page)
    await question.get_by_role("radio", name="At the end of its lane.").check()
    await question.get_by_role("button", name="Retry now").click()
    await expect(page.locator(".toast")).to_contain_text("as soon as it is its turn")
    assert await ids(receiver) == [events[0], events[1], events[2], events[0]]
    assert receiver.requests[-1].headers["redrive-out-of-order"] == "true"


async def test_by_default_it_goes_in_its_place(live: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    _, letter_id, events = await halted(live, receiver)
    page = await signed_in("ADMIN")
    await page.goto(f"/app/admin/dlq/{letter_id}")
    await page.keyboard.press("Shift+R")
    await page.get_by_role("dialog").get_by_role("button", name="Retry now").click()
    assert await ids(receiver) == [events[0], events[0], events[1], events[2]]


async def test_an_edited_replay_says_where_in_its_lane_it_goes(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    _, letter_id, events = await halted(live, receiver)
    page = await signed_in("ADMIN")
    await page.goto(f"/app/admin/dlq/{letter_id}")
    await page.get_by_role("button", name="Edit and replay").click()
    editor = page.get_by_role("dialog", name="Edit and replay")
    await editor.get_by_label("Payload, as JSON").fill('{"n": 7}')
    await editor.get_by_role("button", name="Review changes").click()
    await expect(editor.get_by_role("radio", name="In its place.")).to_be_checked()
    await assert_accessible(page)
    async with page.expect_event("load"):  # the page shows what became of it
        await editor.get_by_role("button", name="Replay", exact=True).click()
    assert await ids(receiver) == [events[0], events[0], events[1], events[2]]


async def test_the_form_of_an_endpoint_changes_only_what_was_changed(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    made = await live.api.endpoint(receiver.url, name=f"billing {uuid4().hex[:4]}")
    page = await signed_in("ADMIN")
    await page.goto(f"/endpoints/{made['id']}/edit")
    await page.get_by_text("When one that others wait for cannot be delivered").click()
    await page.get_by_role("radio", name="Halt.").check()
    await page.get_by_label("It may keep the others waiting for").fill("10 min")
    async with page.expect_request(f"**/v1/endpoints/{made['id']}") as sent:
        await page.get_by_role("button", name="Save").click()
    assert (await sent.value).post_data_json == {"on_block": "halt", "max_block_s": 600}
    await expect(page.get_by_text("its lane halts until a person acts")).to_be_visible()
    await expect(page.get_by_text("10 min at most")).to_be_visible()
