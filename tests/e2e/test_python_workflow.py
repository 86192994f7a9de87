"""The program of docs/workflows.md, as it stands there, run by `redrive worker --app`."""

import json
import re
from pathlib import Path

from redrive import Redrive
from support.holding import open_holding
from support.installation import installation
from support.oracle import all_succeed, assert_sound
from support.processes import worker
from support.receiver import Answer

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"


async def test_the_program_of_the_page_is_stored_and_carried_out_by_a_worker(database_url: str, tmp_path: Path) -> None:
    program = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    async with open_holding() as carrier, installation(database_url) as redrive:
        carrier.usual = Answer(200, b'{"parcel": "p-1"}')
        here = program.replace("postgresql://…", database_url).replace("https://carrier.example.com", carrier.url)
        (tmp_path / "orders.py").write_text(here)
        app = Redrive(database_url)
        async with worker(database_url, "--app", "orders:app", cwd=tmp_path, env={"CARRIER_TOKEN": "t0p"}) as program:
            run_id = await app.start("fulfil", {"order": 7, "amount": 12.5}, idempotency_key="order-7")
            assert await app.start("fulfil", {"order": 7, "amount": 12.5}, idempotency_key="order-7") == run_id
            await all_succeed(database_url)
            assert program.lines("workflow_stored")[0]["version"] == 1
        await app.close()
        run = await redrive.api.run_of(str(run_id))
        assert (run["status"], {step["status"] for step in run["steps"]}) == ("SUCCESS", {"SUCCESS"})
        [request] = carrier.requests
        assert (request.method, request.path.rpartition("/orders/")[2]) == ("PUT", "7")
        assert (request.headers["authorization"], request.headers["idempotency-key"]) == ("Bearer t0p", f"{run_id}:1")
        assert json.loads(request.body) == {"charge": f"charge-{run_id}:0"}
        [event] = (await redrive.api.get("/v1/inbox"))["events"]
        assert (event["event_type"], event["payload"]) == ("order.shipped", {"parcel": "p-1"})
        assert "t0p" not in json.dumps(await redrive.api.get("/v1/workflows/fulfil"))
    await assert_sound(database_url, received=carrier.ids)
