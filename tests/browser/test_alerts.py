"""Alerts in a browser: a threshold is set and set back, and a test says who gets it."""

from playwright.async_api import expect

from support.installation import Installation

from .conftest import SignedIn


async def test_a_threshold_is_set_and_set_back_and_a_test_says_who_gets_it(
    installation: Installation, signed_in: SignedIn
) -> None:
    page = await signed_in("ADMIN")
    await page.goto("/alerts")
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_text("No endpoint gets alerts")).to_be_visible()
    rule = page.locator("#rule-failure_rate")
    await rule.locator("summary").click()
    await rule.get_by_label("The share that may fail").fill("101")
    await rule.get_by_role("button", name="Save").click()
    await expect(rule.get_by_role("alert")).to_have_text("must be from 0 to 1")
    await rule.get_by_label("The share that may fail").fill("7.5")
    await rule.get_by_label("How far back").fill("5 min")
    await rule.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved. It counts from the next look on.")).to_be_visible()
    rules = {each["rule"]: each for each in (await installation.api.get("/v1/alerts/rules"))["data"]}
    assert [each["value"] for each in rules["failure_rate"]["parameters"]] == [0.075, 300, 20]
    await rule.locator("summary").click()
    await rule.get_by_role("button", name="Back to the defaults").click()
    await expect(page.get_by_text("The defaults count again.")).to_be_visible()
    await expect(rule.get_by_text("changed")).to_have_count(0)
    rules = {each["rule"]: each for each in (await installation.api.get("/v1/alerts/rules"))["data"]}
    assert not rules["failure_rate"]["is_set"]
