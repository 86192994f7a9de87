"""Endpoints in a browser: made, tested, paused, given a new secret, recovered, deleted."""

from playwright.async_api import Page, expect

from support.axe import assert_accessible
from support.engine import ManualClock
from support.installation import Installation
from support.layout import assert_fits
from support.receiver import Receiver

from .conftest import SignedIn
from .queue_steps import died


async def open_endpoint(page: Page, endpoint: dict[str, str], name: str) -> None:
    await page.goto(f"/endpoints/{endpoint['id']}")
    await expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


async def test_one_is_made_its_secret_shown_once_and_a_test_followed_to_its_end(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    page = await signed_in("ADMIN")
    await page.goto("/endpoints")
    await page.get_by_role("link", name="Make the first one").click()
    await page.get_by_label("Name", exact=True).fill("billing")
    await page.get_by_label("URL").fill("http://10.0.0.1/hooks")
    await page.get_by_label("Event types").fill("invoice.*")
    await page.get_by_role("button", name="Make endpoint").click()
    refused = page.locator(".field", has=page.get_by_label("URL")).get_by_role("alert")
    await expect(refused).to_contain_text("10.0.0.1 is not reachable for deliveries")
    await page.get_by_label("URL").fill(receiver.url)
    await page.get_by_role("button", name="Make endpoint").click()
    shown = page.get_by_role("dialog", name="The secret of billing")
    secret = await shown.locator("code").inner_text()
    assert secret.startswith("whsec_")
    await shown.get_by_role("button", name="I have kept it").click()
    await expect(page.get_by_role("heading", level=1, name="billing")).to_be_visible()
    assert secret not in await page.content()
    await page.get_by_role("button", name="Test delivery").click()
    await expect(page.locator("[data-test-result]")).to_contain_text("Delivered: HTTP 200 in")
    await expect(page.locator("tbody tr")).to_contain_text("redrive.test")


async def test_an_exchange_of_rabbitmq_is_made_and_changed(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in("ADMIN")
    await page.goto("/endpoints/new")
    await page.get_by_role("link", name="Publish to RabbitMQ").click()
    await page.get_by_label("Name", exact=True).fill("orders")
    await assert_accessible(page)
    await assert_fits(page)
    await page.get_by_role("button", name="Make endpoint").click()
    refused = page.locator(".field", has=page.get_by_label("Routing key")).get_by_role("alert")
    await expect(refused).to_contain_text("is needed for the default exchange")
    await page.get_by_label("Exchange").fill("orders")
    await page.get_by_role("button", name="Make endpoint").click()
    await page.get_by_role("button", name="I have kept it").click()
    await expect(page.get_by_text("orders → each event's type")).to_be_visible()
    await expect(page.get_by_text("No worker knows RabbitMQ")).to_be_visible()
    await page.reload()  # without the toast, which comes and goes
    await assert_accessible(page)
    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("Exchange").fill("")
    await page.get_by_label("Routing key").fill("orders of the EU")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("(default exchange) → orders of the EU")).to_be_visible()
    (made,) = (await installation.api.get("/v1/endpoints"))["data"]
    assert (made["exchange"], made["routing_key"]) == ("", "orders of the EU")


async def test_a_relay_is_made_verified_and_given_another_address(
    installation: Installation, signed_in: SignedIn
) -> None:
    page = await signed_in("ADMIN")
    await page.goto("/endpoints/new")
    await page.get_by_role("link", name="Relay webhooks of others").click()
    await page.get_by_label("Name", exact=True).fill("github")
    await page.get_by_label("Verify signatures of").select_option("github")
    await assert_accessible(page)
    await page.get_by_role("button", name="Make endpoint").click()
    missing = page.locator(".field", has=page.get_by_label("Secret that the sender signs with")).get_by_role("alert")
    await expect(missing).to_contain_text("is needed")
    await page.get_by_label("Secret that the sender signs with").fill("chosen with the sender")
    await page.get_by_role("button", name="Make endpoint").click()
    await page.get_by_role("button", name="I have kept it").click()
    await expect(page.get_by_text("those of GitHub")).to_be_visible()
    address = await page.locator("#hook-url").inner_text()
    (made,) = (await installation.api.get("/v1/endpoints"))["data"]
    assert (made["hook_url"], made["kind"], made["ordered"], made["policy"], made["event_types"]) == (
        address,
        "relay",
        True,
        "relay",
        [],
    )
    assert (await installation.api.try_webhook(made)).status == 401
    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("Name", exact=True).fill("code")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1, name="code")).to_be_visible()
    await page.get_by_role("link", name="Edit").click()
    await assert_accessible(page)
    await page.get_by_role("button", name="Stop verifying").click()
    await page.get_by_role("dialog").get_by_role("button", name="Stop verifying").click()
    await expect(page.get_by_text("None are asked for")).to_be_visible()
    assert (await installation.api.try_webhook(made)).status == 202
    await page.goto(f"/endpoints/{made['id']}")
    await assert_accessible(page)
    for width in (390, 1440):
        await page.set_viewport_size({"width": width, "height": 900})
        await assert_fits(page)
    await page.get_by_text("More", exact=True).click()
    await page.get_by_role("button", name="New address").click()
    await page.get_by_role("dialog").get_by_role("button", name="New address").click()
    await expect(page.locator("#hook-url")).not_to_have_text(address)
    assert (await installation.api.try_webhook(made)).status == 404


