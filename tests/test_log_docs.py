"""Every log line is documented: its name, and the fields that it is given where it is written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import redrive

SOURCE = Path(redrive.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "logs.md"
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "say_all"}
LOGS = {"log", "_log", "lines"}
# Said through a name that is passed on: by engine.looking, and by engine.herald as severe as the notice is.
ELSEWHERE = {"engine/looking.py", "engine/herald.py"}
OF_LINES = {"exc_info"}  # of the library's, not a field


def _calls(tree: ast.Module) -> Iterator[tuple[ast.expr, list[ast.expr], list[ast.keyword]]]:
    """What is called, and with what; `partial(f, …)` is a call of f."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Name) and node.func.id == "partial"
            called, args = (node.args[0], node.args[1:]) if named and node.args else (node.func, node.args)
            yield called, args, node.keywords


def _said() -> Iterator[tuple[str, str, set[str]]]:
    """Where, what, and with which fields."""
    for file in sorted(SOURCE.rglob("*.py")):
        where = str(file.relative_to(SOURCE))
        for called, args, keywords in _calls(ast.parse(file.read_text())):
            failed = [k.value.value for k in keywords if k.arg == "failed" and isinstance(k.value, ast.Constant)]
            if failed and isinstance(failed[0], str):
                yield where, failed[0], {"error", "again_in_s"}
            if not (isinstance(called, ast.Attribute) and called.attr in LEVELS):
                continue
            owner = called.value
            if (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)) not in LOGS:
                continue
            if isinstance(args[0], ast.Constant) and isinstance(args[0].value, str):
                yield where, args[0].value, {k.arg for k in keywords if k.arg is not None} - OF_LINES
            else:
                assert where in ELSEWHERE | {"observe/lines.py"}, f"{where}: the name of a line is written out"


def _documented() -> dict[str, set[str]]:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): set(re.findall(r"`([^`]+)`", row[3])) for row in rows}


def test_every_line_that_is_written_is_documented_with_its_fields_and_no_other_is() -> None:
    documented, said = _documented(), list(_said())
    assert len(said) > 90
    missing = {(where, name) for where, name, _ in said if name not in documented}
    assert not missing
    # By engine.herald; and by observe.logs itself, where nothing could be written.
    assert documented.keys() - {name for _, name, _ in said} == {"notice", "log_lines_lost"}
    untold = {(where, name, *sorted(fields - documented[name])) for where, name, fields in said}
    assert {found for found in untold if len(found) > 2} == set()
