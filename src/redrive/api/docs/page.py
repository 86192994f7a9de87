"""The page at /docs, made from the document at /openapi.json. Pure. Called by routes.docs."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from redrive.api.auth import ANYBODY
from redrive.api.docs.markup import NOTHING, Html, anchor, joined, paragraphs, prose, tag, text
from redrive.api.docs.tables import fields, parameters, rows, shown_name, table
from redrive.api.openapi import ACTION, operations_of
from redrive.api.openapi_examples import Schemas
from redrive.core.permissions import ROLES, SCOPES, Action, Role

JSON_TYPE = "application/json"

Document = dict[str, Any]


def render(document: Document, style_path: str) -> bytes:
    """The whole page as bytes."""
    info = document["info"]
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", text(f"{info['title']} API {info['version']}")),
        Html(f'<link rel="stylesheet" href="{text(style_path)}">'),
    )
    body = tag(
        "body",
        tag("a", text("Skip to the operations"), href="#main", cls="skip"),
        _navigation(document),
        _main(document),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".encode()


def _by_tag(document: Document) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    """The operations of each tag, in the order of the document's tags."""
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {each["name"]: [] for each in document["tags"]}
    for method, path, operation in operations_of(document):
        groups.setdefault(operation["tags"][0], []).append((method, path, operation))
    return groups


def _navigation(document: Document) -> Html:
    groups = [
        tag(
            "li",
            tag("a", text(name.capitalize()), href=f"#{anchor('tag', name)}", cls="group"),
            tag("ul", *(_link(method, operation) for method, _, operation in operations)),
        )
        for name, operations in _by_tag(document).items()
    ]
    brand = tag("a", text("Re"), tag("span", text("drive")), href="#main", cls="brand")
    schemas = tag("li", tag("a", text("Schemas"), href="#schemas", cls="group"))
    return tag("nav", brand, tag("ul", *groups, schemas), aria_label="Operations")


def _link(method: str, operation: Mapping[str, Any]) -> Html:
    target = f"#{anchor('operation', operation['operationId'])}"
    return tag("li", tag("a", _method(method), text(" "), text(_short(operation)), href=target))


def _short(operation: Mapping[str, Any]) -> str:
    return str(operation["operationId"]).replace("_", " ").capitalize()


def _method(method: str) -> Html:
    return tag("span", text(method), cls=f"method {method.lower()}")


def _main(document: Document) -> Html:
    described = {each["name"]: each["description"] for each in document["tags"]}
    schemas = document["components"]["schemas"]
    sections = [
        tag(
            "section",
            tag("h2", text(name.capitalize()), id=anchor("tag", name)),
            paragraphs(described.get(name, "")),
            *(_operation(method, path, operation, schemas) for method, path, operation in operations),
        )
        for name, operations in _by_tag(document).items()
    ]
    info = document["info"]
    opening = tag(
        "header",
        tag("h1", text(f"{info['title']} API"), text(" "), tag("small", text(info["version"]))),
        paragraphs(info.get("description", "")),
        tag(
            "p",
            text("The same for programs: "),
            tag("a", text("/openapi.json"), href="/openapi.json"),
            text(". The cURL lines take your address and key from "),
            tag("code", text("$URL")),
            text(" and "),
            tag("code", text("$KEY")),
            text("."),
        ),
    )
    return tag("main", opening, *sections, _schemas(schemas), id="main")


def _operation(method: str, path: str, operation: dict[str, Any], schemas: Schemas) -> Html:
    name = anchor("operation", operation["operationId"])
    title = tag("a", _method(method), text(" "), tag("code", text(path)), href=f"#{name}")
    said = tag(
        "div",
        paragraphs(operation.get("description") or operation["summary"]),
        _needs(operation),
        parameters(operation.get("parameters", [])),
        _request(operation.get("requestBody", {}), schemas),
        *(_answer(status, each, schemas) for status, each in operation["responses"].items() if status != "default"),
        _problems(),
    )
    shown = tag(
        "div",
        _example("cURL", curl_line(method, path, operation), "copy"),
        *_examples("Request", operation.get("requestBody", {})),
        *(
            example
            for status, each in operation["responses"].items()
            if status != "default"
            for example in _examples(f"Answer {status}", each)
        ),
        cls="examples",
    )
    return tag("article", tag("h3", title), tag("div", said, shown, cls="columns"), id=name)


