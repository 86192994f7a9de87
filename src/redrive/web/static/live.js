// Numbers that stay true: one stream of server-sent events while the page is visible. Others listen to "counts".

import { call } from "./api.js";
import { toast } from "./toast.js";

let stream = null;
let latest = null;

/** The numbers that came last, for scripts that begin to listen later; null: none yet. */
export const latestCounts = () => latest;

/** Whether what is shown is live; a page that says so says also when it is not. */
function mark(isLive) {
  if (isLive) document.body.dataset.live = "true";
  else delete document.body.dataset.live;
  const place = document.querySelector("[data-live-mark]");
  if (place) place.textContent = isLive ? "Live" : `Not live since ${new Date().toTimeString().slice(0, 5)}`;
}

function open() {
  if (stream || document.hidden) return;
  stream = new EventSource(`/live?org=${document.body.dataset.org}`);
  stream.addEventListener("counts", (event) => {
    const counts = (latest = JSON.parse(event.data));
    for (const place of document.querySelectorAll("[data-count]")) {
      const count = counts[place.dataset.count];
      if (count !== undefined) place.textContent = count ? count.toLocaleString("en-US") : "";
    }
    mark(true);
    document.dispatchEvent(new CustomEvent("counts", { detail: counts }));
  });
  stream.addEventListener("error", () => {
    if (document.body.dataset.live) mark(false);
    // A browser goes on trying by itself, but not after an answer other than a stream.
    if (stream?.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(tryAgain, 10000);
    }
  });
}

async function tryAgain() {
  try {
    const { org } = await call("GET", "/v1/session");
    if (org.id !== document.body.dataset.org) {
      return toast("You have switched to another org in another tab. Reload this page to go on in that one.", "warn");
    }
  } catch (problem) {
    if (problem.status === 401) return toast("You are signed out. Sign in again to go on; what you see may be old.", "bad");
  }
  open();
}

function close() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
// A page that is kept for "back" must not keep its connection; there are only six for all tabs.
addEventListener("pagehide", close);
addEventListener("pageshow", open);
open();
