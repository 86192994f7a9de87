"""URLs with expressions in them: they lead to one place, whatever they are filled in with. Pure.

Checked when a workflow is saved (core.step_fields), rendered when a step begins (core.steps).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote

from redrive.core.address import MAX_URL_CHARS, BadUrl, Target, parse_target
from redrive.core.template import TemplateError, holds_expression, parse, render_text, shape_of

_ORIGIN = re.compile(r"https?://[^/?#\\]+[/?]", re.IGNORECASE)
_SLASHES = re.compile(r"[/\\]")  # of a value: encoded, but some receivers decode them first
_DOTS = frozenset({".", ".."})


def url_problem(text: str) -> str | None:
    """Why this cannot be the URL of a step; None where it can."""
    try:
        first, shape = parse(text)[0], shape_of(text)
        if holds_expression(text) and not (isinstance(first, str) and _ORIGIN.match(first)):
            return "scheme and host must be literal: the first {{ may stand behind https://host/ only"
        parse_target(shape)
        _check_path(shape, shape)
    except (TemplateError, BadUrl) as wrong:
        return str(wrong)
    return None


def render_url(text: str, scope: Mapping[str, object]) -> str:
    """The URL, with every value percent-encoded; TemplateError where it cannot be a destination.

    A value fills its own part of the path and no other: one that makes a part empty, `.` or `..` would ask for another
    resource than the definition shows.
    """
    url = render_text(text, scope, _encode, MAX_URL_CHARS)
    try:
        parse_target(url)
    except BadUrl as bad:
        raise TemplateError(f"cannot be a URL once it is filled in. {bad}") from None
    if holds_expression(text):
        _check_path(shape_of(text), url)
    return url


def leads_to_its_place(text: str, target: Target) -> bool:
    """Whether a URL has the scheme, host and port that the definition's says. Whoever hands in a run renders its first
    step: what the definition keeps secret must not go elsewhere for that.
    """
    return target.origin == _origin_of(text)


@lru_cache(maxsize=1024)
def _origin_of(text: str) -> tuple[str, str, int] | None:
    try:
        return parse_target(shape_of(text)).origin
    except (TemplateError, BadUrl):
        return None


def _encode(value: str) -> str:
    return quote(value, safe="")


def _check_path(shape: str, url: str) -> None:
    """Values are encoded, so both have the same slashes; behind the origin the path begins with the fourth part."""
    meant, made = (text.partition("?")[0].split("/")[3:] for text in (shape, url))
    for part, before in zip(made, meant, strict=True):
        if not _DOTS.isdisjoint(_SLASHES.split(unquote(part))):
            raise TemplateError("has a part “.” or “..” in its path, which leads elsewhere")
        if before and not part:
            raise TemplateError("has an empty part in its path, which leads elsewhere")
