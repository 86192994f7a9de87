"""Notices over HTTP: what people should hear of, newest first, by kind, and of one's own org."""

from .conftest import Api


async def test_a_dead_letter_is_a_notice(api: Api) -> None:
    endpoint = await api.endpoint()
    letter = await api.dead_task()
    (notice,) = (await api.viewer.get("/v1/notices")).json["data"]
    assert (notice["kind"], notice["severity"], notice["told_at"]) == ("dead_letter", "error", None)
    assert (notice["subject_kind"], notice["subject_id"]) == ("dead_letter", letter["id"])
    assert notice["facts"]["endpoint_id"] == endpoint["id"]
    assert notice["text"].startswith(f'invoice.paid for endpoint "{endpoint["name"]}" is a dead letter: ')
    assert notice["at"].endswith("Z")


async def test_pages_are_newest_first_and_lead_to_the_end(api: Api) -> None:
    await api.endpoint()
    letters = [(await api.dead_task())["id"] for _ in range(5)]
    seen: list[str] = []
    path = "/v1/notices?kind=dead_letter&limit=2"
    while True:
        page = (await api.owner.get(path)).json
        seen += [notice["subject_id"] for notice in page["data"]]
        assert page["pagination"]["total_count"] is None
        if not page["pagination"]["has_more"]:
            break
        path = f"/v1/notices?kind=dead_letter&limit=2&cursor={page['pagination']['cursor']}"
    assert seen == letters[::-1]
    assert (await api.owner.get("/v1/notices?kind=endpoint.disabled")).json["data"] == []


async def test_another_org_s_notices_are_not_there_and_bad_questions_are_refused(api: Api) -> None:
    await api.endpoint()
    await api.dead_task()
    assert (await api.stranger.get("/v1/notices")).json["data"] == []
    assert (await api.nobody.get("/v1/notices")).status == 401
    cursor = (await api.owner.get("/v1/audit?limit=1")).json["pagination"]["cursor"]
    for query in ("kinds=x", "limit=0", "kind=", "kind=a&kind=b", f"cursor={cursor}"):
        assert (await api.owner.get(f"/v1/notices?{query}")).status == 400, query
