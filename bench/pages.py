"""What pages weigh and how long the server takes for them, with few dead letters and many.

`python -m bench.pages [--small]`; without it, writes bench/results/pages.json and docs/benchmarks.md.

Two installations side by side, real `redrive serve` processes, one with 1 000 and one with 200 000 dead letters. Bytes
are those that a real Chromium takes for the first view of the list, as it counts them: document, styles, scripts and
whatever else, headers included, as they came over the wire. Times are those of single requests on one connection, asked
of both in turn. Called by bench.scenarios. Touches processes and temporary files.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from bench.model import Run
from bench.peers.base import vacuum_analyze
from bench.postgres import BenchPostgres, free_port
from bench.processes import ROOT, Child, module
from redrive.api.cursors import Cursors, ListPlace
from redrive.app import prepare_database
from redrive.core.permissions import Role
from redrive.settings import load_settings
from redrive.store import sessions
from redrive.store.clock import DatabaseClock
from redrive.store.db import Database
from redrive.store.seal import Sealer

if TYPE_CHECKING:
    from bench.alone import Measured

SMALL, LARGE = 1_000, 200_000
REQUESTS = 40
WARM_UP = 8
TIMEOUT_S = 30.0
SETTLE_MS = 800  # what is asked for after the page was loaded has come
LIST = "/integrations/logs/dead-letter-queue"
LIST_NAME = "page dead-letters"  # as the page signs its cursors
FILTER = "?type=order.shipped"
NOWHERE = "http://127.0.0.1:9/hook"


@dataclass(slots=True)
class Site:
    """A running installation with so many dead letters, and somebody who is signed in to it."""

    letters: int
    port: int
    cookie: str
    paths: Mapping[str, str]
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    weights_kb: dict[str, float] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> Run:
        taken = {f"{name}_ms": statistics.median(times) for name, times in self.times_ms.items()}
        seconds = sum(map(sum, self.times_ms.values())) / 1000
        return Run.timed("redrive", sum(map(len, self.times_ms.values())), seconds, taken | self.weights_kb)


async def pages(server: BenchPostgres, small: int = SMALL, large: int = LARGE) -> tuple[Run, Run]:
    """A run each. A page that is not there is not measured."""
    _reach_the_tests()
    async with _site(server, small) as few, _site(server, large) as many:
        await asyncio.to_thread(_time, few, many)
        for site in (few, many):
            site.weights_kb = await _weigh(site)
        return few.run(), many.run()


def _reach_the_tests() -> None:
    """Seeding and the browser are the tests' own."""
    if (tests := str(ROOT / "tests")) not in sys.path:
        sys.path.append(tests)


# -- the installations ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _site(server: BenchPostgres, letters: int) -> AsyncIterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="redrive-bench-pages-"))
    try:
        async with server.database("pages") as url, _running(url, folder, letters) as site:
            yield site
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def _running(url: str, folder: Path, letters: int) -> AsyncIterator[Site]:
    from support.letters import seed
    from support.remote import Remote

    key, secret, port = "rdk_" + secrets.token_urlsafe(32), secrets.token_urlsafe(32), free_port()
    settings = load_settings(
        database_url=url, data_dir=folder, admin_key=key, secret_key=secret, allow_networks="127.0.0.0/8"
    )
    org_id = (await prepare_database(settings, url)).org_id
    env = {
        "REDRIVE_DATABASE_URL": url,
        "REDRIVE_DATA_DIR": str(folder),
        "REDRIVE_SECRET_KEY": secret,
        "REDRIVE_ALLOW_NETWORKS": "127.0.0.0/8",
        "REDRIVE_LOG_LEVEL": "error",
    }
    argv = module("redrive.cli.main", "serve", "--no-worker", "--port", port)
    child = await Child.start("redrive serve", argv, env=env, ready="Redrive")
    try:
        api = Remote("127.0.0.1", port, key)
        try:
            await seed(url, api, org_id, letters, url=NOWHERE)
        finally:
            api.close()
        await vacuum_analyze(url)
        yield Site(letters, port, await _sign_in(url, org_id), await _paths(url, org_id, secret))
    finally:
        await child.stop(grace_s=10)


