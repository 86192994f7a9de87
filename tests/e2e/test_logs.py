"""No payload, key or secret in any log, at any level, whatever goes wrong (C-7)."""

import json
from pathlib import Path

from structlog.testing import capture_logs

from redrive import Redrive
from support.installation import installation
from support.processes import ADMIN_KEY, SECRET_KEY, worker
from support.receiver import Answer, open_receiver

APP = """
from redrive import Redrive

app = Redrive("{url}")


@app.handler("edi.orders", policy="quick")
def send(task):
    raise RuntimeError("POST https://erp.example/?api_key=canary-handler failed, password=canary-stack")
"""


async def test_a_canary_in_every_secret_place_is_in_no_log_line(database_url: str, data_dir: Path) -> None:
    data_dir.joinpath("canary_app.py").write_text(APP.format(url=database_url))
    said: list[object] = []
    with capture_logs() as api_lines:
        async with (
            open_receiver() as receiver,
            installation(database_url) as redrive,
            worker(
                database_url, "--app", "canary_app:app", cwd=data_dir, env={"REDRIVE_LOG_LEVEL": "debug"}
            ) as running,
        ):
            await redrive.api.policy("quick", kind="list", delays_s=[0.01], max_retries=1)
            receiver.usual = lambda _: Answer(503, b'{"token": "canary-answer"}', {"set-cookie": "canary-cookie"})
            endpoint = await redrive.api.endpoint(
                f"{receiver.url}?token=canary-url", headers={"x-erp-key": "canary-header"}, policy="quick"
            )
            dead = await redrive.api.event(endpoint["id"], {"card": "canary-payload"}, **{"x-canary": "canary-sent"})
            await running.said("event_failed", event_id=dead)
            receiver.usual = lambda _: 200
            delivered = await redrive.api.event(endpoint["id"], {"card": "canary-payload"})
            await running.said("status_transition", event_id=delivered, new_status="delivered")
            app = Redrive(database_url)
            handled = await app.enqueue("edi.orders", {"card": "canary-payload"}, policy="quick")
            await app.close()
            await running.said("event_failed", event_id=str(handled))
            letter = await redrive.api.letter(endpoint["id"])
            await redrive.api.post(f"/v1/dead-letters/{letter['id']}/retry", {"now": True})
            await redrive.api.http.post("/v1/events", {"event_type": "a\x00", "payload": "canary-refused"})
            secret = endpoint["secret"]
            said = [*running.log, *api_lines]
    text = json.dumps(said, default=str)
    names = {line["event"] for line in running.log if "event" in line}
    assert names >= {"worker_started", "delivery_failure", "retry_attempted", "event_failed", "status_transition"}
    assert "canary" not in text
    assert not any(hidden in text for hidden in (ADMIN_KEY, SECRET_KEY, secret))
    assert {"@timestamp", "service", "org_id"} <= next(
        line for line in running.log if line["event"] == "event_failed"
    ).keys()
