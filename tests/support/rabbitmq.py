"""A real RabbitMQ for tests: name, ports and folder are its own; killed, started again on the same data, stopped.

    server = await RabbitServer.start(folder)
    await server.kill()
    await server.restart()
    await server.stop()

It listens on 127.0.0.1 only, runs under the account of whoever runs the tests, root or not, and dies with them. One is
shared by all tests of a process (`rabbitmq`); each has a virtual host in it to itself (`vhost_url`). A test that must
not share has `RabbitServer.start` and `RabbitCluster.start`. Skips, loudly, where RabbitMQ is not installed.
"""

import asyncio
import itertools
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiormq.abc import AbstractConnection

from redrive.broker import link
from redrive.process import Process

# Debian's `rabbitmq-server` in the path is another script around this one, which as root changes the account.
SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
MISSING = "RABBITMQ-SERVER IS NOT INSTALLED: nothing was tried with a real broker (apt install rabbitmq-server)"
USER, PASSWORD = "guest", "guest"
COOKIE = "nodes-of-the-tests"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin"
START_WITHIN_S = 60.0
STOP_WITHIN_S = 15.0
ASK_WITHIN_S = 20.0
POLL_S = 0.03
LOG_TAIL_CHARACTERS = 3000

# What is written ahead for quorum queues stays small: it lies in memory, twice if the folder does too.
CONFIGURATION = """
listeners.tcp.local = 127.0.0.1:{port}
disk_free_limit.absolute = 1MB
raft.wal_max_size_bytes = 16777216
log.console = false
log.file.level = warning
"""
# What a delay queue has handed on is handed on again when nobody confirmed it for so long; else three minutes.
ADVANCED = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 2000}]}]."
CLUSTER = """
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.randomized_startup_delay_range.min = 0
cluster_formation.randomized_startup_delay_range.max = 0
cluster_formation.discovery_retry_interval = 200
"""
_numbers = itertools.count(1)


