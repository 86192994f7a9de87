"""Rendering: a page's dataclass and its template become a response, under a strict policy of what it may load.

Called by every page. Nothing is written into a page but through the templates, which escape.
"""

from functools import lru_cache, partial
from importlib.resources import files

from fastapi import Request, Response
from jinja2 import DictLoader, Environment, StrictUndefined

from redrive.core.pulse import wait_text
from redrive.version import __version__
from redrive.web import policy_words, words, workflow_words
from redrive.web.assets import address_of, packed_response

# Nothing but our own files; no inline script, no inline style, no frame around us, no form to elsewhere.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
THEME_COOKIE = "redrive_theme"
THEMES = ("light", "dark")


def _templates() -> dict[str, str]:
    """All of them, read at once: a process shows the pages it was started with, also while it is being upgraded."""
    folder = files("redrive.web") / "templates"
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".html")}


@lru_cache(maxsize=1)
def environment() -> Environment:
    made = Environment(
        loader=DictLoader(_templates()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(asset=address_of, version=__version__, words=words, policy_words=policy_words)
    made.globals.update(workflow_words=workflow_words)
    made.filters.update(
        number=words.number,
        percent=words.percent,
        duration=words.duration,
        wait=wait_text,
        size=words.size,
        absolute=words.absolute,
        iso=words.iso,
        short_id=words.short_id,
        category=words.category,
        as_json=words.as_json,
    )
    return made


def render(request: Request, template: str, page: object, *, status: int = 200) -> Response:
    """`page`: the dataclass that the template shows; its `frame`, where it has one, stands around it."""
    frame = getattr(page, "frame", None)
    theme = request.cookies.get(THEME_COOKIE)
    text = (
        environment()
        .get_template(template)
        .render(
            page=page,
            frame=frame,
            when=partial(words.when, now=frame.now) if frame is not None else None,
            theme=theme if theme in THEMES else "",
        )
    )
    return packed_response(request, text.encode(), "text/html; charset=utf-8", HEADERS, status=status)
