"""Settings by hand: a key that is shown once, people, pausing, one's own password."""

from playwright.async_api import expect

from support.axe import assert_accessible
from support.chromium import Visit
from support.installation import Installation
from support.layout import assert_fits

from .conftest import SignedIn
from .test_sign_in import EMAIL, PASSWORD, add_user, sign_in


async def test_a_new_key_is_shown_once_works_and_can_be_revoked(
    signed_in: SignedIn, installation: Installation
) -> None:
    page = await signed_in("ADMIN")
    await page.goto("/settings/keys")
    await page.keyboard.press("c")
    await page.get_by_label("Name").fill("web <b>shop</b>")
    await page.get_by_label("Limited to").select_option("read")
    await page.get_by_role("button", name="Create", exact=True).click()
    shown = page.locator("#secret")
    await expect(shown).to_contain_text("rdk_")
    await assert_accessible(page)
    key = await shown.inner_text()
    asked = await installation.api.http.get("/v1/session", X_API_Key=key)
    assert asked.json["scope"] == "read"
    for _ in range(2):  # browsers let a page refuse the first only
        await page.keyboard.press("Escape")
        await expect(shown).to_be_visible()
    await page.get_by_role("button", name="I have kept it").click()
    row = page.get_by_role("row").filter(has_text="web <b>shop</b>")
    await expect(row).to_contain_text("only read")
    assert key not in await page.content()
    await row.get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Revoke the key “web <b>shop</b>”?")
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(row).to_contain_text("revoked")
    await expect(row.get_by_role("button")).to_have_count(0)


async def test_b8_a_key_for_the_hub_of_one_relay(signed_in: SignedIn, installation: Installation) -> None:
    relay = await installation.api.relay(name="github hooks")
    page = await signed_in("ADMIN")
    await page.goto("/settings/keys")
    await page.get_by_role("button", name="Create a key").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("laptop at home")
    await expect(dialog.get_by_label("Relay")).to_be_hidden()
    await dialog.get_by_label("Limited to").select_option("relay")
    await dialog.get_by_label("Relay", exact=True).select_option("github hooks")
    await assert_accessible(page)
    await dialog.get_by_role("button", name="Create", exact=True).click()
    await expect(page.locator("#secret")).to_contain_text("rdk_")
    await page.get_by_role("button", name="I have kept it").click()
    await expect(page.get_by_role("row").filter(has_text="laptop at home")).to_contain_text("only relay: github hooks")
    (key,) = [each for each in (await installation.api.get("/v1/keys"))["data"] if each["name"] == "laptop at home"]
    assert (key["scope"], key["endpoint_id"]) == ("relay", relay["id"])


async def test_a_user_is_added_changed_and_suspended_and_what_is_refused_stands_at_its_field(
    signed_in: SignedIn, installation: Installation
) -> None:
    page = await signed_in("OWNER")
    await page.goto("/settings/users")
    await page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("E-mail").fill("sam@example")
    await dialog.get_by_label("Name").fill("Sam")
    await dialog.get_by_label("Role").select_option("STAFF")
    await dialog.get_by_role("button", name="Add").click()
    row = page.get_by_role("row").filter(has_text="sam@example")
    await expect(row).to_contain_text("STAFF")
    await row.get_by_role("button", name="Change").click()
    await expect(dialog.get_by_label("Name")).to_have_value("Sam")
    await dialog.get_by_label("Role").select_option("VIEWER")
    await dialog.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("VIEWER")
    await row.get_by_role("button", name="Suspend").click()
    await page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    await expect(row).to_contain_text("suspended")
    await page.get_by_role("button", name="Add a user").click()
    await dialog.get_by_label("E-mail").fill("sam@example")
    await dialog.get_by_label("Name").fill("Sam again")
    await dialog.get_by_role("button", name="Add").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("belongs to a member of this org already")


async def test_the_org_is_paused_with_a_reason_and_resumed(signed_in: SignedIn, installation: Installation) -> None:
    page = await signed_in("IT_MANAGER")
    await page.goto("/settings")
    await expect(page.get_by_role("button", name="Pause the whole installation")).to_have_count(0)
    await page.get_by_role("button", name="Pause this org").click()
    await page.get_by_label("Why?").fill("the receivers move house")
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("“the receivers move house”")).to_be_visible()
    await expect(page.get_by_text("Retries are paused for this org")).to_be_visible()
    assert (await installation.api.get("/v1/retries"))["org"]["because"] == "the receivers move house"
    await page.get_by_role("button", name="Resume this org").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause this org")).to_be_visible()


async def test_one_changes_ones_own_password_by_typing_it_twice(visit: Visit, installation: Installation) -> None:
    await add_user(installation, "VIEWER")
    page = await visit.page(width=390)
    await page.goto("/sign-in?next=/settings/account")
    await sign_in(page)
    await page.get_by_label("Present password").fill("something else")
    await page.get_by_label("New password").fill("another battery horse")
    await page.get_by_label("Once more").fill("another battery house")
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_role("alert")).to_have_text("is not the same as above")
    await page.get_by_label("Once more").fill("another battery horse")
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_role("alert")).to_have_text("is not the password that you have now")
    await page.get_by_label("Present password").fill(PASSWORD)
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_text("Password changed. Your other sessions have ended.")).to_be_visible()
    await assert_fits(page)
    other = await visit.page()
    await other.goto("/sign-in?next=/settings")
    await sign_in(other, PASSWORD, EMAIL)
    await expect(other.get_by_text("The e-mail or the password is wrong.")).to_be_visible()
    await sign_in(other, "another battery horse")
    await expect(other.get_by_role("heading", level=1)).to_have_text("Settings")


async def test_an_org_is_made_with_a_key_changed_and_entered(visit: Visit, installation: Installation) -> None:
    await add_user(installation, "OWNER")
    page = await visit.page()
    await page.goto("/sign-in?next=/settings/orgs")
    await sign_in(page)
    await page.get_by_role("button", name="Create an org").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("acme")
    await page.get_by_role("dialog").get_by_role("button", name="Create").click()
    await expect(page.locator("#secret")).to_contain_text("rdk_")
    async with page.expect_event("load"):  # the page comes anew, and with it what its buttons do
        await page.get_by_role("button", name="I have kept it").click()
    row = page.get_by_role("row").filter(has_text="acme")
    await row.get_by_role("button", name="Change").click()
    await page.get_by_role("dialog").get_by_label("Endpoints").fill("7")
    async with page.expect_event("load"):
        await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("0 of 7")
    await row.get_by_role("button", name="Switch to it").click()
    await page.wait_for_url(f"{installation.base_url}/")
    await page.goto("/settings")
    await expect(page.locator(".subtitle")).to_have_text("acme")


async def test_a_viewer_sees_settings_without_what_they_may_not_do(signed_in: SignedIn) -> None:
    page = await signed_in("VIEWER", width=390)
    await page.goto("/settings")
    await expect(page.get_by_role("navigation", name="Settings").get_by_role("link")).to_have_text(["Org", "You"])
    await expect(page.locator("main button[data-path], main form")).to_have_count(0)
    await assert_fits(page)
    await assert_accessible(page)
    refused = await page.evaluate("fetch('/v1/retries/pause', {method: 'POST'}).then((answer) => answer.status)")
    assert refused == 403
