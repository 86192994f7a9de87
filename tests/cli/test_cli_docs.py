"""docs/cli.md covers every command, option, rule and exit code."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from redrive.cli.main import app
from redrive.cli.runner import DONE, REFUSED, UNREACHABLE, WRONG_USAGE
from redrive.store.check import RULES

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that people see, with its full name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, part in command.commands.items():
        if not part.hidden:
            yield from commands(part, f"{name} {word}")


ALL = dict(commands(typer.main.get_command(app), "redrive"))


def test_there_are_commands() -> None:
    assert len(ALL) > 20
    assert "redrive api" not in ALL


def test_every_command_is_documented() -> None:
    assert [name for name in ALL if f"`{name}" not in DOCS] == []


def test_every_option_is_documented() -> None:
    options = {option for command in ALL.values() for parameter in command.params for option in parameter.opts}
    assert [o for o in options if o.startswith("--") and not re.search(rf"[` ]{o}[` ]", DOCS)] == []


def test_every_command_says_what_it_does_and_takes_json() -> None:
    for name, command in ALL.items():
        assert command.help, name
        if name not in ("redrive worker", "redrive consume"):  # their output is their log
            assert "--json" in {option for parameter in command.params for option in parameter.opts}, name


def test_every_rule_is_documented_in_its_own_words() -> None:
    assert [rule.name for rule in RULES if f"| `{rule.name}` | {rule.sentence} |" not in DOCS] == []


def test_every_exit_code_is_documented() -> None:
    for code in (DONE, REFUSED, WRONG_USAGE, UNREACHABLE):
        assert f"\n| {code} | " in DOCS
