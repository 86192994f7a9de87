// Filters above a list: what is chosen there updates the results below. The form keeps its focus and what is being typed.

import { putInPlace } from "./fresh.js";
import { toast } from "./toast.js";

let latest = null;
let shown = location.pathname + location.search;

/** Update the results of `list` whenever its filters change, a link asks for it, or the browser goes back. */
export function filter(list) {
  const form = list.section.querySelector("form[data-filters]");
  form?.addEventListener("change", (event) => event.target.matches("[data-skip]") || form.requestSubmit());
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    const sent = new FormData(form);
    show(list, addressOf(form, sent), { sent });
  });
  form?.addEventListener("focusout", ({ target: field }) => {
    if (field.dataset.sent === field.value && field.tagName === "INPUT") field.value = field.defaultValue;
    delete field.dataset.sent;
  });
  list.section.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-in-place]");
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(list, new URL(link.href), { from: link.dataset.inPlace });
  });
  addEventListener("popstate", () => {
    if (location.pathname + location.search !== shown) show(list, new URL(location.href), { isNew: false });
  });
}

/** An address says only what was chosen. Of two values with one name the last one counts. */
function addressOf(form, sent) {
  const address = new URL(form.getAttribute("action"), location.href); // a field may be named "action"
  address.search = "";
  for (const [name, value] of sent) if (value) address.searchParams.set(name, value);
  const operation = new URL(location.href).searchParams.get("op"); // its bar survives a reload
  if (operation) address.searchParams.set("op", operation);
  return address;
}

/** `sent`: the form as it was sent; without it, all fields follow the page. `from`: the link that has the focus. */
async function show(list, address, { sent = null, from = null, isNew = true }) {
  latest?.abort();
  const mine = (latest = new AbortController());
  const old = list.section.querySelector("[data-list-body]");
  old.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { headers: { accept: "text/html" }, signal: mine.signal });
    const read = new DOMParser().parseFromString(await answer.text(), "text/html");
    const landed = new URL(answer.url);
    const isThisPage = answer.ok && landed.pathname === location.pathname && read.body.dataset.org === document.body.dataset.org;
    // A single thing was found, the session has ended, or the org is another one: that is a page of its own.
    if (!isThisPage) return location.assign(landed);
    shown = landed.pathname + landed.search;
    if (isNew && landed.href !== location.href) history.pushState(null, "", landed);
    putFilters(list.section, read, sent);
    putInPlace(read);
    list.put(read, { isSame: false });
    const find = (what) => list.section.querySelector(what);
    if (from !== null) (find(`[data-in-place="${CSS.escape(from)}"]`) || find("[data-search]"))?.focus();
  } catch (problem) {
    if (problem.name === "AbortError") return;
    toast("The list could not be updated: the server cannot be reached.", "bad");
  } finally {
    if (latest === mine) old.removeAttribute("aria-busy");
  }
}

/** The badges, and each field that nobody has changed since the form was sent. What somebody types in stays as it is
 *  until they go on: then it says what the server made of it.
 */
function putFilters(section, read, sent) {
  for (const part of ["[data-terms]", "[data-carried]"]) {
    section.querySelector(part)?.replaceChildren(...(read.querySelector(part)?.childNodes || []));
  }
  const fresh = read.querySelector("form[data-filters]");
  for (const field of section.querySelectorAll("form[data-filters] :is(input, select)[name]:not([type=hidden])")) {
    const value = fresh?.elements[field.name]?.value ?? "";
    const isUntouched = sent === null || sent.get(field.name) === field.value;
    if (field.tagName === "INPUT") field.defaultValue = value;
    if (isUntouched && field === document.activeElement) field.dataset.sent = field.value;
    else if (isUntouched && field.value !== value) field.value = value;
    if (field.list) field.list.replaceChildren(...(read.getElementById(field.list.id)?.childNodes || []));
  }
}
