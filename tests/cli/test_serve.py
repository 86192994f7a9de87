"""`redrive serve` for real: its own PostgreSQL, API and worker as processes, started, used, killed and stopped."""

import asyncio
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from redrive.store.postgres_folder import live_processes
from support.http import HttpClient
from support.processes import Program, program
from support.receiver import HANG, open_receiver

from .command import COMMAND, clean_env, redrive
from .world import SECRET_KEY

Eventually = Callable[..., Awaitable[None]]

STARTED_WITHIN_S = 40.0
STOPPED_WITHIN_S = 10.0
OPEN_LOOPBACK = {"REDRIVE_ALLOW_NETWORKS": "127.0.0.0/8"}
OPEN = ("--allow-networks", "127.0.0.0/8")


@dataclass
class Service:
    program: Program
    banner: dict[str, Any]
    folder: Path

    @property
    def url(self) -> str:
        return str(self.banner["url"])

    def descendants(self) -> dict[int, str]:
        return descendants(self.program.pid)

    async def stop(self, number: signal.Signals) -> float:
        """Seconds it took to end; it must end well, and leave nobody behind."""
        family = self.descendants()
        assert family
        began = time.monotonic()
        self.program.send(number)
        code = await asyncio.wait_for(self.program.process.wait(), STOPPED_WITHIN_S + 5)
        took_s = time.monotonic() - began
        assert code == 0
        assert [name for pid, name in family.items() if Path(f"/proc/{pid}").exists()] == []
        assert live_processes(self.folder / "postgres", self.folder / "postgres.new") == []
        return took_s


def descendants(pid: int) -> dict[int, str]:
    """Every process below this one, with its command line."""
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except FileNotFoundError:
            continue
        for child in map(int, children):
            waiting.append(child)
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except FileNotFoundError:
                continue
    return found


async def spawn(folder: Path, *words: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        "serve",
        "--data-dir",
        str(folder),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=clean_env(**env),
        cwd="/",
    )


@asynccontextmanager
async def serving(folder: Path, *words: str, anew: bool = False) -> AsyncIterator[Service]:
    """A Redrive on a free port that answers. `anew`: with all its processes loaded from the beginning."""
    given = ("--data-dir", str(folder), "--port", "0", "--json", *words)
    async with program("serve", *given, env={"COLUMNS": "80"}, anew=anew) as running:
        service = Service(running, json.loads(await running.first_output()), folder)
        status, _ = await call(service.url + "/healthz")
        assert status == 200
        yield service


