"""The log of a workflow's step says what was really sent: its own method and headers, not those of a delivery."""

from support.holding import HoldingReceiver
from support.installation import Installation
from support.page import read


async def test_a_step_s_log_has_the_method_and_the_headers_that_the_receiver_saw(
    redrive: Installation, receiver: HoldingReceiver
) -> None:
    endpoint = await redrive.api.endpoint(receiver.url)
    own = {"name": "look", "kind": "http", "url": f"{receiver.url}/look", "method": "GET", "headers": {"x-note": "a"}}
    signed = {"name": "tell", "kind": "http", "endpoint": endpoint["id"], "method": "PUT", "body": {"n": 1}}
    await redrive.api.workflow("fulfil", own, signed)
    run_id = await redrive.api.run("fulfil")
    await redrive.work()
    steps = (await redrive.api.run_of(run_id))["steps"]
    for step, sent, method in zip(steps, receiver.requests, ("GET", "PUT"), strict=True):
        log = await redrive.api.log(step["log_id"])
        shown = log["request"]
        assert (shown["method"], sent.method) == (method, method)
        assert set(shown["headers"]) <= set(sent.headers)
        assert shown["headers"]["idempotency-key"] == f"{run_id}:{step['index']}"
        assert ("webhook-signature" in shown["headers"]) == (method == "PUT")
        known = shown["headers"].items()
        same = {name: value for name, value in known if value != "[redacted]" and name != "webhook-timestamp"}
        assert same == {name: sent.headers[name] for name in same}
        page = await read(redrive.api.http, f"/integrations/logs/{step['log_id']}")
        assert f"--request {method}" in page.one("pre", id="curl").text
        assert "payload.json" not in page.text