def _needs(operation: Mapping[str, Any]) -> Html:
    """Who may do this."""
    if ACTION not in operation:
        return tag("p", text("Needs no key."), cls="needs")
    if operation[ACTION] == ANYBODY:
        return tag("p", text("Needs a key or a session, of any role."), cls="needs")
    action = Action(operation[ACTION])
    roles = ", ".join(role for role in Role if role in ROLES[action])
    scopes = [scope for scope, actions in SCOPES.items() if action in actions]
    limited = f" A key limited to {' or '.join(scopes)} will do." if scopes else ""
    return tag("p", text("Needs: "), tag("strong", text(action)), text(f" ({roles}).{limited}"), cls="needs")


def _request(body: Mapping[str, Any], schemas: Schemas) -> Html:
    if not body:
        return NOTHING
    need = "Request body" if body.get("required") else "Request body, may be left out"
    return joined([tag("h4", text(need)), _contents(body, schemas)])


def _answer(status: str, answer: Mapping[str, Any], schemas: Schemas) -> Html:
    title = tag("h4", text(f"Answer {status}"))
    if not answer.get("content"):
        return joined([title, tag("p", text("No body."), cls="type")])
    return joined([title, _contents(answer, schemas)])


def _contents(body: Mapping[str, Any], schemas: Schemas) -> Html:
    return joined(
        [
            joined([tag("p", tag("code", text(kind)), cls="media"), fields(content.get("schema", {}), schemas)])
            for kind, content in body["content"].items()
        ]
    )


def _problems() -> Html:
    problem = tag("a", text("Problem"), href=f"#{anchor('schema', 'Problem')}")
    return tag("p", text("Anything else is a "), problem, text("."), cls="type")


def _examples(title: str, body: Mapping[str, Any]) -> list[Html]:
    shown: list[Html] = []
    for kind, content in body.get("content", {}).items():
        several = [each["value"] for each in content.get("examples", {}).values()]
        one = [content["example"]] if "example" in content else []
        named = title if kind == JSON_TYPE else f"{title}, {kind}"
        shown.extend(_example(named, _written(value, kind)) for value in several or one)
    return shown


def _written(value: object, kind: str) -> str:
    is_lines = isinstance(value, str) and not kind.endswith("json")
    return str(value).rstrip() if is_lines else json.dumps(value, indent=2, ensure_ascii=False)


def _example(title: str, content: str, cls: str | None = None) -> Html:
    caption = tag("figcaption", text(title))
    return tag("figure", caption, tag("pre", tag("code", text(content)), tabindex="0", cls=cls))


def curl_line(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """A line that a shell takes as it is, given $URL and $KEY."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            example = (parameter["schema"].get("examples") or [f"${parameter['name'].upper()}"])[0]
            path = path.replace(f"{{{parameter['name']}}}", str(example))
    words = ["curl -s"]
    content = operation.get("requestBody", {}).get("content", {}).get(JSON_TYPE)
    if method != ("GET" if content is None else "POST"):
        words.append(f"-X {method}")
    words.append(f'"$URL{path}"')
    if ACTION in operation:
        words.append('-H "X-API-Key: $KEY"')
    if content is not None:
        words.append(f"-d {shlex.quote(json.dumps(content.get('example'), ensure_ascii=False))}")
    return " ".join(words)


def _schemas(schemas: Schemas) -> Html:
    return tag(
        "section",
        tag("h2", text("Schemas"), id="schemas"),
        *(_schema(name, schema) for name, schema in sorted(schemas.items())),
    )


def _schema(name: str, schema: dict[str, Any]) -> Html:
    described = tag("p", prose(schema["description"])) if "description" in schema else NOTHING
    listed = list(rows(schema))
    shape = table(("Field", "Type", "Notes"), listed) if listed else NOTHING
    return tag("article", tag("h3", text(shown_name(name))), described, shape, id=anchor("schema", name))