async def call(url: str, body: object = None, key: str | None = None) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", **({"x-api-key": key} if key else {})}
        request = urllib.request.Request(url, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=STARTED_WITHIN_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.loads(refused.read())

    return await asyncio.to_thread(ask)


async def signs_in(url: str) -> int:
    """The status of a sign-in link, without following where it leads."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    answer = await HttpClient(parts.hostname, parts.port).get(f"{parts.path}?{parts.query}")
    assert ("set-cookie" in answer.headers) == (answer.status == 303)
    return answer.status


async def test_what_is_handed_in_is_delivered_and_everything_ends_with_it(data_dir: Path) -> None:
    """One life of an installation: first start, delivery, an API that is killed, SIGTERM, second start, SIGINT."""
    folder = data_dir / "data"
    async with open_receiver() as receiver, serving(folder, *OPEN, anew=True) as service:
        key, port = service.banner["first_key"], str(urlsplit(service.url).port)
        assert key.startswith("rdk_")
        assert service.banner["data_dir"] == str(folder)
        assert service.banner["sign_in_url"].startswith(f"{service.url}/login?token=")
        assert await signs_in(service.banner["sign_in_url"]) == 303
        assert await signs_in(service.banner["sign_in_url"]) == 401
        examined = await redrive("doctor", "--strict", "--json", "--data-dir", str(folder), env={"REDRIVE_PORT": port})
        assert (examined.object["fine"], examined.code) == (True, 0), examined.out
        made = {one["name"]: one["saw"] for one in examined.object["examinations"] if one["made"]}
        assert len(made) == 19
        assert made["api"].endswith("/readyz answers 200.")
        words = ("endpoints", "add", receiver.url, "--name", "here", "--event-type", "a.*")
        added = await redrive(*words, "--data-dir", str(folder), env=OPEN_LOOPBACK)
        assert added.code == 0, added.err
        status, receipt = await call(service.url + "/v1/events", {"event_type": "a.b", "payload": {"n": 1}}, key)
        assert (status, receipt["status"]) == (202, "queued")
        [request] = await receiver.wait_for(1, within_s=20)
        assert request.body == b'{"n": 1}'
        assert request.headers["webhook-id"] == receipt["event_id"]

        assert not any("postgresql://" in line for line in service.descendants().values())  # no password in argv
        [api] = [pid for pid, line in service.descendants().items() if line.rstrip().endswith("child api")]
        os.kill(api, signal.SIGKILL)
        status, _ = await call(service.url + "/healthz")  # waits for the next one: the socket stays open
        assert status == 200

        async def settled() -> bool:
            checked = await redrive("check", "--data-dir", str(folder), "--json")
            assert checked.code == 0, checked.out
            delivered: int = checked.object["books"]["delivered"]
            return delivered == 1

        async with asyncio.timeout(20):
            while not await settled():
                pass
        assert await service.stop(signal.SIGTERM) < STOPPED_WITHIN_S
    async with open_receiver() as receiver, serving(folder, *OPEN) as again:
        assert again.banner["first_key"] is None
        assert await signs_in(again.banner["sign_in_url"]) == 303
        receiver.script(HANG)
        words = ("endpoints", "add", receiver.url, "--name", "slow", "--event-type", "slow.*")
        assert (await redrive(*words, "--data-dir", str(folder), env=OPEN_LOOPBACK)).code == 0
        status, _ = await call(again.url + "/v1/events", {"event_type": "slow.one", "payload": 1}, key)
        assert status == 202
        await receiver.wait_for(1, within_s=20)
        assert await again.stop(signal.SIGINT) < STOPPED_WITHIN_S  # though a delivery hangs


async def test_a_second_serve_on_the_same_folder_is_refused_and_disturbs_nobody(data_dir: Path) -> None:
    folder = data_dir / "data"
    async with serving(folder, "--no-worker") as service:
        second = await redrive("serve", "--port", "0", "--data-dir", str(folder))
        assert (second.code, second.out) == (1, "")
        assert f"already run by process {service.program.pid}" in second.err
        assert "Traceback" not in second.err
        assert (await call(service.url + "/healthz"))[0] == 200
        await service.stop(signal.SIGTERM)
        assert [line["name"] for line in service.program.lines("child_started")] == ["api"]


async def test_a_taken_port_is_one_clear_message(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = await redrive("serve", "--port", port, "--data-dir", str(data_dir / "data"))
    assert (ended.code, ended.out) == (1, "")
    assert f"Port {port} of 127.0.0.1 is taken" in ended.err
    assert "--port" in ended.err
    assert not (data_dir / "data").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--host", "203.0.113.1"), 1, "no address 203.0.113.1"),
        (("--host", "no.such.host.invalid"), 2, "cannot be found"),
        (("--port", "70000"), 2, "0 to 65535"),
        (("--database-url", "postgresql://me:hunter2@127.0.0.1:9/db"), 3, "db at 127.0.0.1:9 cannot be reached"),
    ],
)
async def test_a_start_that_cannot_be_is_explained(
    data_dir: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    ended = await redrive("serve", "--port", "0", *words, "--data-dir", str(data_dir / "data"))
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert not any(word in ended.err for word in ("Traceback", "hunter2"))


async def test_sigterm_while_starting_leaves_nothing_behind(data_dir: Path, eventually: Eventually) -> None:
    folder = data_dir / "data"
    process = await spawn(folder, "--port", "0")
    await eventually(lambda: bool(descendants(process.pid)), within_s=STARTED_WITHIN_S)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), STOPPED_WITHIN_S + 5) == 0
    assert live_processes(folder / "postgres", folder / "postgres.new") == []


async def test_people_are_told_where_it_is_and_that_private_networks_are_closed(
    database_url: str, data_dir: Path
) -> None:
    process = await spawn(
        data_dir / "data",
        "--port",
        "0",
        "--no-worker",
        REDRIVE_DATABASE_URL=database_url,
        REDRIVE_SECRET_KEY=SECRET_KEY,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while not lines or "API key" not in lines[-1]:
            lines.append((await asyncio.wait_for(process.stdout.readline(), STARTED_WITHIN_S)).decode())
        assert not any("postgres -D" in line for line in descendants(process.pid).values())
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = await asyncio.wait_for(process.communicate(), STOPPED_WITHIN_S)
    text = "".join(lines) + rest.decode()
    assert process.returncode == 0
    assert "is at http://127.0.0.1:" in text
    assert "/login?token=" in text
    assert "REDRIVE_ALLOW_NETWORKS=127.0.0.0/8" in text
    assert str(data_dir / "data") in text
    assert "rdk_" in text
    assert "postgresql://" not in text
