"""A page as a test reads it: its elements with their attributes and texts, out of the HTML that was served.

page = await read(api.owner, "/events?status=failed")
assert page.has("a", href="/events/…", text="invoice.paid")
"""

from dataclasses import dataclass, field
from html.parser import HTMLParser

from support.http import Answer, HttpClient

VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})


@dataclass(slots=True)
class Element:
    name: str
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What it says, its children included, blanks made single."""
        return " ".join("".join(self.pieces).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().name != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.pieces.append(data)


@dataclass(frozen=True, slots=True)
class Page:
    answer: Answer
    elements: list[Element]

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def text(self) -> str:
        (body,) = self.all("body")
        return body.text

    def all(self, name: str, /, *, text: str | None = None, **attributes: str) -> list[Element]:
        """Those of this name, text and attributes; underscores in the names of attributes stand for hyphens."""
        wanted = {key.strip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            each
            for each in self.elements
            if each.name == name
            and (text is None or each.text == text)
            and all(each.attributes.get(key) == value for key, value in wanted.items())
        ]

    def has(self, name: str, /, *, text: str | None = None, **attributes: str) -> bool:
        return bool(self.all(name, text=text, **attributes))

    def one(self, name: str, /, *, text: str | None = None, **attributes: str) -> Element:
        (found,) = self.all(name, text=text, **attributes)
        return found

    @property
    def buttons(self) -> set[str]:
        """What may be done here, besides what stands around every page."""
        return {each.text for each in self.all("button") if "data-path" in each.attributes}


async def read(client: HttpClient, path: str) -> Page:
    answer = await client.get(path, Accept="text/html")
    reader = _Reader()
    reader.feed(answer.body.decode())
    return Page(answer, reader.elements)
