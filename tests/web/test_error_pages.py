"""Pages for what went wrong: they say what, and lead on."""

import pytest

from api.conftest import Api
from support.page import read

LETTERS = "/integrations/logs/dead-letter-queue"


async def test_who_is_signed_in_finds_the_way_on_in_the_navigation(api: Api) -> None:
    for path, status in ((f"/endpoints/{api.org_id}", 404), ("/nowhere", 404), (f"{LETTERS}?cursor=garbage", 400)):
        page = await read(api.owner, path)
        assert page.status == status
        assert page.has("a", href=LETTERS)
        assert len(page.all("h1")) == 1


async def test_who_may_not_see_a_page_is_told_so_beside_those_they_may(api: Api) -> None:
    page = await read(api.viewer, "/settings/users")
    assert (page.status, page.one("h1").text) == (403, "You may not see this")
    assert page.has("a", href=LETTERS)
    assert page.has("a", text="Sign in as somebody else")


async def test_a_place_in_a_list_that_leads_nowhere_leads_to_its_beginning(api: Api) -> None:
    page = await read(api.owner, f"{LETTERS}?type=a%26b&cursor=garbage")
    assert page.has("a", href=f"{LETTERS}?type=a%26b", text="To the first page")


@pytest.mark.parametrize("path", ["//evil.example/", "/%2Fevil.example/", "/nowhere"])
async def test_no_address_leads_away_from_here(api: Api, path: str) -> None:
    page = await read(api.owner, f"{path}?cursor=1")
    assert page.status == 404
    assert not any("evil" in link.attributes.get("href", "") for link in page.all("a"))
    assert not page.has("a", text="To the first page")


async def test_who_is_not_signed_in_sees_the_error_and_nothing_else(api: Api) -> None:
    page = await read(api.nobody, "/nowhere")
    assert (page.status, page.one("h1").text) == (404, "Nothing here")
    assert not page.has("a", href=LETTERS)


async def test_where_the_database_cannot_be_read_the_error_stands_alone(own_api: Api) -> None:
    await own_api.sql("ALTER TABLE redrive.dead_letter RENAME COLUMN category TO elsewhere")
    page = await read(own_api.owner, LETTERS)
    assert (page.status, page.one("h1").text) == (500, "Something went wrong")
    await own_api.sql("ALTER TABLE redrive.counter RENAME TO elsewhere")
    page = await read(own_api.owner, "/nowhere")
    assert (page.status, page.one("h1").text) == (404, "Nothing here")
    assert not page.has("a", href=LETTERS)
