"""One dead letter, log or event in a browser: retry and see how it ends, edit and replay, by mouse and by keys."""

import json
import re
from collections.abc import Sequence
from typing import Any

from playwright.async_api import Page, expect

from redrive.web.assets import address_of
from redrive.web.json_text import MAX_PRETTY_CHARS
from support.axe import assert_accessible
from support.chromium import Visit
from support.engine import ManualClock
from support.installation import Installation
from support.layout import WIDTHS, assert_holds_at_any_width
from support.receiver import Answer, Receiver

from .conftest import SignedIn
from .queue_steps import died, failed

LIST = "/integrations/logs/dead-letter-queue"
BIG = 12345678901234567890123
HOSTILE = '<img src=x onerror=alert(1)>"><script>alert(2)</script>'


async def _dead(redrive: Installation, receiver: Receiver, payload: str = '{"n": 1}') -> str:
    """The id of a dead letter that was refused once; the receiver takes everything from then on."""
    receiver.script(422)
    endpoint = await redrive.api.endpoint(receiver.url)
    body = f'{{"event_type": "invoice.paid", "endpoint_id": "{endpoint["id"]}", "payload": {payload}}}'
    assert (await redrive.api.http.request("POST", "/v1/events", body=body.encode())).status == 202
    letter = await redrive.api.letter(endpoint["id"])
    letter_id: str = letter["id"]
    return letter_id