async def _sign_in(url: str, org_id: UUID) -> str:
    engine = await Database.open(url, role="redrive_engine", size=1)
    try:
        async with engine.tenant(org_id) as session:
            token, _ = await sessions.open_session(
                session, org_id=org_id, user_id=None, role=Role.OWNER, source="bench", clock=DatabaseClock()
            )
        return token
    finally:
        await engine.close()


async def _paths(url: str, org_id: UUID, secret: str) -> dict[str, str]:
    connection = await asyncpg.connect(url, server_settings={"role": "redrive_engine"})
    try:
        row = await connection.fetchrow(
            """SELECT created_at, task_id FROM redrive.dead_letter WHERE org_id = $1 ORDER BY created_at, task_id
               OFFSET (SELECT count(*) / 2 FROM redrive.dead_letter) LIMIT 1""",
            org_id,
        )
    finally:
        await connection.close()
    cursors = Cursors(Sealer.from_passphrase(secret).cursor_key)
    middle = cursors.write(ListPlace(LIST_NAME, org_id, {"q": ""}), tuple(row))
    return {
        "first_page": LIST,
        "middle_page": f"{LIST}?cursor={middle}",
        "filter": LIST + FILTER,
        "groups": "/groups",
        "dashboard": "/dashboard",
        "detail": f"/app/admin/dlq/{row['task_id']}",
    }


# -- how long ------------------------------------------------------------------------------------------------------


def _time(*sites: Site, requests: int = REQUESTS) -> None:
    """Each page of each site, in turn: what slows the machine down for a moment slows both."""
    lines = {site.port: http.client.HTTPConnection("127.0.0.1", site.port, timeout=TIMEOUT_S) for site in sites}
    for name in sites[0].paths:
        taken: dict[int, list[float]] = {site.port: [] for site in sites}
        for _ in range(WARM_UP + requests):
            for site in sites:
                began = time.perf_counter()
                status = _ask(lines[site.port], site, site.paths[name])
                taken[site.port].append((time.perf_counter() - began) * 1000)
            if status != 200:
                break
        else:
            for site in sites:
                site.times_ms[name] = taken[site.port][WARM_UP:]
    for line in lines.values():
        line.close()


def _ask(line: http.client.HTTPConnection, site: Site, path: str) -> int:
    line.request("GET", path, headers={"cookie": f"redrive_session={site.cookie}", "accept": "text/html"})
    answer = line.getresponse()
    answer.read()
    return answer.status


# -- how heavy -----------------------------------------------------------------------------------------------------


async def _weigh(site: Site) -> dict[str, float]:
    """Thousands of bytes of the first view by a browser that has never been here, by what they are."""
    from support.chromium import COMMAND, find_chromium, open_chromium, visiting

    if find_chromium() is None:
        print(f"pages: {COMMAND} is not installed: not weighed", file=sys.stderr)
        return {}
    kinds: dict[str, str] = {}
    weights: dict[str, float] = {"Document": 0.0, "Stylesheet": 0.0, "Script": 0.0, "other": 0.0}

    def came(event: Mapping[str, str]) -> None:
        kinds[event["requestId"]] = event["type"]

    def ended(event: Mapping[str, float]) -> None:
        kind = kinds.get(str(event["requestId"]), "other")
        weights[kind if kind in weights else "other"] += event["encodedDataLength"] / 1000

    async with open_chromium() as chromium, visiting(chromium, site.base_url) as visit:
        page = await visit.page(token=site.cookie)
        wire = await page.context.new_cdp_session(page)
        await wire.send("Network.enable")
        wire.on("Network.responseReceived", came)
        wire.on("Network.loadingFinished", ended)
        await page.goto(LIST)
        await page.wait_for_timeout(SETTLE_MS)
    return {f"{kind.lower()}_kb": weight for kind, weight in weights.items()} | {"view_kb": sum(weights.values())}


# -- by itself -----------------------------------------------------------------------------------------------------


async def measure(server: BenchPostgres, small: bool, found: Measured) -> None:
    few, many = await pages(server, SMALL, LARGE // 10 if small else LARGE)
    found.note("few letters", few)
    found.note("many letters", many)
    found.compare("many letters", "few letters", [*few.extra])


def main() -> None:
    from bench.alone import by_itself  # which knows all scenarios, and they know this one

    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_itself("pages", about, measure)


if __name__ == "__main__":
    main()
