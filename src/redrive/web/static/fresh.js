// Pages made fresh without moving: what the server would say now, put in place of what it said.

import { refresh as refreshTimes } from "./times.js";

/** This page as it is now; null where it cannot be had. In another org by now, it is loaded as a whole. */
export async function thisPageNow() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return null;
  const read = new DOMParser().parseFromString(await answer.text(), "text/html");
  // Signed out, or switched to another org in another tab: what came is no part of this page.
  if (answer.redirected || read.body.dataset.org !== document.body.dataset.org) {
    location.reload();
    return null;
  }
  return read;
}

/** Replace each [data-live] part, found by its id, that has changed. */
export async function freshen() {
  const read = await thisPageNow();
  if (read) putInPlace(read);
}

/** Whether anything has changed. */
export function putInPlace(read) {
  let hasChanged = false;
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const fresh = read.getElementById(old.id);
    if (!fresh || fresh.outerHTML === old.outerHTML) continue;
    replace(old, fresh);
    hasChanged = true;
  }
  return hasChanged;
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