async def test_a_retry_now_is_followed_to_its_end_and_the_page_says_how_it_ended(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    letter = await _dead(live, receiver)
    page = await signed_in("ADMIN")
    await page.goto(f"/app/admin/dlq/{letter}")
    receiver.script(422)
    await page.get_by_role("button", name="Retry now").click()
    await expect(page.locator(".toast")).to_contain_text("Retry failed: HTTP 422 Unprocessable Entity")
    await expect(page.locator(".try-name")).to_have_text(["First try", "Retry 1"])
    await page.get_by_role("button", name="Retry now").click()
    await expect(page.locator(".toast")).to_have_text("Retry successful. Event removed from queue.×")
    await expect(page.locator(".subtitle .badge")).to_have_text("resolved")
    await expect(page.locator(".redriven")).to_have_count(1)  # the second one retried what waited again


async def test_a_waiting_task_is_retried_from_its_log(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    receiver.usual = 503
    endpoint = await live.api.endpoint(receiver.url)
    await live.api.event(endpoint["id"])
    entry = await live.api.entry(endpoint["id"])
    receiver.usual = 200
    page = await signed_in()
    await page.goto(f"/integrations/logs/{entry['log_id']}")
    await page.keyboard.press("r")
    await expect(page.locator(".subtitle .badge")).to_have_text("success")
    await expect(page.locator(".verdict")).to_contain_text("Succeeded on retry attempt 1.")


async def test_a_page_says_that_its_task_has_gone_on_and_moves_only_when_asked(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await failed(installation, receiver)
    entry = await installation.api.entry(endpoint["id"])
    page = await signed_in("VIEWER")
    await page.goto(f"/integrations/logs/{entry['id']}")
    await expect(page.locator(".verdict")).to_contain_text(
        re.compile(r"Next retry (in [1-5] s|now)\. 0 / 3 retries made\.")
    )
    clock.advance(5)
    await installation.work()
    await expect(page.get_by_text("It has gone on since this page was loaded.")).to_be_visible()
    await expect(page.locator(".try-name")).to_have_count(1)
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator(".try-name")).to_have_count(2)


async def test_an_edited_payload_is_checked_compared_and_sent_as_it_stands_in_the_editor(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    letter = await _dead(live, receiver, f'{{"price": 1.10, "big": {BIG}, "currency": "USD"}}')
    page = await signed_in("IT_MANAGER")
    await page.goto(f"/app/admin/dlq/{letter}")
    await page.keyboard.press("e")
    editor = page.get_by_label("Payload, as JSON")
    await expect(editor).to_have_value(f'{{\n  "price": 1.10,\n  "big": {BIG},\n  "currency": "USD"\n}}')
    await editor.fill(f'{{\n  "price": 1.10,\n  "big": {BIG},\n  "currency": EUR\n}}')
    await expect(page.locator("#editor-said")).to_have_text("Line 4, column 15: EUR is not JSON.")
    await expect(page.get_by_role("button", name="Review changes")).to_be_disabled()
    wanted = f'{{\n  "price": 1.10,\n  "big": {BIG},\n  "currency": "EUR"\n}}'
    await editor.fill(wanted)
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.locator(".diff .removed")).to_have_text('-   "currency": "USD"')
    await expect(page.locator(".diff .added")).to_have_text('+   "currency": "EUR"')
    await assert_accessible(page, slow_in="dialog")
    await page.get_by_label("Why?").fill("wrong currency")
    await page.get_by_role("button", name="Replay", exact=True).click()
    await expect(page.locator(".redriven")).to_contain_text("because “wrong currency”")
    await expect(page.locator(".redriven ins")).to_have_text('"EUR"')
    assert receiver.requests[-1].body.decode() == wanted


async def test_what_the_server_refuses_is_told_in_the_editor_and_nothing_is_lost(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(LIST)
    await page.locator("tbody a.strong-link").click()
    await page.get_by_role("button", name="Edit and replay").click()
    deep = "[" * 70 + "]" * 70
    await page.get_by_label("Payload, as JSON").fill(deep)
    await page.get_by_role("button", name="Review changes").click()
    await page.get_by_role("button", name="Replay", exact=True).click()
    await expect(page.locator("[data-error]")).to_contain_text("nested deeper than 64 levels")
    await page.get_by_role("button", name="Back to the editor").click()
    await expect(page.get_by_label("Payload, as JSON")).to_have_value(deep)
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_editor_of_who_is_not_signed_in_any_more_says_so_and_holds_no_other_page(
    installation: Installation, receiver: Receiver, clock: ManualClock, visit: Visit, signed_in: SignedIn
) -> None:
    visit.forgiven.append("EventSource")  # the page's stream is sent to the sign-in page as well, if it begins so late
    endpoint = await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(f"/app/admin/dlq/{(await installation.api.letter(endpoint['id']))['id']}")
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Edit and replay").click()
    await expect(page.locator("[data-error]")).to_contain_text("Your session has ended: sign in again")
    await expect(page.get_by_label("Payload, as JSON")).to_have_value("")
    await expect(page.get_by_role("button", name="Review changes")).to_be_disabled()


async def test_ends_of_lines_that_the_editor_writes_in_its_own_way_are_no_change(
    live: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    payload = '{"n":\r\n"' + "x" * MAX_PRETTY_CHARS + '"}'  # so long that it is not laid out
    letter = await _dead(live, receiver, payload)
    page = await signed_in()
    await page.goto(f"/app/admin/dlq/{letter}")
    await page.get_by_role("button", name="Edit and replay").click()
    await expect(page.locator("#editor-said")).to_have_text("Valid JSON, nothing changed.")


async def test_a11_delete_asks_and_leads_to_the_list_while_the_log_stays(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    endpoint = await died(installation, receiver, clock)
    letter = await installation.api.letter(endpoint["id"])
    page = await signed_in()
    await page.goto(f"/app/admin/dlq/{letter['id']}")
    await page.get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog", name="Permanently delete this entry?")
    await question.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("Entry deleted from DLQ.")).to_be_visible()
    await expect(page).to_have_url(f"{installation.base_url}{LIST}")
    await page.goto(f"/integrations/logs/{letter['id']}")
    await expect(page.locator(".try-name")).to_have_count(4)


async def test_keys_lead_through_a_dead_letter_and_back_to_the_list_as_it_was(
    installation: Installation, receiver: Receiver, clock: ManualClock, signed_in: SignedIn
) -> None:
    await died(installation, receiver, clock)
    page = await signed_in()
    await page.goto(f"{LIST}?type=invoice.paid")
    await _open_first_by_keys(page)
    await page.keyboard.press("u")
    await page.wait_for_url(f"{installation.base_url}{LIST}?type=invoice.paid")
    await _open_first_by_keys(page)
    await page.keyboard.press("m")
    await page.get_by_role("dialog").get_by_label("Why?").fill("booked by hand")
    await page.keyboard.press("Enter")
    await expect(page.locator(".subtitle .badge")).to_have_text("resolved")
    await expect(page.locator(".done")).to_contain_text("booked by hand")
    await page.keyboard.press("r")
    await expect(page.locator(".subtitle .badge")).to_have_text("replaying")
    await expect(page.get_by_text("Retry scheduled. The event is back in the retry queue.")).to_be_visible()


async def _open_first_by_keys(page: Page) -> None:
    """Keys work once the scripts have run: when the page has loaded."""
    await page.keyboard.press("Escape")
    async with page.expect_navigation(url="**/app/admin/dlq/*", wait_until="load"):
        await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("invoice.paid")


async def test_the_pages_fit_are_accessible_and_show_hostile_text_as_text(
    installation: Installation, receiver: Receiver, signed_in: SignedIn
) -> None:
    body = json.dumps({"error": HOSTILE, "long": "x" * 300}).encode()
    receiver.usual = Answer(503, body, {"content-type": "application/json", "x-long": "y" * 300})
    endpoint = await installation.api.endpoint(receiver.url, name=HOSTILE, external_system=HOSTILE)
    await installation.api.event(endpoint["id"], {"html": HOSTILE, "long": "z" * 300})
    await installation.work()
    entry = await installation.api.entry(endpoint["id"])
    await installation.api.post(f"/v1/retry-queue/{entry['id']}/skip", {"because": HOSTILE})
    page = await signed_in(width=WIDTHS[0], scheme="dark")
    for path in (f"/app/admin/dlq/{entry['id']}", f"/integrations/logs/{entry['id']}", f"/events/{entry['event_id']}"):
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_have_text("invoice.paid")
        await expect(page.locator("main img")).to_have_count(0)
        await expect(page.locator(".try-body").first).to_contain_text("<script>alert(2)</script>")
        await assert_holds_at_any_width(page, in_light=WIDTHS[1:])


async def test_faults_in_json_are_found_where_they_are(installation: Installation, signed_in: SignedIn) -> None:
    page = await signed_in()
    await page.goto(LIST)
    places = {
        "": (1, 1),
        "{": (1, 2),
        '{"a": 1,}': (1, 9),
        '{\n  "a": 1\n  "b": 2\n}': (3, 3),
        "[1, 2": (1, 6),
        "[1 2]": (1, 4),
        "{'a': 1}": (1, 2),
        '{"a" 1}': (1, 6),
        "[01]": (1, 2),
        "[1.]": (1, 2),
        '["a\nb"]': (1, 2),
        "nul": (1, 1),
        "{} []": (1, 4),
        "[}": (1, 2),
        '{"a": tru}': (1, 7),
    }
    faults = await _each_in(page, "json_text.js", "fault", [(text,) for text in places])
    for (text, place), found in zip(places.items(), faults, strict=True):
        assert (found["line"], found["column"]) == place, (text, found)
    sound = ("0", '"a"', "[]", "{}", ' {"a": [1.5e-7, -0, true, null, "\\u00e9\\n"]} ', "[[1],[2]]")
    assert await _each_in(page, "json_text.js", "fault", [(text,) for text in sound]) == [None] * len(sound)


async def test_a_comparison_of_lines_leads_from_one_text_to_the_other(
    installation: Installation, signed_in: SignedIn
) -> None:
    page = await signed_in()
    await page.goto(LIST)
    texts = ["a", "a\nb", "b\na", "a\nb\nc\nd", "a\nx\nc\nd\ne", "", "\n\n", "d\nc\nb\na", "a\na\na", "a\nb\na"]
    pairs = [(before, after) for before in texts for after in texts]
    for (before, after), lines in zip(pairs, await _each_in(page, "line_diff.js", "lineDiff", pairs), strict=True):
        if before == after:
            assert lines == []
            continue
        assert "\n".join(line for mark, line in lines if mark != "+") == before
        assert "\n".join(line for mark, line in lines if mark != "-") == after
    long = [str(n) for n in range(100)]
    one_more = ("\n".join(long), "\n".join([*long[:50], "new", *long[50:]]))
    (lines,) = await _each_in(page, "line_diff.js", "lineDiff", [one_more])
    assert [mark for mark, _ in lines] == ["…", " ", " ", " ", "+", " ", " ", " ", "…"]


async def _each_in(page: Page, module: str, function: str, calls: Sequence[Sequence[str]]) -> list[Any]:
    """What the function of the module answers to each of these arguments."""
    call = "([address, name, calls]) => import(address).then((module) => calls.map((given) => module[name](...given)))"
    answers: list[Any] = await page.evaluate(call, [address_of(module), function, calls])
    return answers