async def test_a_test_that_fails_says_why(live: Installation, receiver: Receiver, signed_in: SignedIn) -> None:
    receiver.usual = 404
    made = await live.api.endpoint(receiver.url, name="billing")
    page = await signed_in()
    await open_endpoint(page, made, "billing")
    await page.keyboard.press("t")
    told = page.locator("[data-test-result]")
    await expect(told).to_contain_text("HTTP 404 Not Found.")
    await told.get_by_role("link", name="View log").click()
    await expect(page.locator(".badge", has_text="ignored")).to_be_visible()
    await page.goto("/integrations/logs/dead-letter-queue")
    await expect(page.get_by_text("No failed events. All integrations healthy.")).to_be_visible()


async def test_pausing_asks_for_a_reason_that_is_shown_then(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    made = await installation.api.endpoint(receiver.url, name="billing")
    page = await signed_in()
    await open_endpoint(page, made, "billing")
    await page.get_by_role("button", name="Pause").click()
    question = page.get_by_role("dialog", name="Pause billing?")
    await question.get_by_label("Why?").fill("their maintenance")
    await question.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("Paused now: their maintenance.")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()


async def test_a_new_secret_is_shown_once_and_deleting_asks(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    made = await installation.api.endpoint(receiver.url, name="billing")
    page = await signed_in()
    await open_endpoint(page, made, "billing")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_role("button", name="Rotate secret").click()
    await page.get_by_role("button", name="Make a new secret").click()
    shown = page.get_by_role("dialog", name="The new secret")
    await expect(shown.locator("code")).not_to_have_text(made["secret"])
    await page.mouse.click(5, 5)  # beside it: no key is pressed in the dialog then
    for _ in range(2):  # would lose it, and browsers let a page refuse the first only
        await page.keyboard.press("Escape")
        await expect(shown).to_be_visible()
    await page.evaluate("document.querySelector('dialog[open]').close()")  # as a phone's gesture of going back does
    await expect(shown).to_be_visible()
    await shown.get_by_role("button", name="I have kept it").click()
    await page.get_by_text("More", exact=True).click()
    await page.get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog", name="Delete billing?")
    await question.get_by_role("button", name="Delete").click()
    await expect(page).to_have_url(f"{installation.base_url}/endpoints")
    await expect(page.get_by_text("Endpoint deleted.")).to_be_visible()


async def test_only_what_was_changed_is_sent(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    made = await installation.api.endpoint(receiver.url, name="billing", headers={"x-key": "hunter2"}, rate_per_s=5)
    page = await signed_in()
    await page.goto(f"/endpoints/{made['id']}/edit")
    await page.get_by_label("One try may take").fill("2 min")
    await page.get_by_label("Per second at most").fill("")
    async with page.expect_request(lambda request: request.method == "PATCH") as sent:
        await page.get_by_role("button", name="Save").click()
    assert (await sent.value).post_data_json == {"timeout_s": 120, "rate_per_s": None}
    await expect(page.get_by_text("2 min", exact=True)).to_be_visible()
    await expect(page.get_by_text("x-key")).to_be_visible()


async def test_recovering_says_how_many_first_and_is_watched_to_its_end(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    made = await died(installation, receiver, clock, 3, name="billing")
    clock.advance(7200)
    receiver.usual = 200
    page = await signed_in()
    await open_endpoint(page, made, "billing")
    await expect(page.locator("[data-would]")).to_have_text("No open dead letter of it died since then.")
    await expect(page.get_by_role("button", name="Recover")).to_be_disabled()
    await page.get_by_label("24 hours").check()
    await expect(page.locator("[data-would]")).to_have_text("3 dead letters would be redriven.")
    await page.get_by_role("button", name="Recover").click()
    question = page.get_by_role("dialog", name="Redrive 3 dead letters of billing?")
    await question.get_by_role("button", name="Recover").click()
    await expect(page.locator("[data-operation]")).to_be_visible()
    for _ in range(10):  # chosen, due again after the policy's first wait, told of: how many steps that takes is chance
        await installation.work()
        clock.advance(5)
        (operation,) = (await installation.api.get("/v1/operations"))["data"]
        if operation["state"] == "completed":
            break
    await expect(page.locator("[data-operation] strong")).to_contain_text("3 succeeded, 0 failed")
    assert (await installation.api.get("/v1/dead-letters"))["data"] == []
