// One run, live while it is under way: its steps are put in place as they change. What somebody has unfolded stays so.

import { putInPlace, thisPageNow } from "./fresh.js";
import { refresh as refreshTimes } from "./times.js";
import "./replay.js";

const AT_MOST_EVERY_MS = 1000;
const ASK_AFTER_MS = 2000; // at first; twice as long each time that nothing has happened
const ASK_AT_LATEST_MS = 16_000;
let askAfter = ASK_AFTER_MS;
let waiting = null; // for the next look
let asking = null; // by itself
let isLooking = false;
let isWanted = false; // something happened while the page was being looked at

const isActive = () => "active" in document.getElementById("run-status").dataset;

async function fresh() {
  clearTimeout(asking);
  waiting = null;
  isLooking = true;
  try {
    const read = await thisPageNow();
    if (read) askAfter = put(read) ? ASK_AFTER_MS : Math.min(askAfter * 2, ASK_AT_LATEST_MS);
  } catch {
    // Asked again; the page itself is as true as it was.
  } finally {
    isLooking = false;
    if (isWanted) soon();
    else askLater();
    isWanted = false;
  }
}

function put(read) {
  for (const unfolded of document.querySelectorAll("[data-live] details[id][open]")) {
    read.getElementById(unfolded.id)?.setAttribute("open", "");
  }
  // Said at the same moment, so that a part in which nothing but time has gone on is left alone.
  refreshTimes();
  refreshTimes(read);
  return putInPlace(read);
}

function soon(after = AT_MOST_EVERY_MS) {
  if (isLooking) isWanted = true;
  else waiting ??= setTimeout(fresh, after);
}

/** Not everything that happens to a run moves the numbers of the org: a retry that fails again does not. */
function askLater() {
  clearTimeout(asking);
  if (isActive() && !document.hidden) asking = setTimeout(() => soon(0), askAfter);
}

document.addEventListener("counts", () => isActive() && soon());
document.addEventListener("acted", () => {
  askAfter = ASK_AFTER_MS;
  soon(0);
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(asking) : soon(0)));
askLater();

// Back to the list as it was left, with its filters and its place, where one came from there.
document.querySelector("main").addEventListener("click", (event) => {
  const link = event.target.closest("[data-back]");
  const from = document.referrer ? new URL(document.referrer) : null;
  if (!link || event.ctrlKey || event.metaKey || history.length < 2) return;
  if (from?.origin !== location.origin || from.pathname !== new URL(link.href).pathname) return;
  event.preventDefault();
  history.back();
});
