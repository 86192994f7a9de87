"""The tour of the README, run as it stands.

The ports, the key and the data folder are those of the test, and it waits for the dead letter instead of 5 s.
"""

import asyncio
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .command import clean_env
from .test_serve import OPEN, serving

README = Path(__file__).parents[2] / "README.md"
TOUR = re.compile(r"^## A tour.*?(?=^## )", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
WITHIN_S = 100.0
MARK = "--- end of a command ---"


class Step(NamedTuple):
    command: str
    shown: list[str]


def steps_of(text: str) -> Iterator[Step]:
    """Every command of the tour with the lines that it is said to print."""
    command: list[str] = []
    shown: list[str] = []
    [tour] = TOUR.findall(text)
    for line in "\n".join(CONSOLE.findall(tour)).splitlines():
        if line.startswith("$ ") and command:
            yield Step("\n".join(command), shown)
            command, shown = [], []
        if line.startswith(("$ ", "> ")):
            command.append(line[2:])
        elif line:
            shown.append(line)
    yield Step("\n".join(command), shown)


def pattern_of(shown: list[str]) -> re.Pattern[str]:
    """`…` stands for anything, an id for any id, blanks for any number of blanks."""
    parts = [re.escape(part).replace(r"\ ", " ") for part in AN_ID.sub("ID", "\n".join(shown)).split("…")]
    return re.compile(re.sub(r" +", r"\\s*", ".*".join(parts)), re.DOTALL)


async def test_the_tour_of_the_readme_runs_and_prints_what_it_says(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    redrive = tmp_path / "bin" / "redrive"
    redrive.write_text(f'#!/bin/sh\nexec {sys.executable} -m redrive.cli.main "$@"\n')
    redrive.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = data_dir / "data"
    async with serving(folder, *OPEN) as service:
        mine = {
            "http://127.0.0.1:8787": service.url,
            "rdk_…": service.banner["first_key"],
            "$PWD/.venv/bin": str(redrive.parent),
            ":9000": f":{port}",
            '"127.0.0.1", 9000': f'"127.0.0.1", {port}',
            "python3": sys.executable,
            "sleep 5;": "until redrive dead list | grep -q exhausted; do sleep 0.2; done;",
        }
        steps = list(steps_of(README.read_text()))
        script = "\n".join(f"{step.command}\necho '{MARK}'" for step in steps) + "\nkill %1; wait"
        for theirs, ours in mine.items():
            assert theirs in script, f"the tour does not name {theirs}"
            script = script.replace(theirs, ours)
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=tmp_path,
            env=clean_env(REDRIVE_DATA_DIR=str(folder), COLUMNS="200"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await asyncio.wait_for(shell.communicate(), WITHIN_S)
    outputs = printed.decode().replace(f":{port}", ":9000").split(MARK)[: len(steps)]
    for step, output in zip(steps, outputs, strict=True):
        assert pattern_of(step.shown).search(AN_ID.sub("ID", output)), f"$ {step.command}\n{output}"
