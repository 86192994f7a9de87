"""The retry queue as it is served: what holds an entry is said before it falls due."""

import pytest

from api.conftest import Api
from support.page import read

PATH = "/integrations/logs/retry-queue"


@pytest.mark.parametrize(("action", "cause"), [("pause", "paused"), ("disable", "disabled")])
async def test_what_will_be_held_says_so_and_cannot_be_tried(api: Api, action: str, cause: str) -> None:
    endpoint = await api.endpoint(name="billing")
    entry = await api.failed_task()
    assert "held" not in {badge.text for badge in (await read(api.owner, PATH)).all("span")}
    await api.owner.post(f"/v1/endpoints/{endpoint['id']}/{action}")
    way_out = {"pause": "Resume", "disable": "Enable"}[action]
    why = f'It cannot be tried: its endpoint "billing" is {cause}. {way_out} endpoint "billing", then retry.'
    page = await read(api.owner, PATH)
    assert page.has("span", class_="badge held", text="held when due", title=why)
    assert page.has("button", text="Retry Now", disabled="", title=why)
    log = await read(api.owner, f"/integrations/logs/{entry['id']}")
    assert f'Held when it is due: its endpoint "billing" is {cause}. {way_out} endpoint "billing", and' in log.text
    assert log.has("button", text="Retry Now", disabled="")


async def test_badges_call_an_endpoint_and_a_group_by_their_names(api: Api) -> None:
    endpoint = await api.endpoint(name="billing")
    await api.failed_task()
    page = await read(api.owner, f"{PATH}?endpoint={endpoint['id']}")
    assert page.has("button", text="endpoint: billing", data_edit_term=f"endpoint:{endpoint['id']}")
    letter = await api.dead_task()
    letters = await read(api.owner, f"/integrations/logs/dead-letter-queue?group={letter['fingerprint']}")
    assert letters.has("button", text=f"group: {letter['error_message']}")
