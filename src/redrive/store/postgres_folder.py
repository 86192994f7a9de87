"""The data folder of the embedded PostgreSQL: who owns what, where the socket is, who holds the lock.

    lock                 held (flock) by the process that runs the server; says which, and where the socket is
    postgres/            the cluster (PGDATA)           postgres.new/   a cluster in the making
    postgres.log, .1     what the server says           run/            its socket, 0700
    redrive.password, superuser.password                0600
    postgres-programs-*/ a copy of the programs, where the originals are out of the server's reach

May create folders, files and, as root, a system user; starts no server. Called by store.embedded.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from redrive.process import User
from redrive.store.postgres_errors import EmbeddedError

LOG = "postgres.log"
SYSTEM_USER = "redrive-postgres"
SOCKET_NAME = ".s.PGSQL.5432"
MAX_SOCKET_PATH_BYTES = 107  # sun_path of Linux, less its final NUL
USERADD_TIMEOUT_S = 30.0
# A socket folder stands in a URL and in a comma-separated setting: others than these would need quoting.
PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")


@dataclass(frozen=True, slots=True)
class DataFolder:
    """An existing, checked data folder. `user` is whom the server runs as (None: ourselves)."""

    path: Path
    user: User | None

    @property
    def cluster(self) -> Path:
        return self.path / "postgres"

    @property
    def staging(self) -> Path:
        return self.path / "postgres.new"

    @property
    def log(self) -> Path:
        return self.path / LOG

    @property
    def owner_uid(self) -> int:
        return self.user.uid if self.user else os.geteuid()

    def major(self) -> int | None:
        """The PostgreSQL that made the cluster; None when there is none yet."""
        if not self.cluster.exists():
            return None
        try:
            return int((self.cluster / "PG_VERSION").read_text().strip())
        except (FileNotFoundError, ValueError):
            raise EmbeddedError(
                f"{self.cluster} holds no usable PostgreSQL cluster: its file PG_VERSION is missing or empty."
                " Move that folder away (a new one is made) or restore it from a backup."
            ) from None

    def server_may_reach(self, path: Path) -> bool:
        return self.user is None or _closed_ancestor(path, self.user) is None

    def private_dir(self, path: Path) -> Path:
        """A 0700 folder of the server's account. Whatever else already has that name is refused."""
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {self.owner_uid, os.geteuid()}:
            raise EmbeddedError(
                f"{path} is in the way: Redrive needs a folder of its own there for PostgreSQL, and this is a"
                " link, a file or another user's. Remove it and start again."
            )
        self.give(path)
        path.chmod(0o700)
        return path

    def give(self, path: Path) -> None:
        """Hand a path that we made to the server's account."""
        if self.user is not None:
            os.chown(path, self.user.uid, self.user.gid, follow_symlinks=False)

    def sync(self) -> None:
        """Make renames inside the folder durable."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_folder(data_dir: Path) -> DataFolder:
    """Create the data folder if need be and decide which account the server gets."""
    path = data_dir.expanduser().resolve()
    as_root = os.geteuid() == 0
    try:
        _create(path, as_root=as_root)
    except OSError as problem:
        raise EmbeddedError(
            f"The data folder {path} cannot be created: {problem.strerror}. Choose another with --data-dir."
        ) from problem
    cluster = path / "postgres"
    owner = cluster.lstat().st_uid if cluster.exists() else None
    if not as_root:
        if owner not in {None, os.geteuid()} or not os.access(path, os.W_OK):
            raise EmbeddedError(
                f"The data folder {path} belongs to another user. Run Redrive as that user, or choose another"
                " folder with --data-dir."
            )
        return DataFolder(path, user=None)
    # A cluster stays with the account that made it, be it that of the person who ran Redrive before.
    user = _account(owner) if owner else _system_user()
    if path.stat().st_uid == 0:
        path.chmod(path.stat().st_mode | 0o011)  # to pass through, not to list; what is inside has its own modes
    closed = _closed_ancestor(path, user)
    if closed is not None:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and its account may not enter {closed}, so it cannot reach the"
            f" data folder {path}. Choose another with --data-dir (/var/lib/redrive, say), or allow it with:"
            f" chmod o+x {closed}"
        )
    return DataFolder(path, user)


def socket_dir(data_dir: Path) -> Path:
    """Where the server's socket goes: in the data folder, or in a short place that depends on it alone."""
    inside = data_dir / "run"
    path_bytes = len(os.fsencode(inside / SOCKET_NAME))
    if path_bytes <= MAX_SOCKET_PATH_BYTES and PLAIN_PATH.fullmatch(str(inside)):
        return inside
    mark = hashlib.blake2b(os.fsencode(data_dir), digest_size=8).hexdigest()
    if os.geteuid() == 0 and Path("/run").is_dir():
        return Path(f"/run/redrive-{mark}")
    return Path(f"/tmp/redrive-{os.geteuid()}-{mark}")  # noqa: S108  # private_dir refuses a planted one


