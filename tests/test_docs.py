"""The documents name everything there is, and nothing that is not: settings, routes, commands, links, examples."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer

from redrive.api.openapi import ALIAS_OF
from redrive.api.server import ApiContext, create_app
from redrive.app import open_stores
from redrive.cli.main import app as cli
from redrive.core.address import AddressRules
from redrive.settings import ENV_PREFIX, UNPREFIXED, Settings
from redrive.store.clock import DatabaseClock
from redrive.store.seal import Sealer
from redrive.version import __version__
from redrive.web.site import page_paths

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OTHER_FLAGS = {"rabbitmq_url": "--rabbitmq"}
NOT_OURS = {"node_modules", "build", "dist"}

MAX_README_LINES = 150
MAX_CHANGE_CHARACTERS = 160
MAX_PICTURE_BYTES = 250_000
CHANGE_KINDS = {f"### {kind}" for kind in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")}

_PICTURE = re.compile(r"images/([\w.-]+\.(?:png|svg))")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ROUTE = re.compile(r"^### `([A-Z]+) (/\S*)`$", re.MULTILINE)
_COMMAND = re.compile(r"(?:^|[\s/])redrive (?!import\b)([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
_MAKE = re.compile(r"(?:^|\s)make ([a-z]+)")


def _documents() -> list[Path]:
    found = [
        path
        for path in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part in NOT_OURS for part in path.relative_to(ROOT).parts)
    ]
    return sorted(found)


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_document = pytest.mark.parametrize("document", _documents(), ids=_named)


def _code(text: str) -> str:
    """What stands in code: whole blocks, then single spans."""
    blocks = [block for _, block in _FENCE.findall(text)]
    return "\n".join([*blocks, *_INLINE.findall(_FENCE.sub("", text))])


def _anchors(text: str) -> set[str]:
    """Headings as a web page names them: lower case, blanks as hyphens, marks left out."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that a person is told of, by its words."""
    found = typer.main.get_command(cli) if command is None else command
    members = getattr(found, "commands", None)
    if members is None:
        yield path, found
        return
    for name, member in members.items():
        if not member.hidden:
            yield from _commands(member, (*path, name))


COMMANDS = dict(_commands())
every_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def _options(path: tuple[str, ...]) -> set[str]:
    return {word for parameter in COMMANDS[path].params for word in parameter.opts if word.startswith("--")}


# -- settings ----------------------------------------------------------------------------------------------------------


def _setting_rows() -> dict[str, list[str]]:
    lines = (DOCS / "settings.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {row[0].strip("`"): row for row in cells}


def test_the_settings_page_has_a_row_for_every_setting_and_for_no_other() -> None:
    assert list(_setting_rows()) == list(Settings.model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_is_documented_with_its_flag_its_variables_its_default_and_what_is_allowed(name: str) -> None:
    _, flag, variables, default, allowed, meaning = _setting_rows()[name]
    field = Settings.model_fields[name]
    option = OTHER_FLAGS.get(name, f"--{name.replace('_', '-')}")
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    assert flag == (f"`{option}`" if option in _options(("serve",)) else "–")
    assert variables == f"`{ENV_PREFIX}{name.upper()}`" + (f" or `{name.upper()}`" if name in UNPREFIXED else "")
    assert allowed == extra["allowed"]
    assert meaning.endswith(".")
    if field.default in (None, ()):
        assert default.startswith("none")
    elif field.default_factory is None:
        shown = f"{field.default:g}" if isinstance(field.default, float) else field.default
        assert default == f"`{shown}`"


# -- routes ------------------------------------------------------------------------------------------------------------


def _all_pages() -> str:
    return "\n".join(page.read_text() for page in sorted(DOCS.glob("*.md")))


async def _openapi(database_url: str) -> dict[str, Any]:
    """What the application says of itself, asked as a client would ask, without a socket."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async with open_stores(database_url, size=1) as stores:
        context = ApiContext(
            engine_db=stores.engine,
            app_db=stores.app,
            sealer=Sealer(bytes(32)),
            clock=DatabaseClock(),
            rules=AddressRules(()),
            version=__version__,
        )
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/openapi.json",
            "raw_path": b"/openapi.json",
            "root_path": "",
            "query_string": b"",
            "headers": [],
        }
        await create_app(context)(scope, receive, send)
    schema: dict[str, Any] = json.loads(b"".join(message.get("body", b"") for message in sent))
    return schema


async def test_the_pages_have_one_heading_for_every_route_and_for_no_other(database_url: str) -> None:
    schema = await _openapi(database_url)
    routes = [
        (method.upper(), path)
        for path, methods in schema["paths"].items()
        for method, described in methods.items()
        if ALIAS_OF not in described  # they have a table of their own
    ]
    assert {("POST", "/v1/events"), ("POST", "/v1/events/batch")} <= set(routes)
    assert sorted(_ROUTE.findall(_all_pages())) == sorted(routes)


def test_every_route_of_the_pages_has_an_example_request() -> None:
    parts = re.split(r"^##+ ", _all_pages(), flags=re.MULTILINE)
    without = [part.partition("\n")[0] for part in parts if _ROUTE.match(f"### {part}") and "```sh\ncurl " not in part]
    assert without == []


def test_the_document_of_the_pages_names_every_page_and_no_other() -> None:
    text = (DOCS / "ui.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `/")]
    named = {path for row in rows for path in _INLINE.findall(row)} | {"/sign-in"}
    assert named == set(page_paths())


