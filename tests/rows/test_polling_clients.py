"""The clients that row C's specification shows its users run as they are, but for address, key and id."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from support.engine import ManualClock
from support.holding import HoldingReceiver
from support.installation import Installation

CLIENTS = Path(__file__).parent / "polling_clients"
ADDRESS = "https://triggers-api.zapier.com/v1"
KEY = "your-api-key-here"
EVENT = "550e8400-e29b-41d4-a716-446655440000"
NODE = shutil.which("node")


async def _event(redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, answer: int) -> str:
    receiver.usual = answer
    endpoint = await redrive.api.endpoint(receiver.url, policy="triggers")
    event_id = await redrive.api.event(endpoint["id"])
    for delay_s in (0, 60, 300, 900):
        clock.advance(delay_s)
        await redrive.work()
    return event_id


async def _output_of(redrive: Installation, event_id: str, folder: Path, source: str, *command: str) -> list[str]:
    text = (CLIENTS / source).read_text()
    assert ADDRESS in text
    assert KEY in text
    assert EVENT in text
    given = {ADDRESS: f"{redrive.base_url}/v1", KEY: str(redrive.api.http.key), EVENT: event_id}
    for placeholder, value in given.items():
        text = text.replace(placeholder, value)
    file = folder / source.removesuffix(".txt")
    file.write_text(text)
    running = await asyncio.create_subprocess_exec(
        *command, str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, err = await running.communicate()
    assert running.returncode == 0, err.decode()
    return out.decode().splitlines()


@pytest.mark.parametrize(("answer", "end"), [(200, "delivered"), (503, "failed")])
async def test_c6_the_specification_s_python_client_runs_unchanged(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, tmp_path: Path, answer: int, end: str
) -> None:
    pytest.importorskip("requests")
    event_id = await _event(redrive, clock, receiver, answer)
    said = await _output_of(redrive, event_id, tmp_path, "polling.py.txt", sys.executable)
    retries = 0 if end == "delivered" else 3
    assert said[0] == f"Event status: {end}, retry_attempts: {retries}"
    assert said[-1] == f"Final status: {end}"


@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.parametrize(("answer", "end"), [(200, "delivered"), (503, "failed")])
async def test_c6_the_specification_s_javascript_client_runs_unchanged(
    redrive: Installation, clock: ManualClock, receiver: HoldingReceiver, tmp_path: Path, answer: int, end: str
) -> None:
    event_id = await _event(redrive, clock, receiver, answer)
    assert NODE is not None
    said = await _output_of(redrive, event_id, tmp_path, "polling.js", NODE)
    retries = 0 if end == "delivered" else 3
    assert said[0] == f"Event status: {end}, retries: {retries}"
    assert said[-1] == f"Final status: {end}"