def make_password(data_dir: Path, role: str) -> str:
    """The role's password, made on the first call; complete or absent, whenever we are killed."""
    path = _password_file(data_dir, role)
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    return read_password(data_dir, role)


def read_password(data_dir: Path, role: str) -> str:
    path = _password_file(data_dir, role)
    try:
        return path.read_text().strip()
    except OSError as problem:
        raise EmbeddedError(
            f"The password of the embedded PostgreSQL cannot be read from {path}: {problem.strerror}. Run"
            " this as the user who runs Redrive; if the file is lost, restore it from a backup."
        ) from problem


def _password_file(data_dir: Path, role: str) -> Path:
    return data_dir / f"{role}.password"


def live_processes(cluster: Path, staging: Path) -> list[int]:
    """Every process of a server on this cluster: all of them have it as their working folder."""
    homes = {str(cluster), str(staging / "cluster")}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # Gone in between, or another user's: the server runs as us, or we are root and see all.
            with contextlib.suppress(FileNotFoundError, PermissionError, ProcessLookupError):
                if str((entry / "cwd").readlink()) in homes:
                    found.append(int(entry.name))
    return sorted(found)


def discard_stale_pid_files(cluster: Path, socket: Path) -> None:
    """Drop postmaster.pid, and the lock beside the socket, when its pid is not a server of ours.

    PostgreSQL clears stale files itself, but not while there is a process with that pid: some other program after a
    crash of the machine, or the dead server as long as nobody has reaped it. Only for callers that hold the lock and
    saw no live process of the cluster: the files also guard a dead server's backends.
    """
    for pid_file in (cluster / "postmaster.pid", socket / f"{SOCKET_NAME}.lock"):
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid = int(pid_file.read_text().split("\n", 1)[0])
            if Path(f"/proc/{pid}").exists():
                pid_file.unlink()


class FolderLock:
    """flock on the data folder's lock file; the kernel drops it when its holder dies, however it dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def try_take(cls, data_dir: Path, socket: Path) -> "FolderLock | None":
        descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "socket_dir": str(socket)}).encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a data folder's lock."""

    pid: int
    socket_dir: Path


def lock_holder(data_dir: Path) -> Holder | None:
    """None when nobody holds it. Its shared lock lasts an instant; a starting server waits that long."""
    try:
        descriptor = os.open(data_dir / "lock", os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parse_holder(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)
    return None


def _parse_holder(text: bytes) -> Holder | None:
    try:
        said = json.loads(text)
        return Holder(pid=int(said["pid"]), socket_dir=Path(said["socket_dir"]))
    except (ValueError, KeyError, TypeError):
        return None  # taken a moment ago, nothing written yet


def _create(path: Path, *, as_root: bool) -> None:
    if path.exists():
        return
    _create(path.parent, as_root=as_root)
    path.mkdir(mode=0o755 if as_root else 0o700)
    if as_root:
        path.chmod(0o755)  # whatever the umask: the server's account must pass through


def _closed_ancestor(path: Path, user: User) -> Path | None:
    """The uppermost folder on the way to `path` that this account may not enter."""
    for ancestor in [*reversed(path.parents), path]:
        found = ancestor.stat()
        if found.st_uid == user.uid:
            allowed = found.st_mode & stat.S_IXUSR
        elif found.st_gid == user.gid:
            allowed = found.st_mode & stat.S_IXGRP
        else:
            allowed = found.st_mode & stat.S_IXOTH
        if not allowed:
            return ancestor
    return None


def _account(uid: int) -> User:
    try:
        return User(uid, pwd.getpwuid(uid).pw_gid)
    except KeyError:
        raise EmbeddedError(
            f"The PostgreSQL cluster belongs to user id {uid}, which does not exist on this machine. Give it"
            f" to an account that does, with chown -R."
        ) from None


def _system_user() -> User:
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(SYSTEM_USER)
        return User(entry.pw_uid, entry.pw_gid)
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    said = "there is no program useradd here"
    if useradd is not None:
        options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        done = subprocess.run(  # noqa: S603
            [useradd, *options, "--shell", "/usr/sbin/nologin", SYSTEM_USER],
            capture_output=True,
            text=True,
            timeout=USERADD_TIMEOUT_S,
            check=False,
        )
        said = done.stderr.strip()
    try:
        entry = pwd.getpwnam(SYSTEM_USER)  # made by us, or at the same moment by another Redrive
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and its system user {SYSTEM_USER} could not be created:"
            f" {said}. Create that user, run Redrive as an ordinary one, or use --database-url."
        ) from None
    return User(entry.pw_uid, entry.pw_gid)
