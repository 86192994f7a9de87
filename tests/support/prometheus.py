"""Debian's Prometheus, on a free port in a folder of its own, and promtool. Stopped whatever a test does.

async with prometheus(folder, {"redrive": [...], "redrive-workers": [...]}) as server:
    await server.value("sum(events_created_total)")
"""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from support.http import HttpClient

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "redrive.rules.yml"
MISSING = "PROMETHEUS IS NOT INSTALLED: nothing was scraped, no rule was tried (apt install prometheus)"
READY_WITHIN_S = 20.0
STOP_WITHIN_S = 5.0

needs_prometheus = pytest.mark.skipif(not (shutil.which("prometheus") and shutil.which("promtool")), reason=MISSING)


async def promtool(*words: str, given: str = "") -> None:
    """Run it; what it finds fault with fails the test."""
    process = await asyncio.create_subprocess_exec(
        "promtool",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate(given.encode())
    assert process.returncode == 0, said.decode()


class Prometheus:
    def __init__(self, port: int) -> None:
        self._http = HttpClient("127.0.0.1", port)

    def close(self) -> None:
        self._http.close()

    async def ask(self, path: str, **query: str) -> Any:
        answer = await self._http.get(f"/api/v1/{path}?{urlencode(query)}")
        said = answer.json
        assert said["status"] == "success", (query, said)
        return said["data"]

    async def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """The value of each series by the values of its labels, in the order of their names."""
        found = (await self.ask("query", query=expression))["result"]
        return {tuple(v for _, v in sorted(one["metric"].items())): float(one["value"][1]) for one in found}

    async def value(self, expression: str) -> float | None:
        """Of an expression with one series or none."""
        found = await self.query(expression)
        assert len(found) <= 1, (expression, found)
        return next(iter(found.values()), None)

    async def is_ready(self) -> bool:
        try:
            return (await self._http.get("/-/ready")).status == 200
        except OSError:
            return False


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@asynccontextmanager
async def prometheus(folder: Path, targets: Sequence[str]) -> AsyncIterator[Prometheus]:
    """Scrapes these twice a second, and evaluates our rules every second. JSON is YAML enough for it.

    It looks for what it is to scrape five seconds after it began; for that of a second job, five seconds later.
    """
    jobs = [{"job_name": "redrive", "static_configs": [{"targets": list(targets)}]}]
    often = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"}
    config = {"global": often, "rule_files": [str(RULES)], "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
        stdin=asyncio.subprocess.DEVNULL,
    )
    server = Prometheus(port)
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            while not await server.is_ready():
                assert process.returncode is None, "Prometheus ended at once"
                await asyncio.sleep(0.05)
        yield server
    finally:
        server.close()
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_WITHIN_S)
            except TimeoutError:
                process.kill()
                await process.wait()