class Port:
    """A free port that stays ours until it is closed, also while the server that listens on it is dead: a client that
    tries to connect meanwhile could otherwise be given it as its own end, and then nobody could listen on it.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Erlang's, which then may listen
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


class Epmd:
    """The register of Erlang's nodes: our own, not the machine's, and in the foreground, where we can stop it."""

    def __init__(self, folder: Path) -> None:
        self.port = Port()
        self.env = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": str(folder),  # where Erlang looks for the cookie
            "ERL_EPMD_PORT": str(self.port.number),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        cookie = folder / ".erlang.cookie"
        cookie.touch(mode=0o600)
        cookie.write_text(COOKIE)
        with (folder / "epmd.out").open("ab") as output:
            self.process = Process.spawn(
                ["epmd"], death_signal=signal.SIGKILL, env=self.env, cwd=folder, output=output.fileno()
            )

    async def stop(self) -> None:
        await self.process.end([(signal.SIGTERM, STOP_WITHIN_S)])
        self.port.close()


class RabbitServer:
    """One node. Its parts: the folder, the ports, which stay the same for as long as it lives, and a process."""

    def __init__(self, folder: Path, epmd: Epmd, *, owns_epmd: bool) -> None:
        self.folder = folder
        self.name = f"rd{os.getpid()}-{next(_numbers)}@localhost"
        self.port, self.dist_port = Port(), Port()
        self._epmd, self._owns_epmd = epmd, owns_epmd
        self._process: Process | None = None
        self._vhosts = itertools.count(1)
        _write_lean_home(folder)
        (folder / "plugins").write_text("[].")
        (folder / "rabbitmq.conf").write_text(CONFIGURATION.format(port=self.port.number))
        (folder / "advanced.config").write_text(ADVANCED)

    @classmethod
    async def start(cls, folder: Path) -> "RabbitServer":
        """A node in a new folder, ready for connections: within three seconds where nobody else is busy."""
        _skip_without_rabbitmq()
        folder.mkdir(exist_ok=True)
        server = cls(folder, Epmd(folder), owns_epmd=True)
        try:
            await server.restart()
        except BaseException:
            await server.stop()
            raise
        return server

    @property
    def url(self) -> str:
        return self.url_of("/")

    def url_of(self, vhost: str) -> str:
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port.number}/{quote(vhost, safe='')}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._process.exited.done()

    async def restart(self) -> None:
        """On the same data and the same ports, after `kill` or `shut_down`; ready when this returns."""
        self.begin()
        await self.until_ready()

    def begin(self) -> None:
        assert self._process is None, "it is still running"
        env = {
            **self._epmd.env,
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server and does not stay around it as a shell
            "RABBITMQ_SCRIPTS_DIR": str(self.folder / "home" / "sbin"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(self.dist_port.number),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_CRASH_DUMP_SECONDS": "0",
        }
        with (self.folder / "server.out").open("ab") as output:
            self._process = Process.spawn(
                [str(SCRIPT)], death_signal=signal.SIGKILL, env=env, cwd=self.folder, output=output.fileno()
            )

    async def until_ready(self) -> None:
        """It listens when everything else has started."""
        assert self._process is not None
        try:
            async with asyncio.timeout(START_WITHIN_S):
                while not await _answers(self.port.number):
                    assert not self._process.exited.done(), f"RabbitMQ ended at once: {self._last_words()}"
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"RabbitMQ did not start in {START_WITHIN_S} s: {self._last_words()}") from None

    async def kill(self) -> None:
        """As when the machine's memory is full: SIGKILL to the node, nothing else.

        That a quorum queue or a binding exists RabbitMQ writes to disk a second or two after it has said so; a kill
        before that takes it, a queue with all that was confirmed. Nobody who uses it can help that: here it is
        written first.
        """
        if self.is_running:
            await self.ask("ok = mnesia:sync_log(), [ok = dets:sync(Table) || Table <- dets:all()]")
        await self._end([])

    async def shut_down(self) -> None:
        """In good order, as for a restart of the service. Takes a second."""
        await self._end([(signal.SIGTERM, STOP_WITHIN_S)])

    async def stop(self) -> None:
        """For good, and at once: its data is thrown away. No process is left."""
        await self._end([])
        if self._owns_epmd:
            await self._epmd.stop()
        self.port.close()
        self.dist_port.close()

    async def make_vhost(self, name: str | None = None) -> str:
        """A new virtual host, open to the user of `url_of`; its name."""
        name = name or f"test-{next(self._vhosts)}"
        await self.ask(
            f'ok = rabbit_vhost:add(<<"{name}">>, <<"tests">>),'
            f' rabbit_auth_backend_internal:set_permissions(<<"{USER}">>, <<"{name}">>,'
            ' <<".*">>, <<".*">>, <<".*">>, <<"tests">>)'
        )
        return name

    async def delete_vhost(self, name: str) -> None:
        """With its queues; connections to it are closed by the server."""
        await self.ask(f'ok = rabbit_vhost:delete(<<"{name}">>, <<"tests">>)')

    async def totals(self, vhost: str) -> dict[str, int]:
        """How many messages each queue holds now, those given out among them; -1: it has no leader."""
        answer = await self.ask(
            "[{binary_to_list(element(4, amqqueue:get_name(Q))), case amqqueue:get_pid(Q) of"
            " {Member, _} -> case ra:leader_query({Member, node()}, fun rabbit_fifo:query_messages_total/1) of"
            " {ok, {_, Total}, _} -> Total; _ -> -1 end;"
            " _ -> case catch rabbit_amqqueue:info(Q, [messages]) of [{messages, Total}] -> Total; _ -> -1 end end}"
            f' || Q <- rabbit_amqqueue:list(<<"{vhost}">>)]'
        )
        return {name: int(total) for name, total in re.findall(r'\{"([^"]+)",\s*(-?\d+)\}', answer)}

    async def ask(self, expressions: str) -> str:
        """Have the node evaluate Erlang; its answer. Takes hundredths of a second, where rabbitmqctl takes two."""
        caller = await asyncio.create_subprocess_exec(
            "erl_call",
            *("-address", f"127.0.0.1:{self.dist_port.number}", "-timeout", str(int(ASK_WITHIN_S)), "-R", "-e"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._epmd.env,
        )
        async with asyncio.timeout(ASK_WITHIN_S * 2):
            answer, _ = await caller.communicate(f"{expressions}.\n".encode())
        said = answer.decode(errors="replace").strip()
        assert caller.returncode == 0, said
        assert said.startswith("{ok, "), said
        return said.removeprefix("{ok, ").removesuffix("}")

    def processes(self) -> set[int]:
        """All that run for this node: itself, its helpers, and the register if it has one of its own."""
        roots = {self.pid} if self._process is not None else set[int]()
        return _with_descendants(roots | ({self._epmd.process.pid} if self._owns_epmd else set()))

    async def _end(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        if self._process is None:
            return
        # They are in groups of their own, and end by themselves when they find the node gone.
        helpers = _with_descendants({self.pid}) - {self.pid}
        await self._process.end(steps)
        self._process = None
        async with asyncio.timeout(STOP_WITHIN_S):
            while any(is_running(pid) for pid in helpers):
                await asyncio.sleep(POLL_S)

    def _last_words(self) -> str:
        logs = [self.folder / "server.out", *sorted((self.folder / "log").glob("*.log"))]
        return "\n".join(log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] for log in logs if log.exists())


class RabbitCluster:
    """Nodes that are one broker; quorum queues have a member on each. Killed and restarted one by one."""

    def __init__(self, nodes: Sequence[RabbitServer], epmd: Epmd) -> None:
        self.nodes = nodes
        self._epmd = epmd

    @classmethod
    async def start(cls, folder: Path, size: int = 3) -> "RabbitCluster":
        _skip_without_rabbitmq()
        folder.mkdir(exist_ok=True)
        epmd = Epmd(folder)
        cluster = cls([RabbitServer(folder / f"node-{n}", epmd, owns_epmd=False) for n in range(size)], epmd)
        try:
            await cluster._form()
        except BaseException:
            await cluster.stop()
            raise
        return cluster

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    async def kill(self, node: int) -> None:
        await self.nodes[node].kill()

    async def restart(self, node: int) -> None:
        """Ready and one of the cluster when this returns."""
        await self.nodes[node].restart()

    async def leader(self, queue: str, vhost: str = "/") -> int:
        """Which node has the leader of a quorum queue."""
        asked = next(node for node in self.nodes if node.is_running)
        answer = await asked.ask(
            f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)),'
            " {_, Leader} = amqqueue:get_pid(Q), Leader"
        )
        return next(n for n, node in enumerate(self.nodes) if node.name == answer.strip("'"))

    async def stop(self) -> None:
        for node in self.nodes:
            await node.stop()
        await self._epmd.stop()

    def processes(self) -> set[int]:
        return set().union(*(node.processes() for node in self.nodes)) | {self._epmd.process.pid}

    async def _form(self) -> None:
        names = [node.name for node in self.nodes]
        peers = "".join(f"cluster_formation.classic_config.nodes.{n} = {name}\n" for n, name in enumerate(names, 1))
        for node in self.nodes:
            with (node.folder / "rabbitmq.conf").open("a") as configuration:
                configuration.write(CLUSTER + peers)
            node.begin()
        await asyncio.gather(*(node.until_ready() for node in self.nodes))
        for node in self.nodes:
            together = await node.ask("length(rabbit_nodes:all_running())")
            assert together == str(len(names)), f"{node.name} has found {together} of {len(names)} nodes"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rabbitmq(session_dir: Path) -> AsyncIterator[RabbitServer]:
    """One server for all tests of this process. Who kills it starts it again."""
    server = await RabbitServer.start(session_dir / "rabbitmq")
    yield server
    await server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def vhost_url(rabbitmq: RabbitServer) -> AsyncIterator[str]:
    """The URL of a virtual host of this test's own."""
    vhost = await rabbitmq.make_vhost()
    yield rabbitmq.url_of(vhost)
    await rabbitmq.delete_vhost(vhost)


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[AbstractConnection]:
    """A connection of Redrive's own."""
    connection = await link.connect([url], name="tests")
    try:
        yield connection
    finally:
        await link.close(connection)


