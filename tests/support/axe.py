"""Is a page accessible, as far as a program can tell? Asks axe-core, inside the page.

    await assert_accessible(page)

axe-core comes with axe-playwright-python, whose one file of JavaScript is all that is used of it. It is handed to the
browser's debugger, not to the page: the content security policy stays as it is.
"""

from functools import cache
from importlib import resources
from typing import Any

from playwright.async_api import Page

MAX_NODES_SHOWN = 5
SERIOUS = ("serious", "critical")
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")

CONTRAST = "color-contrast"
# Of every text and every link where and how it is drawn: these take longer than all others together, and on a very long
# page many seconds.
SLOW = (CONTRAST, "link-in-text-block", "target-size")

# Of rows and items that are made of the same elements, classes and states as one before them, with texts of their own:
# they are drawn alike (styles are in style sheets alone, says the content security policy). Whether what is drawn can
# be read is asked of the first of each kind; of the others everything else.
ALIKE = "[data-drawn-alike]"
_MARK_ALIKE = """
() => {
  const tells = /^(class|aria-(?!label|controls|describedby|labelledby).*)$/;  // of others, whether they are there
  const part = (one) => one.tagName + [...one.attributes].map(
    ({name, value}) => ` ${name}${tells.test(name) ? `=${value}` : ""}`).join("");
  for (const list of document.querySelectorAll("tbody, ul, ol")) {
    const seen = new Set();
    for (const one of list.children) {
      one.removeAttribute("data-drawn-alike");
      const shape = [one, ...one.querySelectorAll("*")].map(part).join("|");
      one.toggleAttribute("data-drawn-alike", seen.has(shape));
      seen.add(shape);
    }
  }
}
"""

_RUN = """
async ([place, options]) => {
  const found = await axe.run(place || document, {...options, resultTypes: ["violations"], preload: false});
  return found.violations;
}
"""


@cache
def _axe() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page, *, slow_in: str | None = None) -> list[dict[str, Any]]:
    """Everything that axe finds, serious or not. `slow_in`: keep the SLOW rules to what this selector finds."""
    await _inject(page)
    rules: dict[str, Any] = {"runOnly": {"type": "tag", "values": list(RULES)}}
    found = await _ask(page, None, {**rules, "rules": {rule: {"enabled": False} for rule in SLOW}})
    return found + await _ask(page, _first_of_each_kind(slow_in, None), {"runOnly": list(SLOW)})


async def assert_accessible(page: Page, *, slow_in: str | None = None) -> None:
    """No violation that keeps people out: none that axe calls serious or critical."""
    _assert_none_serious(page, await violations(page, slow_in=slow_in))


async def assert_contrast(page: Page, *, within: str | None = None, but: str | None = None) -> None:
    """Of colours, and nothing else: for a page that was asked about the rest before. `but`: what was asked too."""
    await _inject(page)
    _assert_none_serious(page, await _ask(page, _first_of_each_kind(within, but), {"runOnly": [CONTRAST]}))


def _assert_none_serious(page: Page, found: list[dict[str, Any]]) -> None:
    serious = [violation for violation in found if violation["impact"] in SERIOUS]
    assert not serious, f"{page.url} is not accessible:\n" + "\n".join(_told(violation) for violation in serious)


def _first_of_each_kind(within: str | None, but: str | None) -> dict[str, list[str]]:
    return {"include": [within or "html"], "exclude": [ALIKE, *([but] if but else [])]}


async def _inject(page: Page) -> None:
    await page.evaluate(_MARK_ALIKE)
    if not await page.evaluate("typeof window.axe === 'object'"):
        await page.evaluate(f"() => {{ {_axe()}; }}")


async def _ask(page: Page, place: str | dict[str, list[str]] | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate(_RUN, [place, options])
    return found


def _told(violation: dict[str, Any]) -> str:
    lines = [f"{violation['id']} ({violation['impact']}): {violation['help']}"]
    for node in violation["nodes"][:MAX_NODES_SHOWN]:
        why = " ".join(node["failureSummary"].split())
        lines.append(f"    {' '.join(map(str, node['target']))}\n      {why}")
    if (more := len(violation["nodes"]) - MAX_NODES_SHOWN) > 0:
        lines.append(f"    and {more} more")
    return "\n".join(lines)
