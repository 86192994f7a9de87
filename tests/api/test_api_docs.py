"""The page at /docs: everything that the document has, nothing from elsewhere, nothing that runs."""

from html.parser import HTMLParser
from typing import Any

import pytest

from redrive.api.docs.markup import prose, tag, text
from redrive.api.docs.page import curl_line, render
from redrive.core.permissions import ROLES

from .conftest import Api
from .document import DOCUMENT, OPERATIONS, SCHEMAS, Operation

VOID = {"meta", "link", "br", "hr"}
PAGE = render(DOCUMENT, "/docs/style.css").decode()


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute)) is not None]


READ = Reader(PAGE)


async def test_the_page_and_its_style_need_no_key_and_let_nothing_else_in(shared_api: Api) -> None:
    page = await shared_api.nobody.get("/docs")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.body.decode() == PAGE
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self';")
    style = await shared_api.nobody.get("/docs/style.css")
    assert (style.status, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert b"url(" not in style.body
    assert b"@import" not in style.body


def test_the_page_is_well_formed_and_refers_to_itself_only() -> None:
    assert READ.open == []
    assert {tag for tag, _ in READ.tags} & {"script", "style", "img", "iframe", "form", "object"} == set()
    assert READ.values("src") == []
    assert READ.values("style") == []
    assert not any(name.startswith("on") for _, attrs in READ.tags for name in attrs)
    links = READ.values("href")
    assert all(link.startswith(("#", "/")) and not link.startswith("//") for link in links)


def test_every_link_of_the_page_leads_to_one_place() -> None:
    places = READ.values("id")
    assert len(places) == len(set(places))
    assert {link[1:] for link in READ.values("href") if link.startswith("#")} <= set(places)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_an_operation_stands_on_the_page_with_all_that_is_known_of_it(operation: Operation) -> None:
    name = f'id="operation-{operation.described["operationId"]}"'
    article = PAGE[PAGE.index(name) : PAGE.index("</article>", PAGE.index(name))]
    words = "".join(Reader(f"<article {article}</article>").words)
    assert operation.path in words
    assert curl_line(operation.method, operation.path, operation.described) in words
    for parameter in operation.described.get("parameters", ()):
        assert parameter["name"] in words
    if operation.is_open:
        assert "Needs no key." in words
    elif operation.action is None:
        assert "of any role" in words
    else:
        assert f"Needs: {operation.action} (" in words
        assert all(role in words for role in ROLES[operation.action])
    for status in operation.successes:
        assert f"Answer {status}" in words


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_stands_on_the_page(name: str) -> None:
    assert f'id="schema-{name}"' in PAGE


def test_whatever_the_document_says_is_shown_as_text() -> None:
    hostile = "<script>alert('x')</script>\"&`<b>`"
    assert "<" not in text(hostile)
    assert "<b>" not in prose(hostile)
    assert '"' not in tag("a", href=hostile).removeprefix('<a href="').removesuffix('"></a>')
    operation = _operation(hostile)
    document = {
        "info": {"title": hostile, "version": hostile, "description": hostile},
        "tags": [{"name": hostile, "description": hostile}],
        "paths": {f"/{hostile}": {"post": operation}},
        "components": {"schemas": {"Thing": operation["requestBody"]["content"]["application/json"]["schema"]}},
    }
    page = render(document, "/docs/style.css").decode()
    assert Reader(page).open == []
    assert "<script" not in page
    assert "<b>" not in page


def _operation(hostile: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "title": hostile,
        "description": hostile,
        "properties": {hostile: {"enum": [hostile], "description": hostile, "default": hostile}},
    }
    content = {"application/json": {"schema": schema, "example": {hostile: hostile}}}
    return {
        "operationId": hostile,
        "summary": hostile,
        "description": hostile,
        "tags": [hostile],
        "parameters": [{"name": hostile, "in": "query", "schema": schema, "description": hostile}],
        "requestBody": {"content": content},
        "responses": {"200": {"description": hostile, "content": content}},
    }


def test_a_curl_line_survives_quotes_in_its_example() -> None:
    body = {"content": {"application/json": {"example": {"because": 'it\'s "fine" $HOME'}}}}
    line = curl_line("POST", "/v1/things", {"requestBody": body, "x-action": "judge"})
    assert line == ('curl -s "$URL/v1/things" -H "X-API-Key: $KEY" -d \'{"because": "it\'"\'"\'s \\"fine\\" $HOME"}\'')