# -- commands ----------------------------------------------------------------------------------------------------------


@every_command
def test_the_command_page_names_every_command(path: tuple[str, ...]) -> None:
    assert re.search(rf"`redrive {' '.join(path)}\b", (DOCS / "cli.md").read_text())


@every_command
def test_the_command_page_names_every_option(path: tuple[str, ...]) -> None:
    text = _code((DOCS / "cli.md").read_text())
    assert {option for option in _options(path) if not re.search(rf"{option}(?![\w-])", text)} == set()


@every_document
def test_a_document_names_no_command_that_does_not_exist(document: Path) -> None:
    nouns = {path[0] for path in COMMANDS if len(path) == 2}
    named = {
        (first, second) if first in nouns and second else (first,)
        for first, second in _COMMAND.findall(_code(document.read_text()))
    }
    assert named - COMMANDS.keys() - {(noun,) for noun in nouns} == set()


@every_document
def test_a_document_names_no_make_target_that_does_not_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(_MAKE.findall(_code(document.read_text()))) <= targets


def test_the_readme_is_at_most_150_lines_long() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_the_changelog_says_each_change_in_one_short_line_under_a_known_heading() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert [line for line in lines if len(line) > MAX_CHANGE_CHARACTERS] == []
    assert {line for line in lines if line.startswith("### ")} <= CHANGE_KINDS
    entries = lines[next(number for number, line in enumerate(lines) if line.startswith("## ")) :]
    assert [line for line in entries if line and not line.startswith(("## ", "### ", "#### ", "- "))] == []


def test_the_pictures_are_those_that_documents_show_and_are_small() -> None:
    shown = {name for document in _documents() for name in _PICTURE.findall(document.read_text())}
    pictures = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}
    assert pictures.keys() == shown
    assert [name for name, size in pictures.items() if size > MAX_PICTURE_BYTES] == []


def test_the_readme_begins_with_the_two_commands_that_a_person_needs() -> None:
    first_block = _FENCE.findall((ROOT / "README.md").read_text())[0][1]
    assert _MAKE.findall(first_block) == ["serve", "test"]


# -- links, examples, version ------------------------------------------------------------------------------------------


@every_document
def test_every_relative_link_of_a_document_leads_somewhere(document: Path) -> None:
    dead = []
    for link in _LINK.findall(_FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = unquote(link).partition("#")
        target = document.parent / place if place else document
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            dead.append(link)
    assert dead == []


@every_document
def test_every_json_example_of_a_document_is_json(document: Path) -> None:
    decoder = json.JSONDecoder()
    for language, block in _FENCE.findall(document.read_text()):
        rest = block.strip() if language == "json" else ""
        while rest:
            _, end = decoder.raw_decode(rest)
            rest = rest[end:].lstrip()


def test_the_python_example_of_the_api_page_compiles() -> None:
    examples = [block for language, block in _FENCE.findall((DOCS / "api.md").read_text()) if language == "python"]
    assert examples
    for example in examples:
        compile(example, "api.md", "exec")


def test_the_program_and_its_package_have_the_same_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert package["version"] == __version__


def test_the_whole_programs_of_the_python_page_compile() -> None:
    examples = [block for language, block in _FENCE.findall((DOCS / "python.md").read_text()) if language == "python"]
    programs = [example for example in examples if "from redrive import" in example]
    assert len(programs) == 3
    for program in programs:
        compile(program, "python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
