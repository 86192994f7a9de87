"""Schemas as tables of fields that a person can read. Pure. Used by page."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from redrive.api.docs.markup import NOTHING, Html, anchor, joined, prose, tag, text
from redrive.api.openapi_examples import REF, Schema, Schemas, is_null, resolved

MAX_DEPTH = 4  # of objects that stand in objects without a name

_HEADS = ("Field", "Type", "Notes")
_OF = re.compile(r"(\w+?)_(\w+)_")
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "maxProperties": "at most {}",
}


def shown_name(name: str) -> str:
    """Page_Event_ is how the framework writes Page[Event]."""
    of = _OF.fullmatch(name)
    return f"{of[1]} of {of[2]}" if of else name


def kind(schema: Schema) -> Html:
    """What a value is, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return tag("a", text(shown_name(name)), href=f"#{anchor('schema', name)}")
    if "const" in schema:
        return tag("code", text(json.dumps(schema["const"])))
    if "enum" in schema:
        return joined([tag("code", text(json.dumps(value))) for value in schema["enum"]], " | ")
    for way in ("anyOf", "oneOf"):
        if way in schema:
            return joined([kind(each) for each in schema[way]], " | ")
    kinds = schema.get("type", "anything")
    if isinstance(kinds, list):
        return joined([kind({**schema, "type": each}) for each in kinds], " | ")
    if kinds == "array":
        return joined([text("list of "), kind(schema.get("items", {}))])
    if kinds == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return joined([text("object of "), kind(schema["additionalProperties"])])
    return text(f"{kinds} ({schema['format']})" if "format" in schema and kinds != "null" else kinds)


def notes(schema: Schema) -> Html:
    """What else is to be known of a field: its meaning, default and limits."""
    said = [prose(schema["description"])] if "description" in schema else []
    ways = [way for way in schema.get("anyOf", ()) if not is_null(way)]
    limited = ways[0] if len(ways) == 1 and "$ref" not in ways[0] else schema
    limits = [_limit(name, limited[name]) for name in _LIMITS if name in limited]
    if limits:
        said.append(text(", ".join(limits)))
    if schema.get("default") not in (None, [], {}):
        said.append(joined([text("default "), tag("code", text(json.dumps(schema["default"])))]))
    return joined(said, " · ")


def _limit(name: str, value: float) -> str:
    if value == 1 and name in ("minLength", "minItems"):
        return "not empty"
    shown = f"{int(value) if value == int(value) else value:,}"
    return _LIMITS[name].format(shown.replace(",", " "))


def rows(schema: Schema, before: str = "", depth: int = 0, known: Schema | None = None) -> Iterator[Html]:
    """One row per field; those of an object without a name stand under it.

    What must be there is marked where not everything must. Fields as in `known`, and those that only null is good
    for, are left out.
    """
    properties = schema.get("properties", {})
    needed = schema.get("required", ())
    for name, part in properties.items():
        if is_null(part) or (known is not None and known.get(name) == part):
            continue
        is_marked = name in needed and len(needed) < len(properties)
        mark = tag("span", text("required"), cls="required") if is_marked else NOTHING
        yield tag(
            "tr",
            tag("th", tag("code", text(before + name)), mark, scope="row"),
            tag("td", kind(part)),
            tag("td", notes(part)),
        )
        if "properties" in part and depth < MAX_DEPTH:
            yield from rows(part, f"{before}{name}.", depth + 1)


def fields(schema: Schema, schemas: Schemas) -> Html:
    """The fields of a body: a table, one for each way where there are several, a line where it has none."""
    if "$ref" in schema:
        lead = tag("p", kind(schema), cls="type")
        return joined([lead, fields(resolved(schema, schemas), schemas)])
    ways = [way for name in ("oneOf", "anyOf") for way in schema.get(name, ()) if not is_null(way)]
    if len(ways) > 1 and all("properties" in way for way in ways):
        return _ways(ways)
    if ways:
        return joined([fields(way, schemas) for way in ways])
    if "properties" in schema:
        return table(_HEADS, list(rows(schema)))
    if schema.get("type") == "array":
        lead = tag("p", text("A list; each element is"), cls="type")
        return joined([lead, fields(schema.get("items", {}), schemas)])
    described = prose(schema["description"]) if "description" in schema else kind(schema)
    return tag("p", described, cls="type")


def _ways(ways: list[Schema]) -> Html:
    """The first in full, of the others what is not the same."""
    first, *others = ways
    parts = [_way("Either", first), table(_HEADS, list(rows(first)))]
    for other in others:
        parts += [_way("Or", other), table(_HEADS, list(rows(other, known=first["properties"])))]
    return joined(parts)


def _way(word: str, schema: Schema) -> Html:
    same = ", otherwise the same:" if word == "Or" else ":"
    return tag("p", text(f"{word} "), tag("strong", text(schema.get("title", "this"))), text(same), cls="type")


def table(heads: tuple[str, ...], body: list[Html], **attributes: str) -> Html:
    """Scrolls by itself where the window is narrow."""
    head = tag("thead", tag("tr", *(tag("th", text(each), scope="col") for each in heads)))
    return tag("div", tag("table", head, tag("tbody", *body)), cls="scroll", **attributes)


def parameters(given: list[dict[str, Any]]) -> Html:
    """What goes into the path, the query and the headers."""
    if not given:
        return NOTHING
    body = [
        tag(
            "tr",
            tag("th", tag("code", text(each["name"])), _required(each), scope="row"),
            tag("td", text(each["in"])),
            tag("td", kind(each["schema"])),
            tag("td", notes({**each["schema"], **({"description": d} if (d := each.get("description")) else {})})),
        )
        for each in given
    ]
    return joined([tag("h4", text("Parameters")), table(("Name", "In", "Type", "Notes"), body)])


def _required(parameter: Mapping[str, Any]) -> Html:
    return tag("span", text("required"), cls="required") if parameter.get("required") else NOTHING
