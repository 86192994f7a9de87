"""What a peer is: how it is installed, how its queue is filled, how its workers run, when its work is settled.

Used by bench.run through bench.peers.systems. Touches bench/.cache (its own venvs and node_modules) and a fresh
database per run.
"""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import asyncpg

from bench.delivery import Delivery, Worker
from bench.model import NotRun, Run
from bench.postgres import BenchPostgres
from bench.processes import CACHE, ROOT, ProcessError, command
from bench.receiver import Receiver

Job = Literal["webhook", "flaky"]
WORKERS = ROOT / "bench" / "peers" / "workers"


@dataclass(frozen=True, slots=True)
class Setup:
    """Where a run takes place."""

    server: BenchPostgres
    receiver: Receiver


class Peer(ABC):
    name: str
    version: str
    settings: str
    """The settings found best, for the report."""

    @abstractmethod
    async def setup(self) -> None:
        """Install it into the cache, once. NotRun when that is not possible here."""

    @abstractmethod
    async def run(self, where: Setup, job: Job, n: int, processes: int) -> Run: ...

    async def close(self) -> None:
        """Stop what setup started."""
        return


@dataclass(slots=True)
class PostgresPeer(Peer):
    """A peer whose queue is PostgreSQL; its script takes `install`, `enqueue N` and `work`."""

    name: str
    version: str
    settings: str
    script: str
    unsettled: str | None
    pins: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    def argv(self, *args: object) -> list[str]:
        return [str(self.folder / "bin" / "python"), str(WORKERS / self.script), *map(str, args)]

    async def setup(self) -> None:
        await python_venv(self.folder, self.pins)

    async def run(self, where: Setup, job: Job, n: int, processes: int) -> Run:
        await where.receiver.reset(flaky=job == "flaky")
        async with where.server.database(self.name) as url:
            env = {"BENCH_URL": url, "BENCH_TARGET": where.receiver.url}
            await command(self.argv("install"), env=env, cwd=self.folder, timeout_s=60)
            await command(self.argv("enqueue", n), env=env, cwd=self.folder, timeout_s=60)
            await vacuum_analyze(url)
            worker = Worker(self.argv("work"), env, self.folder)
            return await Delivery(self.name, n, worker, where.receiver, processes, url, self.unsettled).run()


@dataclass(slots=True)
class NodePeer(PostgresPeer):
    """The same for Node: `pins` are npm packages; no lock file, exact versions."""

    def argv(self, *args: object) -> list[str]:
        # Modules resolve from the script's own folder, so the script is copied beside node_modules.
        return ["node", str(self.folder / self.script), *map(str, args)]

    async def setup(self) -> None:
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise NotRun("node and npm are not installed")
        if not _stamped(self.folder, self.pins):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "package.json").write_text('{"private": true, "type": "module"}\n')
            argv = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--save-exact", *self.pins]
            await _installing(argv, self.folder)
            _stamp(self.folder, self.pins)
        shutil.copyfile(WORKERS / self.script, self.folder / self.script)


async def python_venv(folder: Path, pins: tuple[str, ...]) -> None:
    """A venv with exactly these pins; made again when they change."""
    if _stamped(folder, pins):
        return
    if folder.exists():
        shutil.rmtree(folder)
    await command([sys.executable, "-m", "venv", folder])
    await _installing([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *pins], folder)
    _stamp(folder, pins)


async def _installing(argv: list[str | Path], folder: Path) -> None:
    try:
        await command(argv, cwd=folder)
    except ProcessError as error:
        raise NotRun(f"could not be installed: {str(error).splitlines()[-1][:200]}") from None


def _stamped(folder: Path, pins: tuple[str, ...]) -> bool:
    stamp = folder / "pins.txt"
    return stamp.exists() and stamp.read_text() == "\n".join(pins)


def _stamp(folder: Path, pins: tuple[str, ...]) -> None:
    (folder / "pins.txt").write_text("\n".join(pins))


async def vacuum_analyze(url: str) -> None:
    """Autovacuum is off during runs; planner statistics must exist all the same."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()
