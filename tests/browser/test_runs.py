"""Workflows and runs in a browser: started, followed, replayed, cancelled."""

from playwright.async_api import Page, expect

from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Answer, Received, Receiver

from .conftest import SignedIn

BIG = 12345678901234567890123
STEPS = ("charge", "ship", "tell")


async def fulfil(redrive: Installation, receiver: Receiver) -> None:
    """Three calls, of which the carrier refuses the second as long as it does not know the country."""

    def answer(request: Received) -> Answer:
        is_unknown = request.path == "/ship" and b"country" not in request.body
        return Answer(422, b'{"error": "no country"}') if is_unknown else Answer(200, b'{"id": "c-7"}')

    receiver.usual = answer
    steps = [
        {"name": name, "kind": "http", "url": receiver.url_of(f"/{name}"), "body": "{{ input }}"} for name in STEPS
    ]
    await redrive.api.workflow("fulfil", *steps)


async def statuses(page: Page, *expected: str) -> None:
    await expect(page.locator(".steps .step-head .badge:nth-of-type(2)")).to_have_text(list(expected))


async def test_a_run_is_started_digit_by_digit_and_its_steps_are_followed_as_they_go(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    await fulfil(installation, receiver)
    page = await signed_in("IT_MANAGER")
    await page.goto("/workflows/fulfil")
    await page.keyboard.press("c")
    dialog = page.get_by_role("dialog", name="Start a run of fulfil")
    await dialog.get_by_label("Input").fill("{not json")
    await dialog.get_by_role("button", name="Start run").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Line 1, column 2")
    await dialog.get_by_label("Input").fill(f'{{"n": {BIG}}}')
    await dialog.get_by_role("button", name="Start run").click()
    await page.wait_for_url("**/runs/*")
    await statuses(page, "PENDING", "PENDING", "PENDING")
    await page.locator("#input-0 summary").click()
    await expect(page.locator("#input-0 pre")).to_contain_text(str(BIG))
    await installation.work()
    await statuses(page, "SUCCESS", "DLQ", "PENDING")
    await expect(page.locator("#input-0 pre")).to_be_visible()  # what was unfolded stays so
    await expect(page.locator("#run-status")).to_contain_text("DLQ_PENDING run, 1 of 3 steps done")
    assert receiver.requests[0].body == f'{{"n":{BIG}}}'.encode()


async def test_a_dead_step_is_replayed_with_another_input_once_the_dialog_has_said_what_runs(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    await fulfil(installation, receiver)
    run_id = await installation.api.run("fulfil", {"n": BIG})
    await installation.work()
    page = await signed_in("ADMIN")
    await page.goto(f"/runs/{run_id}")
    await page.get_by_role("button", name="Replay 1 ship").click()
    dialog = page.get_by_role("dialog", name="Replay from 1 ship on")
    says = dialog.locator("[data-says]")
    await expect(says).to_have_text(
        "Runs again: 1 ship, 2 tell. Stays as it is: 0 charge (succeeded). Has not run before: 2 tell."
    )
    await dialog.get_by_label("Begin with").select_option("0 charge")
    await expect(page.locator("[data-says]")).to_contain_text("Runs again: 0 charge, 1 ship, 2 tell.")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Begin with").select_option("1 ship")
    await dialog.get_by_label("This step only").check()
    await expect(page.locator("[data-says]")).to_contain_text("The run ends as PARTIAL")
    await dialog.get_by_label("From this step on").check()
    await dialog.get_by_text("Input of the first step").click()
    box = dialog.get_by_label("Input, as JSON")
    await expect(box).to_have_value(f'{{\n  "n": {BIG}\n}}')
    await box.fill(f'{{"n": {BIG}, "country"}}')
    await dialog.get_by_role("button", name="Replay").click()
    await expect(dialog.locator("[data-said]")).to_contain_text("a colon is expected")
    await box.fill(f'{{"n": {BIG}, "country": "DE"}}')
    await dialog.get_by_label("Why?").fill("the country was missing")
    await dialog.get_by_role("button", name="Replay").click()
    await expect(page.get_by_text("The replay has begun.")).to_be_visible()
    await installation.work()
    await statuses(page, "SUCCESS", "SUCCESS", "SUCCESS")
    await expect(page.get_by_text("the country was missing")).to_be_visible()
    sent = [request.body for request in receiver.requests if request.path == "/ship"]
    assert sent[-1] == f'{{"n": {BIG}, "country": "DE"}}'.encode()
    assert len({request.headers["idempotency-key"] for request in receiver.requests if request.path == "/ship"}) == 1


async def test_a_step_s_dead_letter_is_replayed_from_an_earlier_step_under_new_keys(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    await fulfil(installation, receiver)
    run_id = await installation.api.run("fulfil", {"n": 7})
    await installation.work()
    (letter,) = (await installation.api.get("/v1/dead-letters"))["data"]
    page = await signed_in("ADMIN")
    await page.goto(f"/app/admin/dlq/{letter['id']}")
    await page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Begin with").locator("option")).to_have_text(["0 charge", "1 ship"])
    await dialog.get_by_label("This step only").check()
    await dialog.get_by_label("Begin with").select_option("0 charge")
    await expect(dialog.get_by_label("This step only")).to_be_disabled()
    await expect(dialog.get_by_label("From this step on")).to_be_checked()
    await dialog.get_by_label("Retry policy").select_option("integration")
    await dialog.get_by_label("Use a new idempotency key").check()
    await dialog.get_by_role("button", name="Replay").click()
    await page.wait_for_url(f"**/runs/{run_id}")
    await installation.work()
    await statuses(page, "SUCCESS", "DLQ", "PENDING")
    run = await installation.api.run_of(run_id)
    assert [step["idempotency_key"] for step in run["steps"]][:2] == [f"{run_id}:0:r1", f"{run_id}:1:r1"]
    assert run["steps"][0]["retry_policy_override"] == "integration"


async def test_d10_a_page_of_a_resolved_dead_letter_replays_it_again(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    await fulfil(installation, receiver)
    run_id = await installation.api.run("fulfil", {"n": 7})
    await installation.work()
    (letter,) = (await installation.api.get("/v1/dead-letters"))["data"]
    await installation.api.post(f"/v1/dead-letters/{letter['id']}/resolve", {})
    page = await signed_in("ADMIN")
    await page.goto(f"/app/admin/dlq/{letter['id']}")
    await page.keyboard.press("e")
    await page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    await page.wait_for_url(f"**/runs/{run_id}")
    assert (await installation.api.get(f"/v1/dead-letters/{letter['id']}"))["state"] == "replaying"


async def test_cancelling_asks_first_and_a_viewer_is_offered_nothing(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    receiver.usual = 503
    await installation.api.workflow("fulfil", {"name": "ship", "kind": "http", "url": receiver.url})
    run_id = await installation.api.run("fulfil")
    await installation.work()
    viewer = await signed_in("VIEWER")
    await viewer.goto(f"/runs/{run_id}")
    await statuses(viewer, "RETRYING")
    await expect(viewer.locator("main button:visible")).to_have_count(3)  # to copy two ids, and the shortcuts
    page = await signed_in("IT_MANAGER")
    await page.goto(f"/runs/{run_id}")
    await page.get_by_role("button", name="Cancel run").click()
    dialog = page.get_by_role("dialog", name="Cancel this run?")
    await dialog.get_by_label("Why?").fill("sold twice")
    await dialog.get_by_role("button", name="Cancel run").click()
    await expect(page.locator("#run-notices")).to_contain_text("because “sold twice”")
    await statuses(page, "FAILED")
    await expect(page.get_by_role("button", name="Replay 0 ship")).to_be_visible()
    assert (await installation.api.run_of(run_id))["status"] == "FAILED"


async def test_new_runs_are_announced_and_a_row_is_opened_by_keyboard(
    installation: Installation, signed_in: SignedIn
) -> None:
    await installation.api.workflow("nap", {"name": "nap", "kind": "wait", "wait_s": 60})
    await installation.api.run("nap")
    page = await signed_in("VIEWER")
    await page.goto("/runs?workflow=nap")
    await expect(page.locator("body[data-live]")).to_be_attached()
    newest = await installation.api.run("nap")
    await page.get_by_role("button", name="New runs: show them").click()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/runs/{newest}")
