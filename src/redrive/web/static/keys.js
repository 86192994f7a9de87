// The keyboard: one table of shortcuts, filled by the modules that know what they do, shown by "?".
//
// Above a list with filters a key that was meant for a field must not do anything: there the page's own keys act only
// while the focus is on the list. Searching, the help and the way to other pages work wherever nothing is typed.

import { element } from "./dialog.js";

const bound = new Map();
let prefix = "";
let prefixEnds = 0;

const SWITCH = "redrive-keys";
const REPEATING = new Set(["j", "k"]); // others, held down, would act on row after row

/** A key, or two after another ("g d"). `group` heads it in the help; `where` says of what has the focus whether it acts. */
export function bind(keys, description, act, { group = "This page", where = () => true } = {}) {
  bound.set(keys, { description, act, group, where });
}

/** Whether this is a list, or anything in one. */
export const isOnList = (target) => Boolean(target.closest?.("table[data-list]"));

function isTyping(target) {
  return target.matches?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && isTyping(event.target) && !event.target.closest("dialog")) {
    event.preventDefault(); // what was typed stays
    event.target.blur();
    return bound.get("Escape")?.act(event);
  }
  if (isTyping(event.target) || document.querySelector("dialog[open]") || localStorage.getItem(SWITCH) === "off") return;
  if (event.repeat && !REPEATING.has(event.key)) return;
  // What has the focus takes Enter itself.
  if (event.key === "Enter" && event.target.closest("a, button, summary, input")) return;
  const inTime = event.timeStamp < prefixEnds;
  const keys = inTime && prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  const shortcut = bound.get(keys);
  if (shortcut) {
    if (!shortcut.where(event.target)) return;
    event.preventDefault();
    shortcut.act(event);
  } else if ([...bound.keys()].some((each) => each.startsWith(`${event.key} `))) {
    prefix = event.key;
    prefixEnds = event.timeStamp + 1500;
  }
});

export function help() {
  const groups = new Map();
  for (const [keys, { description, group }] of bound) {
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([keys, description]);
  }
  const lists = [...groups].map(([group, entries]) =>
    element("section", {}, element("h3", {}, group), element("dl", { class: "keys" },
      ...entries.flatMap(([keys, description]) => [
        element("dt", {}, ...keys.split(" ").map((key) => element("kbd", {}, key === " " ? "space" : key))),
        element("dd", {}, description),
      ]))));
  const switchedOn = element("input", { type: "checkbox" });
  const dialog = element("dialog", { "aria-labelledby": "help-title", class: "help-dialog" },
    element("form", { method: "dialog" }, element("h2", { id: "help-title" }, "Keyboard shortcuts"), ...lists,
      element("p", {}, element("label", {}, switchedOn, " Use these keys")),
      element("p", { class: "dialog-actions" }, element("button", { class: "primary" }, "Close"))));
  switchedOn.checked = localStorage.getItem(SWITCH) !== "off";
  switchedOn.addEventListener("change", () => localStorage.setItem(SWITCH, switchedOn.checked ? "on" : "off"));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

bind("?", "This help", help, { group: "Everywhere" });
bind("/", "Search", () => document.querySelector("[data-search]")?.focus(), { group: "Everywhere" });
for (const link of document.querySelectorAll("nav a[data-key]")) {
  const name = link.firstChild.textContent.trim();
  bind(`g ${link.dataset.key}`, name, () => location.assign(link.href), { group: "Go to" });
}
const where = document.querySelector("form[data-filters]") ? isOnList : undefined;
for (const { dataset, textContent } of document.querySelectorAll("main [data-key]")) {
  // Looked up when it is pressed: what stands in a list is replaced.
  bind(dataset.key, textContent.trim(), () => document.querySelector(`main [data-key="${dataset.key}"]`)?.click(), { where });
}
document.querySelector("[data-help]")?.addEventListener("click", help);
