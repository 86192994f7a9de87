// A page made fresh without moving: what the server would say now, put in place of what it said, part by part.

import { refresh as refreshTimes } from "./times.js";

/** Fetch this page again and replace each [data-live] part, found by its id, that has changed. */
export async function freshen() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const read = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const fresh = read.getElementById(old.id);
    if (fresh && fresh.outerHTML !== old.outerHTML) replace(old, fresh);
  }
}

function replace(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const made = document.importNode(fresh, true);
  old.replaceWith(made);
  refreshTimes(made);
  if (!focused) return;
  // Whoever is there by keyboard stays: at the same link, or at the button that took the old one's place.
  const same = focused.href && [...made.querySelectorAll("a")].find((link) => link.href === focused.href);
  (same || made.querySelector("button, a") || document.querySelector("main")).focus();
}
