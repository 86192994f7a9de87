"""A real pgbouncer in transaction mode, with one connection to the server for everybody. Skips, loudly, where none is.

Its clients give no password: it has the server's own, in a file that only its account can read.
"""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
START_LIMIT_S = 10.0
STOP_LIMIT_S = 10.0

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 1
max_client_conn = 200
query_wait_timeout = 30
{account}
"""


@contextmanager
def pgbouncer(server_url: str, folder: Path) -> Iterator[str]:
    """A pooler before the server of that URL; yields the URL of the same database through it."""
    if PGBOUNCER is None:
        pytest.skip("PGBOUNCER IS NOT INSTALLED: nothing was tried through a real pooler (apt install pgbouncer)")
    parts = urlsplit(server_url)
    host = parse_qs(parts.query)["host"][0]
    owner = pwd.getpwuid(Path(host).stat().st_uid)  # the socket is in a folder that no other account may pass
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen = probe.getsockname()[1]
    configuration = folder / "pgbouncer.ini"
    configuration.touch(mode=0o600)
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            port=parse_qs(parts.query).get("port", ["5432"])[0],
            user=parts.username,
            password=unquote(parts.password or ""),
            listen=listen,
            account=f"user = {owner.pw_name}" if os.geteuid() == 0 else "",
        )
    )
    if os.geteuid() == 0:
        os.chown(configuration, owner.pw_uid, owner.pw_gid)
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([PGBOUNCER, str(configuration)], stdout=log, stderr=log)
    try:
        _await_port(process, listen, folder)
        yield f"postgresql://{parts.username}@127.0.0.1:{listen}{parts.path}"
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)


def _await_port(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    for _ in range(int(START_LIMIT_S / 0.05)):
        assert process.poll() is None, (folder / "pgbouncer.log").read_text()
        with socket.socket() as probe:
            probe.settimeout(0.05)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
    pytest.fail("pgbouncer did not start")
