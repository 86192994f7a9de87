"""A RabbitMQ of the bench's own: a node with its own name, ports and folder, gone after the run.

Uses the system's rabbitmq-server when it is installed; says how to install it when it is not. Used by the peer Celery
and by bench.rabbitmq. Its data is on the disk: what it confirms is written there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from bench.model import NotRun
from bench.postgres import free_port
from bench.processes import Child, children

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
SERVER_USER = "rabbitmq"
START_TIMEOUT_S = 60.0
# The server's script starts Erlang as a child, which a signal to the script (or the bench's own death) would miss.
WHOLE_GROUP = ["sh", "-c", 'trap "kill -9 0" TERM; "$@" & wait', "sh"]


def require_rabbitmq() -> None:
    if not SERVER.exists():
        raise NotRun("no RabbitMQ here: apt-get install rabbitmq-server")


@contextlib.asynccontextmanager
async def rabbitmq() -> AsyncIterator[str]:
    """A private broker for the length of the block; yields its URL."""
    user = SERVER_USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="redrive-rabbitmq-", dir="/tmp"))
    try:
        if user is not None:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid)
        port, distribution_port, epmd_port = free_port(), free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        (folder / "plugins").write_text("[].\n")
        env = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"redrive-bench-{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }
        async with children() as started:
            # Started by us in the foreground: Erlang would otherwise leave a daemon of its own behind.
            epmd = ["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"]
            started.append(await Child.start("epmd", epmd, env=env, cwd=folder, user=user))
            started.append(
                await Child.start(
                    "rabbitmq", [*WHOLE_GROUP, SERVER], death_signal=signal.SIGTERM, env=env, cwd=folder, user=user,
                    ready="Starting broker... completed", ready_timeout_s=START_TIMEOUT_S,
                )
            )  # fmt: skip
            yield f"amqp://guest:guest@127.0.0.1:{port}/%2F"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