def _skip_without_rabbitmq() -> None:
    if not SCRIPT.exists():
        pytest.skip(MISSING)


def _write_lean_home(folder: Path) -> None:
    """RabbitMQ's own folder without its plugins. To find a module Erlang looks into one application after another: with
    half as many of them the server starts in half the time.
    """
    installed = SCRIPT.resolve().parents[1]
    plugins = folder / "home" / "plugins"
    plugins.mkdir(parents=True)
    (folder / "home" / "sbin").symlink_to(installed / "sbin")
    for application in (installed / "plugins").iterdir():
        if not application.name.startswith("rabbitmq_") or application.name.startswith("rabbitmq_prelaunch-"):
            (plugins / application.name).symlink_to(application)


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _with_descendants(pids: set[int]) -> set[int]:
    children: dict[int, set[int]] = {}
    for pid, (_, parent) in _running():
        children.setdefault(parent, set()).add(pid)
    found, fresh = set[int](), pids
    while fresh:
        found |= fresh
        fresh = set().union(*(children.get(pid, set()) for pid in fresh)) - found
    return found


def _running() -> Iterator[tuple[int, tuple[str, int]]]:
    """Every process: its id, its state, and its parent's id."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (facts := _state_and_parent(int(entry.name))):
            yield int(entry.name), facts


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return state, int(parent)


def is_running(pid: int) -> bool:
    """Of a zombie only the exit code is left, for whoever asks for it."""
    facts = _state_and_parent(pid)
    return facts is not None and facts[0] != "Z"
