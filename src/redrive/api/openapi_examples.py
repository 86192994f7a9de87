"""Examples in /openapi.json, found from the schemas that hold them. Pure.

A model says its example once (`schemas.base.example`); lists and bodies made of it need none of their own. Called by
openapi.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
Schemas = Mapping[str, Any]

MAX_DEPTH = 20
REF = "#/components/schemas/"


class NoExample(LookupError):
    """The schema holds no example, nor do its parts."""


def resolved(schema: Schema, schemas: Schemas) -> Schema:
    """The schema itself, where it is only named."""
    while "$ref" in schema:
        schema = schemas[schema["$ref"].removeprefix(REF)]
    return schema


def is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def example_of(schema: Schema, schemas: Schemas, depth: int = 0) -> Any:
    """Its own example, or one put together from those of its parts; NoExample names what lacks one."""
    if depth > MAX_DEPTH:
        raise NoExample("a schema that contains itself")
    schema = resolved(schema, schemas)
    for name in ("examples", "enum"):
        if schema.get(name):
            return with_nulls(schema[name][0], schema, schemas)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for way in ("oneOf", "anyOf"):
        if way in schema:
            chosen = next((each for each in schema[way] if not is_null(each)), {"const": None})
            return example_of(chosen, schemas, depth + 1)
    if schema.get("type") == "array":
        return [example_of(schema.get("items", {}), schemas, depth + 1)]
    if "properties" in schema:
        parts = {name: schema["properties"][name] for name in schema.get("required", ())}
        return {name: example_of(part, schemas, depth + 1) for name, part in parts.items()}
    raise NoExample(schema.get("title") or schema.get("type") or "a schema without a type")


def with_nulls(example: Any, schema: Schema, schemas: Schemas, depth: int = 0) -> Any:
    """The example with its fields in the schema's order, and the nulls of needed ones.

    The framework sorts the former and drops the latter from everything that it writes.
    """
    schema = resolved(schema, schemas)
    if depth > MAX_DEPTH:
        return example
    if isinstance(example, list):
        return [with_nulls(each, schema.get("items", {}), schemas, depth + 1) for each in example]
    if not isinstance(example, dict):
        return example
    fitting = _fitting(example, schema, schemas)
    properties, needed = fitting.get("properties", {}), fitting.get("required", ())
    whole = {
        name: with_nulls(example.get(name), part, schemas, depth + 1)
        for name, part in properties.items()
        if name in example or (name in needed and _takes_null(part))
    }
    return whole | {name: value for name, value in example.items() if name not in properties}


def _fitting(example: Mapping[str, Any], schema: Schema, schemas: Schemas) -> Schema:
    """Of several ways that a schema allows, the first that knows all of the example's fields."""
    ways = [resolved(way, schemas) for name in ("oneOf", "anyOf") for way in schema.get(name, ())]
    return next((way for way in ways if example.keys() <= way.get("properties", {}).keys()), schema)


def _takes_null(schema: Schema) -> bool:
    if not schema.keys() & {"type", "anyOf", "oneOf", "enum", "const", "$ref"}:
        return True  # it takes anything
    kinds = schema.get("type", ())
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or any(map(is_null, schema.get("anyOf", ())))
