"""Signing in and out, and going from org to org, as people do it."""

import re

from playwright.async_api import Page, expect

from support.axe import assert_accessible
from support.chromium import Visit
from support.installation import Installation
from support.layout import assert_fits

EMAIL, PASSWORD = "ada@example.com", "correct horse battery"


async def add_user(installation: Installation, role: str = "ADMIN", email: str = EMAIL) -> str:
    made = await installation.api.post("/v1/users", {"email": email, "name": "Ada", "role": role, "password": PASSWORD})
    user_id: str = made["id"]
    return user_id


async def sign_in(page: Page, password: str = PASSWORD, email: str = EMAIL) -> None:
    await page.get_by_label("E-mail").fill(email)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_wrong_password_is_told_and_the_right_one_leads_to_where_one_wanted_to_go(
    visit: Visit, installation: Installation
) -> None:
    await add_user(installation)
    page = await visit.page()
    await page.goto("/audit?actor=me")
    await expect(page).to_have_url(re.compile(r"/sign-in\?next="))
    await sign_in(page, "no horse battery")
    await expect(page.get_by_text("The e-mail or the password is wrong.")).to_be_visible()
    await expect(page.get_by_label("Password")).to_be_focused()
    await expect(page.get_by_label("Password")).to_have_value("")
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/audit\?actor=me$"))
    await expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")


async def test_who_failed_too_often_reads_how_long_to_wait_and_who_is_suspended_reads_why(
    visit: Visit, installation: Installation
) -> None:
    user_id = await add_user(installation)
    await add_user(installation, "OWNER", "olivia@example.com")
    await installation.api.http.request("PATCH", f"/v1/users/{user_id}", {"suspended": True})
    page = await visit.page()
    await page.goto("/sign-in")
    await sign_in(page)
    await expect(page.get_by_text("This membership is suspended.")).to_be_visible()
    for _ in range(5):
        await sign_in(page, "no horse battery", "olivia@example.com")
        await expect(page.get_by_text("The e-mail or the password is wrong.")).to_be_visible()
    await sign_in(page, "no horse battery", "olivia@example.com")
    said = re.compile(r"Too many passwords were wrong\. Try again in \d+ (s|min)\.")
    await expect(page.get_by_text(said)).to_be_visible()


async def test_signing_out_leaves_nothing_behind_the_back_button(visit: Visit, installation: Installation) -> None:
    await add_user(installation)
    page = await visit.page()
    await page.goto("/sign-in?next=/settings")
    await sign_in(page)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
    await page.goto("/operations")
    await page.locator("[data-account] summary").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(re.compile("/sign-in$"))
    await page.go_back()
    await expect(page).to_have_url(re.compile(r"/sign-in\?next="))
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


async def test_a_link_works_once_and_then_says_so(visit: Visit, installation: Installation) -> None:
    url = await installation.sign_in_url()
    page = await visit.page()
    await page.goto(url)
    await page.goto("/settings")
    await expect(page.locator("[data-account] .who")).to_have_text("Signed in by a link")
    again = await visit.page()
    await again.goto(url)
    await expect(again).to_have_url(re.compile("/sign-in.link=used$"))
    await expect(again.get_by_text("This sign-in link was used before")).to_be_visible()


async def test_an_owner_finds_an_org_among_many_and_goes_there(visit: Visit, installation: Installation) -> None:
    await add_user(installation, "OWNER")
    for n in range(11):
        await installation.api.post("/v1/orgs", {"name": f"branch {n}"})
    page = await visit.page(width=390)
    await page.goto("/sign-in?next=/settings")
    await sign_in(page)
    await page.wait_for_url(f"{installation.base_url}/settings")  # and loaded: the menu is a script's
    await page.get_by_role("button", name="Menu").click()
    await page.locator("[data-account] summary").click()
    box = page.get_by_label("Find an org")
    await box.fill("branch 7")
    await expect(page.get_by_role("list", name="Switch org").get_by_role("button")).to_have_text(["branch 7"])
    await assert_fits(page)
    await assert_accessible(page)
    await box.press("Enter")
    await page.wait_for_url(f"{installation.base_url}/")
    await page.goto("/settings")
    await expect(page.locator(".subtitle")).to_have_text("branch 7")


async def test_who_is_in_one_org_is_offered_no_other(visit: Visit, installation: Installation) -> None:
    await add_user(installation, "STAFF")
    await installation.api.post("/v1/orgs", {"name": "elsewhere"})
    page = await visit.page()
    await page.goto("/sign-in?next=/settings")
    await sign_in(page)
    async with page.expect_response("**/v1/session"):
        await page.locator("[data-account] summary").click()
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    await expect(page.locator("[data-orgs]")).to_be_hidden()
