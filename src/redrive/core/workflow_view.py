"""What people see of a workflow's definition, and taking it back from them. Pure.

Literal secrets are hidden; expressions are shown, since they only say where a value comes from. Somebody who reads a
definition, changes a line and saves it must not thereby save the marks that stand for what was hidden.
"""

from collections.abc import Iterator

from redrive.core.redact import CUT, REDACTED, redact_headers, redact_text, redact_url, redact_value
from redrive.core.template import Expression, TemplateError, compact, holds_expression, parse

TEMPLATES = ("body", "input", "payload")
_SCHEMES = frozenset({"", "bearer", "basic", "token"})  # what may stand before a credential without being one
_MARK = "\ue000{}\ue001"


def redacted_spec(spec: dict[str, object]) -> dict[str, object]:
    """A definition's JSON shape without its secrets."""
    return spec | {"steps": [_redacted_step(step) for step in _steps(spec)]}


def restored(given: object, stored: dict[str, object]) -> object:
    """What was given, with the stored value where it has what `redacted_spec` shows of it. Steps are known by name."""
    if not isinstance(given, dict) or not isinstance(given.get("steps"), list):
        return given
    known = {str(step["name"]): step for step in _steps(stored)}
    steps: list[object] = []
    for step in given["steps"]:
        before = known.get(str(step.get("name"))) if isinstance(step, dict) else None
        steps.append(step if before is None else _restore(step, _redacted_step(before), before))
    return given | {"steps": steps}


def _steps(spec: dict[str, object]) -> Iterator[dict[str, object]]:
    steps = spec["steps"]
    assert isinstance(steps, list), "a definition that was read has a list of steps"
    yield from steps


def _redacted_step(step: dict[str, object]) -> dict[str, object]:
    shown = dict(step)
    url, headers = step.get("url"), step.get("headers")
    if isinstance(url, str):
        shown["url"] = _redacted_url(url)
    if isinstance(headers, dict):
        shown["headers"] = _with_expressions(redact_headers(headers), headers)
    for name in TEMPLATES:
        if name in step:
            shown[name] = _with_expressions(redact_value(step[name]), step[name])
    return shown


def _redacted_url(url: str) -> str:
    """redact_url would take the ?? of a default for a query: expressions are taken out first, then put back if left."""
    expressions = [part for part in parse(url) if isinstance(part, Expression)]
    marks = iter(range(len(expressions)))
    plain = "".join(_MARK.format(next(marks)) if isinstance(part, Expression) else part for part in parse(url))
    shown = redact_url(plain)
    for at, expression in enumerate(expressions):
        shown = shown.replace(_MARK.format(at), redact_text(str(expression)))
    return shown


def _with_expressions(shown: object, stored: object) -> object:
    """What is shown, with the texts in it that hold nothing but expressions."""
    if isinstance(stored, str):
        return stored if _is_harmless(stored) else shown
    if isinstance(shown, dict) and isinstance(stored, dict):
        pairs = zip(shown.items(), stored.values(), strict=False)  # cut where there was too much to show
        return {name: _with_expressions(item, before) for (name, item), before in pairs}
    if isinstance(shown, list) and isinstance(stored, list):
        return [_with_expressions(item, before) for item, before in zip(shown, stored, strict=False)]
    return shown


def _is_harmless(text: str) -> bool:
    if not holds_expression(text):
        return False
    try:
        parts = parse(text)
    except TemplateError:
        return False
    return all(
        bool(part.path) and not part.has_default if isinstance(part, Expression) else part.strip().lower() in _SCHEMES
        for part in parts
    )


def _is_same(given: object, shown: object) -> bool:
    """As JSON: 1 and true, which are equal in Python, are not the same."""
    try:
        return compact(given) == compact(shown)
    except TemplateError:
        return False


def _restore(given: object, shown: object, stored: object) -> object:
    """Where only the beginning was shown, a changed beginning cannot take the place of the whole: what stands for the
    rest becomes the mark of a secret without a value, which a definition is refused for.
    """
    if _is_same(given, shown):
        return stored
    if isinstance(given, dict) and isinstance(shown, dict) and isinstance(stored, dict):
        return {name: _restore_field(name, item, shown, stored) for name, item in given.items()}
    if isinstance(given, list) and isinstance(shown, list) and isinstance(stored, list):
        is_aligned = len(given) == len(shown) == len(stored)  # else nobody can tell which item is which
        if is_aligned:
            return [_restore(*items) for items in zip(given, shown, stored, strict=True)]
        return [*given[:-1], REDACTED] if len(shown) < len(stored) and given[-1:] == [CUT] else given
    if isinstance(given, str) and isinstance(shown, str) and isinstance(stored, str):
        is_cut = shown.endswith(CUT) and not stored.endswith(CUT)
        return REDACTED if is_cut and given.endswith(CUT) else given
    return given


def _restore_field(name: str, given: object, shown: dict[str, object], stored: dict[str, object]) -> object:
    if name == CUT == given and name in shown and name not in stored:
        return REDACTED
    return _restore(given, shown[name], stored[name]) if name in shown and name in stored else given
