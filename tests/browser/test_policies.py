"""Policies in a browser: the editor whose schedule follows what is typed."""

from playwright.async_api import expect

from support.chromium import Visit
from support.installation import Installation

from .conftest import SignedIn


async def test_the_schedule_follows_what_is_typed_and_saving_keeps_it(
    installation: Installation, signed_in: SignedIn
) -> None:
    page = await signed_in("ADMIN")
    await page.goto("/policies")
    await page.get_by_role("link", name="New policy").click()
    waits = page.locator("[data-schedule] tbody td:nth-child(2)")
    await expect(waits).to_have_text(["5 s", "30 s", "5 min"])
    await page.get_by_label("Growing waits").check()
    await page.get_by_label("First wait").fill("10 s")
    await page.get_by_label("Grows by the factor").fill("3")
    await page.get_by_label("At most", exact=True).fill("1 min")
    await page.get_by_label("Retries at most").fill("4")
    await expect(waits).to_have_text(["10 s", "30 s", "1 min", "1 min"])
    await page.get_by_label("Jitter, ± %").fill("50")
    await expect(page.locator("[data-schedule] tbody tr").first).to_contain_text("5 s – 15 s")
    await expect(page.locator("[data-schedule] svg").first).to_be_visible()
    await page.get_by_label("Name", exact=True).fill("patient")
    await page.get_by_label("Status codes never retried").fill("410, 4xx")
    await page.get_by_label("Unknown").uncheck()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1, name="patient")).to_be_visible()
    saved = await installation.api.get("/v1/policies/patient")
    schedule = {name: saved[name] for name in ("kind", "base_s", "factor", "cap_s", "jitter", "max_retries")}
    assert schedule == {
        "kind": "exponential",
        "base_s": 10,
        "factor": 3,
        "cap_s": 60,
        "jitter": 0.5,
        "max_retries": 4,
    }
    assert saved["classify"]["fail"] == ["client_error", "validation", "configuration", "unknown", "4xx", 410]


async def test_the_schedule_of_who_is_not_signed_in_any_more_is_no_other_page(
    visit: Visit, signed_in: SignedIn
) -> None:
    visit.forgiven.append("EventSource")  # the page's stream is sent to the sign-in page as well, if it begins so late
    page = await signed_in("ADMIN")
    await page.goto("/policies/new")
    await page.context.clear_cookies()
    await page.get_by_label("Retries at most").fill("2")
    await expect(page.locator("[data-schedule]")).to_have_text(
        "Your session has ended. Sign in again in another tab; nothing here is lost."
    )


async def test_saving_without_a_change_changes_nothing(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    for name in ("relay", "triggers", "manual", "immediate"):
        before = await installation.api.get(f"/v1/policies/{name}")
        await page.goto(f"/policies/{name}")
        async with page.expect_response(lambda response: response.request.method == "PUT") as answered:
            await page.get_by_role("button", name="Save").click()
        assert (await answered.value).status == 200
        await expect(page.get_by_text("Saved. It counts for what is accepted from now on.")).to_be_visible()
        after = await installation.api.get(f"/v1/policies/{name}")
        unread = ("created_at", "preset")
        assert {key: after[key] for key in after if key not in unread} == {
            key: before[key] for key in before if key not in unread
        }


async def test_what_is_wrong_is_said_at_its_field_and_beside_the_plot(
    installation: Installation, signed_in: SignedIn
) -> None:
    page = await signed_in()
    await page.goto("/policies/integration")
    await page.get_by_label("Waits", exact=True).fill("5 s, 40 d")
    await expect(page.locator("[data-schedule]")).to_contain_text("delays_s.1: must be between 0 and 2592000")
    await page.get_by_role("button", name="Save").click()
    field = page.locator(".field", has=page.get_by_label("Waits", exact=True))
    await expect(field.get_by_role("alert")).to_contain_text("must be between 0 and 2592000")
    await page.get_by_label("Waits", exact=True).fill("soon")
    await expect(page.locator("[data-schedule]")).to_contain_text("“soon” is no time")


async def test_a_new_policy_never_replaces_another(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    await page.goto("/policies/new")
    await page.get_by_label("Name", exact=True).fill("relay")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_have_text(
        "There is a policy of this name. Edit that one, or choose another name."
    )
    assert (await installation.api.get("/v1/policies/relay"))["kind"] == "exponential"


async def test_one_that_nothing_needs_is_deleted_after_a_question(
    installation: Installation, signed_in: SignedIn
) -> None:
    page = await signed_in()
    await page.goto("/policies/triggers")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog", name="Delete the policy triggers?").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("Policy deleted.")).to_be_visible()
    await expect(page.get_by_role("link", name="triggers")).to_have_count(0)
