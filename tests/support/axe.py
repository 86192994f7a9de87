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
SCROLLED = "scrollable-region-focusable"  # the only other one that depends on how much fits

# Of rows and items that are made of the same elements, classes and states as one before them, with texts of their own,
# and that are drawn alike, what is slow is asked of the first; everything else of all.
ALIKE = "[data-drawn-alike]"

# Of texts that stand in the same colour, size and weight on the same grounds contrast is asked of the first and of the
# last, in case something lies over one of them. Of one letter alone axe does not judge, nor of what is disabled: those
# are no examples of the others.
EXAMPLE = "[data-drawn-example]"
_MARK = """
([within, but]) => {
  const tells = /^(class|aria-(?!label|controls|describedby|labelledby).*)$/;  // of others, whether they are there
  const part = (one) => one.tagName + [...one.attributes].map(
    ({name, value}) => ` ${name}${tells.test(name) ? `=${value}` : ""}`).join("");
  for (const name of ["data-drawn-alike", "data-drawn-example"])
    for (const one of document.querySelectorAll(`[${name}]`)) one.removeAttribute(name);
  for (const list of document.querySelectorAll("tbody, ul, ol")) {
    const seen = new Set();
    for (const one of list.children) {
      const shape = [one, ...one.querySelectorAll("*")].map(part).join("|");
      one.toggleAttribute("data-drawn-alike", seen.has(shape));
      seen.add(shape);
    }
  }

  const plain = ["rgba(0, 0, 0, 0)", "none", "1", "none", "normal", "static"].join();
  const looks = new Map();
  const walk = (one, under, inside) => {
    if (but && one.matches(but)) return;
    const style = getComputedStyle(one);
    if (style.display === "none") return;
    const ground = [style.backgroundColor, style.backgroundImage, style.opacity, style.filter, style.mixBlendMode,
                    style.position].join();
    const on = ground === plain ? under : `${under}|${ground}`;
    const isWithin = inside || one.matches(within);
    if (isWithin) {
      const texts = [...one.childNodes].filter((child) => child.nodeType === 3 && child.data.trim());
      const text = texts.map((child) => child.data.trim()).join(" ");
      const box = one.getBoundingClientRect();
      const isSeen = style.display === "contents" ? style.visibility === "visible" :
        box.width > 1 && box.height > 1 && one.checkVisibility({visibilityProperty: true});
      if (isSeen && (text || one.matches("input, select, textarea, button"))) {
        const off = ":disabled, [aria-disabled=true]";
        const look = [on, one.tagName, one.className.baseVal ?? one.className, style.color, style.fontSize,
                      style.fontWeight, style.textShadow, text.length === 1, one.closest(off) !== null,
                      one.closest("label")?.control?.matches(off)].join("|");
        looks.set(look, [...(looks.get(look) ?? []), one]);
      }
    }
    for (const child of one.children) walk(child, on, isWithin);
  };
  walk(document.documentElement, "", false);
  for (const found of looks.values()) {
    const apart = found.filter((one) => !one.closest("[data-drawn-alike]"));
    if (!apart.length) found[0].closest("[data-drawn-alike]").removeAttribute("data-drawn-alike");
    for (const one of [apart[0] ?? found[0], ...apart.slice(-1)]) one.toggleAttribute("data-drawn-example", true);
  }
}
"""

# What was there when structure was asked about, with its attributes: what is so still need not be asked again. Of what
# is new in a table, a list or a thing with a role, the nearest of these is asked: they are judged by what is in them.
_REMEMBER = """
() => {
  const was = window.askedByAxe ?? new WeakMap();
  const looks = (one) => [...one.attributes].filter(({name}) => !name.startsWith("data-drawn-"))
    .map(({name, value}) => `${name}=${value}`).join("|");
  const isShown = (one) => one.checkVisibility({visibilityProperty: true}) ||
    (getComputedStyle(one).display === "contents" && isShown(one.parentElement));
  const fresh = new Set();
  for (const one of document.querySelectorAll("body *")) {
    if (!isShown(one)) continue;
    if (was.get(one) !== looks(one)) fresh.add(one.closest("table, ul, ol, dl, [role]") ?? one);
    was.set(one, looks(one));
  }
  window.askedByAxe = was;
  window.freshForAxe = [...fresh].filter((one) => {
    for (let over = one.parentElement; over; over = over.parentElement) if (fresh.has(over)) return false;
    return true;
  });
  return fresh.size;
}
"""

_EXAMPLES = f"{{rules: [{{id: '{CONTRAST}', selector: '{EXAMPLE}'}}]}}"

_RUN = """
async ([place, options]) => {
  const where = place === "fresh" ? {include: window.freshForAxe} : place || document;
  const found = await axe.run(where, {...options, resultTypes: ["violations"], preload: false});
  return found.violations;
}
"""


@cache
def _axe() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page, *, slow_in: str | None = None, again: bool = False) -> list[dict[str, Any]]:
    """Everything that axe finds, serious or not. `slow_in`: keep the SLOW rules to what this selector finds. `again`:
    the page was asked at another width or in other colours; what neither matters for is asked of what is new.
    """
    await _prepare(page, slow_in, None)
    slow = (*SLOW, SCROLLED) if again else SLOW
    rules = {"runOnly": {"type": "tag", "values": list(RULES)}, "rules": {rule: {"enabled": False} for rule in slow}}
    news = await page.evaluate(_REMEMBER)
    found = []
    if not again:
        found += await _ask(page, None, rules)
    elif news:
        found += await _ask(page, "fresh", rules)
    return found + await _ask(page, _first_of_each_kind(slow_in, None), {"runOnly": list(slow)})


async def assert_accessible(page: Page, *, slow_in: str | None = None, again: bool = False) -> None:
    """No violation that keeps people out: none that axe calls serious or critical."""
    _assert_none_serious(page, await violations(page, slow_in=slow_in, again=again))


async def assert_contrast(page: Page, *, within: str | None = None, but: str | None = None) -> None:
    """Of colours, and nothing else: for a page that was asked about the rest before. `but`: what was asked too."""
    await _prepare(page, within, but)
    _assert_none_serious(page, await _ask(page, _first_of_each_kind(within, but), {"runOnly": [CONTRAST]}))


def _assert_none_serious(page: Page, found: list[dict[str, Any]]) -> None:
    serious = [violation for violation in found if violation["impact"] in SERIOUS]
    assert not serious, f"{page.url} is not accessible:\n" + "\n".join(_told(violation) for violation in serious)


def _first_of_each_kind(within: str | None, but: str | None) -> dict[str, list[str]]:
    return {"include": [within or "html"], "exclude": [ALIKE, *([but] if but else [])]}


async def _prepare(page: Page, within: str | None, but: str | None) -> None:
    await page.evaluate(_MARK, [within or "html", but])
    if not await page.evaluate("typeof window.axe === 'object'"):
        await page.evaluate(f"() => {{ {_axe()}; axe.configure({_EXAMPLES}); }}")


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
