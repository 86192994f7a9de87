"""The document at /openapi.json: whole, true to its own rules, with an example for everything."""

from collections import Counter
from dataclasses import fields
from typing import Any

import jsonschema_rs
import pytest
from fastapi.routing import iter_route_contexts

from redrive.api.aliases import ALIASES
from redrive.api.openapi import ALIAS_OF, ALIAS_TAG, TAGS, operations_of
from redrive.api.openapi_examples import NoExample, example_of, with_nulls
from redrive.core.workflow import StepSpec

from .conftest import Api
from .document import API, DOCUMENT, OPERATIONS, Operation, schema_for

# About the document itself, for browsers, and a WebSocket.
UNDESCRIBED = {"/openapi.json", "/docs", "/docs/style.css", "/login", "/v1/endpoints/{endpoint_id}/hub"}
every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=str)


def _contents(operation: Operation) -> list[tuple[str, dict[str, Any]]]:
    """Everything that has a body: what is sent, what is answered, problems."""
    bodies = {"the request": operation.described.get("requestBody", {}), **operation.described["responses"]}
    return [
        (f"{name} ({kind})", content)
        for name, body in bodies.items()
        for kind, content in body.get("content", {}).items()
        if not kind.startswith("text/")
    ]


async def test_the_document_is_served_without_a_key(shared_api: Api) -> None:
    served = await shared_api.nobody.get("/openapi.json")
    assert served.json == DOCUMENT


def test_the_document_says_what_it_is() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert DOCUMENT["info"]["description"]
    assert [server["url"] for server in DOCUMENT["servers"]] == ["/"]
    assert {"ApiKey", "Bearer"} <= DOCUMENT["components"]["securitySchemes"].keys()


def test_a24_every_alias_is_in_the_document_and_marked_as_one() -> None:
    marked = {
        (method, path): described[ALIAS_OF]
        for method, path, described in operations_of(DOCUMENT)
        if ALIAS_OF in described
    }
    assert marked == {(alias.method, alias.path): f"{alias.method} {alias.means}" for alias in ALIASES}
    for method, path, described in operations_of(DOCUMENT):
        is_alias = (method, path) in marked
        assert is_alias == ("aliases" in described["tags"])
        assert is_alias == described["summary"].endswith("(alias)")
    names = Counter(described["operationId"] for _, _, described in operations_of(DOCUMENT))
    assert set(names.values()) == {1}


def test_every_schema_of_the_document_is_a_schema() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(schema), name
    for operation in OPERATIONS:
        for place, content in _contents(operation):
            assert jsonschema_rs.meta.is_valid(content["schema"]), f"{operation}: {place}"


def test_every_field_of_a_workflows_steps_is_described() -> None:
    body = DOCUMENT["paths"]["/v1/workflows/{name}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    described = body["properties"]["steps"]["items"]["properties"]
    assert described.keys() == {field.name for field in fields(StepSpec)}


def test_every_reference_of_the_document_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for part in value.values() for each in references(part)]
        return [each for part in value for each in references(part)] if isinstance(value, list) else []

    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) - known == set()


def test_every_path_of_the_application_is_in_the_document() -> None:
    routes = {route.path_format or route.path for route in iter_route_contexts(API.routes.routes)}
    others = {"/v1/events/batch", "/v1/hooks/{token}", *(alias.path for alias in ALIASES)}
    assert routes - UNDESCRIBED == DOCUMENT["paths"].keys() - others
    assert {"get", "post"} <= DOCUMENT["paths"]["/v1/events"].keys()


def test_every_operation_has_a_name_of_its_own() -> None:
    names = Counter(operation.described["operationId"] for operation in OPERATIONS)
    twice = [name for name, count in names.items() if count > 1]
    assert twice == [], "rename the route's function: it is the operationId"


def test_every_tag_is_described_and_used() -> None:
    used = {tag for operation in OPERATIONS for tag in operation.described.get("tags", ())}
    assert used == TAGS.keys() - {ALIAS_TAG}, "describe the tag in TAGS of api/openapi.py"


