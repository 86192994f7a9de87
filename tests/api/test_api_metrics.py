"""/metrics: open to the machine itself, with a key to others, who may stand behind a proxy."""

from .conftest import Api


async def test_from_this_machine_no_key_is_needed_and_through_a_proxy_one_is(api: Api) -> None:
    here = await api.nobody.get("/metrics")
    assert (here.status, b"# TYPE workflow_dlq_moves_total counter" in here.body) == (200, True)
    for name in ("X_Forwarded_For", "Forwarded", "Via"):
        assert (await api.nobody.request("GET", "/metrics", headers={name: "10.1.2.3"})).status == 401
        assert (await api.viewer.request("GET", "/metrics", headers={name: "10.1.2.3"})).status == 200
