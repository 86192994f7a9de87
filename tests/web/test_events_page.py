"""The list of events, and the inbox."""

from uuid import uuid4

from api.conftest import Api
from support.page import read

HOSTILE = '<img src=x onerror=alert(1)>"'


async def test_events_are_listed_newest_first_with_their_status(api: Api) -> None:
    waiting = await api.event("stock.low")
    await api.endpoint(event_types=["invoice.*"])
    dead = (await api.dead_task())["event_id"]
    page = await read(api.owner, "/events")
    links = [link.attributes["href"] for link in page.all("a", class_="strong-link")]
    assert links == [f"/events/{dead}", f"/events/{waiting}"]
    assert page.has("span", class_="badge failed", text="failed")
    assert page.has("span", class_="badge created", text="received")
    assert "2 events" in page.text


async def test_the_filters_of_the_address_are_in_force_and_shown(api: Api) -> None:
    await api.event("stock.low")
    await api.event("stock.high")
    page = await read(api.owner, "/events?status=received&type=stock.low")
    assert [link.text for link in page.all("a", class_="strong-link")] == ["stock.low"]
    assert page.has("option", value="received", selected="")
    assert page.has("input", name="type", value="stock.low")
    assert page.has("a", href="/events?status=received")
    assert "1 event" in page.text  # known without counting
    none = await read(api.owner, "/events?status=failed")
    assert "No events here" in none.text


async def test_a_status_that_does_not_exist_is_said_to(api: Api) -> None:
    page = await read(api.owner, "/events?status=lost")
    assert page.has("p", role="alert", text="status:lost is not known: received, queued, delivered, failed are.")


async def test_a_search_for_an_id_leads_to_the_event_and_one_for_a_text_to_its_type(api: Api) -> None:
    wanted = str(uuid4())
    assert (await api.owner.get(f"/events?q={wanted}")).headers["location"] == f"/events/{wanted}"
    led = await api.owner.get("/events?status=failed&q=invoice.paid")
    assert led.headers["location"] == "/events?status=failed&type=invoice.paid"


async def test_events_go_on_behind_a_cursor_that_is_good_for_this_list_only(api: Api) -> None:
    made = [{"event_type": "stock.low", "payload": n} for n in range(51)]
    assert (await api.owner.post("/v1/events/batch", made)).status in (200, 202)
    first = await read(api.owner, "/events?type=stock.low")
    (lead_on,) = first.all("a", rel="next")
    second = await read(api.owner, lead_on.attributes["href"])
    shown = [
        {row.attributes["data-id"] for row in page.all("tr") if "data-id" in row.attributes} for page in (first, second)
    ]
    assert [len(ids) for ids in shown] == [50, 1]
    assert not shown[0] & shown[1]
    elsewhere = lead_on.attributes["href"].replace("stock.low", "stock.high")
    assert (await read(api.owner, elsewhere)).status == 400


async def test_what_is_hostile_in_an_event_is_text_on_both_pages(api: Api) -> None:
    await api.event(HOSTILE, {"note": HOSTILE})
    for path in ("/events", "/inbox"):
        page = await read(api.owner, path)
        assert not page.has("img")
        assert page.has("a", class_="strong-link", text=HOSTILE)


async def test_only_who_may_produce_is_offered_to_send(api: Api) -> None:
    assert (await read(api.owner, "/events")).has("form", data_send_event="")
    for client in (api.staff, api.viewer):
        page = await read(client, "/events")
        assert page.status == 200
        assert not page.has("form", data_send_event="")


async def test_nobody_sees_the_events_of_another_org(api: Api) -> None:
    await api.event("merger.planned")
    for path in ("/events", "/inbox"):
        assert "merger.planned" not in (await read(api.stranger, path)).answer.body.decode()


async def test_the_inbox_shows_what_waits_oldest_first_and_what_may_be_done_with_it(api: Api) -> None:
    first, second = [await api.event("stock.low", {"n": 12345678901234567890, "word": word}) for word in ("a", "b")]
    page = await read(api.owner, "/inbox")
    assert [link.attributes["href"] for link in page.all("a", class_="strong-link")] == [
        f"/events/{first}",
        f"/events/{second}",
    ]
    assert page.has("code", text='{"n": 12345678901234567890, "word": "a"}')
    acknowledge, _ = page.all("button", text="Acknowledge")
    assert acknowledge.attributes["data-path"] == f"/v1/events/{first}/ack"
    delete, _ = page.all("button", text="Delete")
    assert delete.attributes["data-method"] == "DELETE"
    assert delete.attributes["data-ask"] == "Permanently delete this event?"


async def test_the_inbox_shows_the_failed_on_a_tab_of_their_own_without_acknowledging(api: Api) -> None:
    await api.event("stock.low")
    await api.endpoint(event_types=["invoice.*"])
    dead = (await api.dead_task())["event_id"]
    page = await read(api.owner, "/inbox?status=failed")
    assert [link.attributes["href"] for link in page.all("a", class_="strong-link")] == [f"/events/{dead}"]
    assert page.one("a", aria_current="page", href="/inbox?status=failed").text == "Failed"
    assert page.buttons == {"Delete"}


async def test_staff_read_the_inbox_and_are_offered_nothing(api: Api) -> None:
    await api.event("stock.low")
    page = await read(api.staff, "/inbox")
    assert page.has("a", class_="strong-link", text="stock.low")
    assert page.buttons == set()


async def test_a_viewer_sees_no_secret_of_a_payload_in_the_inbox(api: Api) -> None:
    await api.event("stock.low", {"password": "hunter2", "sku": "A1"})
    assert "hunter2" in (await read(api.owner, "/inbox")).text
    seen = await read(api.viewer, "/inbox")
    assert "hunter2" not in seen.answer.body.decode()
    assert "A1" in seen.text


async def test_a_long_payload_is_cut_in_the_inbox(api: Api) -> None:
    await api.event("stock.low", {"text": "x" * 100_000})
    page = await read(api.owner, "/inbox")
    assert len(page.answer.body) < 40_000
    assert "100 kB" in page.text


async def test_control_characters_in_an_address_are_passed_over(api: Api) -> None:
    for path in ("/events", "/inbox"):
        page = await read(api.owner, f"{path}?type=%00stock.%1blow")
        assert page.status == 200
        assert page.has("input", name="type", value="stock.low")
