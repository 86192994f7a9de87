"""Make the cluster of the embedded PostgreSQL: initdb, our role and our database, all or nothing.

Runs PostgreSQL's programs in the data folder, never as root. Called by store.embedded.
"""

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from redrive.process import Process
from redrive.store.postgres_binaries import Binaries
from redrive.store.postgres_errors import EmbeddedError
from redrive.store.postgres_folder import DataFolder, make_password

SUPERUSER = "superuser"
LOGIN_ROLE = "redrive"

# One statement per line, as single-user mode reads them. The role can create the roles that row-level
# security needs and sees everybody's activity (to say who holds a transaction open), but is no superuser.
BOOTSTRAP = """\
CREATE ROLE redrive LOGIN CREATEROLE PASSWORD '{password}'
GRANT pg_monitor TO redrive
CREATE DATABASE redrive OWNER redrive
ALTER DATABASE redrive SET search_path = redrive, public
"""


def server_env() -> dict[str, str]:
    """Nothing of our own environment, which holds keys, and nothing that steers PostgreSQL from outside."""
    return {"PATH": os.defpath, "LC_ALL": "C"}


async def run_program(
    folder: DataFolder,
    binaries: Binaries,
    name: str,
    options: Sequence[str],
    *,
    output: int,
    stdin: bytes | None = None,
) -> int:
    """Run one of PostgreSQL's programs to its end, under the server's account; returns its exit code."""
    process = Process.spawn(
        [binaries.program(name), *options],
        death_signal=signal.SIGKILL,
        env=server_env(),
        user=folder.user,
        cwd=folder.path,
        stdin=stdin,
        output=output,
    )
    try:
        return await process.wait()
    finally:
        await process.end([])  # only when cancelled is there something left to end


async def create_cluster(folder: DataFolder, binaries: Binaries, log: int) -> None:
    """Build it beside its place and move it there last: a crash leaves a draft, dropped by the next start."""
    shutil.rmtree(folder.staging, ignore_errors=True)
    folder.private_dir(folder.staging)
    draft = folder.staging / "cluster"
    pwfile = _write_pwfile(folder, make_password(folder.path, SUPERUSER))
    options = [f"--username={SUPERUSER}", f"--pwfile={pwfile}", "--auth=scram-sha-256"]
    options += ["--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions", "-D", str(draft)]
    await _must_succeed(folder, binaries, "initdb", options, log)
    # exit_on_error, or single-user mode would go on after a failed statement and report success;
    # log_min_error_statement, or it would log the statement with the password.
    # scram_iterations: they make a password slow to guess, and every connection slow to open. Ours is 256 random bits.
    single = ["--single", "-D", str(draft), "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic"]
    single += ["-c", "scram_iterations=1"]
    script = BOOTSTRAP.format(password=make_password(folder.path, LOGIN_ROLE)).encode()
    await _must_succeed(folder, binaries, "postgres", [*single, "postgres"], log, script)
    draft.rename(folder.cluster)
    folder.sync()
    shutil.rmtree(folder.staging)


async def _must_succeed(
    folder: DataFolder,
    binaries: Binaries,
    name: str,
    options: Sequence[str],
    log: int,
    stdin: bytes | None = None,
) -> None:
    code = await run_program(folder, binaries, name, options, output=log, stdin=stdin)
    if code != 0:
        raise EmbeddedError(
            f"A new PostgreSQL cluster could not be made in {folder.path}: {name} ended with exit code"
            f" {code}. What it said is in {folder.log}."
        )


def _write_pwfile(folder: DataFolder, text: str) -> Path:
    path = folder.staging / "superuser.password"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    folder.give(path)
    return path