@every_operation
def test_an_operation_says_what_it_does(operation: Operation) -> None:
    assert operation.described["operationId"].isidentifier()
    assert operation.described["summary"]
    assert operation.described.get("tags"), "give the route's router a tag"
    assert operation.described.get("description"), "give the route's function a docstring"


@every_operation
def test_an_operation_shows_its_answers(operation: Operation) -> None:
    assert operation.described["responses"]["default"]["content"].keys() == {"application/problem+json"}
    assert operation.successes
    for status, answer in operation.successes.items():
        content = answer.get("content", {})
        assert content or status == "204", "give the route's decorator responses=shows(Model)"
        for kind, each in content.items():
            assert each.get("schema") or kind.startswith("text/"), "give the route's decorator responses=shows(Model)"


@every_operation
def test_every_body_has_an_example_that_its_schema_allows(operation: Operation) -> None:
    for place, content in _contents(operation):
        assert "example" in content or "examples" in content, (
            f"{place} has no example: give its model `model_config = example({{…}})`, or json_schema_extra examples"
        )
        examples = [each["value"] for each in content.get("examples", {}).values()] or [content["example"]]
        validator = jsonschema_rs.Draft202012Validator(schema_for(content["schema"]), validate_formats=True)
        for example in examples:
            wrong = [f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(example)]
            assert wrong == [], place


@every_operation
def test_every_parameter_in_a_path_has_an_example(operation: Operation) -> None:
    for parameter in operation.described.get("parameters", ()):
        schema = parameter["schema"]
        validator = jsonschema_rs.Draft202012Validator(schema_for(schema), validate_formats=True)
        assert schema.get("examples") or parameter["in"] != "path", (
            f"{parameter['name']}: name it …_id if it is an id, or give it Path(examples=[…])"
        )
        assert all(validator.is_valid(example) for example in schema.get("examples", ()))
        if "default" in schema:
            assert validator.is_valid(schema["default"])


def test_an_example_is_put_together_from_those_of_its_parts() -> None:
    schemas = {"Thing": {"properties": {"id": {"type": "string"}}, "examples": [{"id": "a"}]}}
    thing = {"$ref": "#/components/schemas/Thing"}
    page = {"properties": {"data": {"type": "array", "items": thing}, "more": {}}, "required": ["data"]}
    assert example_of(page, schemas) == {"data": [{"id": "a"}]}
    assert example_of({"anyOf": [{"type": "null"}, thing]}, schemas) == {"id": "a"}
    with pytest.raises(NoExample):
        example_of({"type": "array", "items": {"type": "string"}}, schemas)


def test_a_schema_that_contains_itself_has_no_example() -> None:
    schemas = {"Knot": {"type": "array", "items": {"$ref": "#/components/schemas/Knot"}}}
    with pytest.raises(NoExample):
        example_of(schemas["Knot"], schemas)


def test_an_example_gets_back_the_nulls_that_its_schema_needs() -> None:
    schema = {
        "properties": {
            "id": {"type": "string"},
            "gone": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "none": {"type": ["string", "null"]},
            "free": {"type": ["string", "null"]},
        },
        "required": ["id", "gone", "none"],
    }
    assert with_nulls({"none": "x", "id": "a"}, schema, {}) == {"id": "a", "gone": None, "none": "x"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/events", "GET, POST"),
        ("GET", "/v1/events/batch", "POST"),
        ("OPTIONS", "/v1/events/batch", "POST"),
        ("DELETE", "/v1/dead-letters/groups", "GET"),
        ("GET", "/v1/dead-letters/bulk", "POST"),
        ("POST", "/v1/endpoints/seven", "DELETE, GET, PATCH"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_takes(
    shared_api: Api, method: str, path: str, allowed: str
) -> None:
    refused = await shared_api.owner.request(method, path)
    assert (refused.status, refused.headers["allow"]) == (405, allowed)
