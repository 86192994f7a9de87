// The page of one task: a retry by hand is followed to its end, then the page is loaded anew and says how it ended.

import { call } from "./api.js";
import { element } from "./dialog.js";
import { relative, sameMoment } from "./times.js";
import { toast, toastAfterwards } from "./toast.js";

const ASK_EVERY_MS = 300;
const ASK_FOR_MS = 60_000;
const WATCH_EVERY_MS = 3_000;
let isFollowing = false;

document.addEventListener("acted", (event) => {
  if (!event.target.matches("[data-follow]")) return;
  event.preventDefault();
  follow(event.detail.answer);
});

/** `answer`: to what began the retry. It may have ended already: how the entry stood before, the page says. */
export async function follow(answer) {
  if (answer.warning === "no_worker") {
    toastAfterwards("No worker serves its queue. It is tried when one is started.", "warn");
    return location.reload();
  }
  const place = document.querySelector("[data-following]");
  const before = place.dataset.failedAt;
  const say = (text) => {
    place.textContent = text;
    place.hidden = !text;
  };
  for (const button of document.querySelectorAll("main .head button[data-path], main .head button[data-edit]")) button.disabled = true;
  say("Trying now …");
  isFollowing = true;
  const deadline = performance.now() + ASK_FOR_MS;
  try {
    while (performance.now() < deadline) {
      await new Promise((done) => setTimeout(done, ASK_EVERY_MS));
      const entry = await call("GET", `/v1/retry-queue/${answer.id}`);
      const hasFailed = entry.last_retry_at && !sameMoment(entry.last_retry_at, before);
      const isOver = entry.status === "succeeded" || entry.status === "failed" || hasFailed;
      if (isOver && entry.status !== "in_progress") {
        toastAfterwards(...ended(entry));
        return location.reload();
      }
    }
    toastAfterwards("It is still in progress. Is a worker running?", "warn");
    location.reload();
  } catch (problem) {
    isFollowing = false;
    say("");
    toast(`${problem.message} The retry goes on all the same; load the page anew to see how it ended.`, "bad");
  }
}

function ended(entry) {
  if (entry.status === "succeeded") return ["Retry successful. Event removed from queue."];
  const why = `Retry failed: ${entry.error_message}`;
  if (entry.status === "failed") return [`${why} It is among the dead letters.`, "bad"];
  return [entry.next_retry_at ? `${why} Next retry ${relative(Date.parse(entry.next_retry_at))}.` : why, "warn"];
}

// Back to the list as it was left, with its filters and its place, where one came from there.
document.querySelector("[data-back]")?.addEventListener("click", (event) => {
  const list = new URL(event.currentTarget.href);
  const from = document.referrer ? new URL(document.referrer) : null;
  const isList = from?.origin === location.origin && (from.pathname === list.pathname || from.pathname === "/app/admin/dlq");
  if (!isList || history.length < 2 || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  history.back();
});

// A page that somebody reads does not move by itself: that the task has gone on is told, and shown when asked for.
const watched = document.querySelector("[data-watch]");
const watching = watched && setInterval(async () => {
  if (document.hidden || isFollowing) return;
  const { watch, status, retries } = watched.dataset;
  try {
    const entry = await call("GET", `/v1/retry-queue/${watch}`);
    if (isFollowing || (entry.status === status && String(entry.retry_count) === retries)) return;
    clearInterval(watching);
    const button = element("button", { type: "button", class: "small" }, "Show");
    button.addEventListener("click", () => location.reload());
    const place = document.querySelector("[data-following]");
    place.replaceChildren("It has gone on since this page was loaded. ", button);
    place.hidden = false;
  } catch {
    // Asked again; the page itself is as true as it was.
  }
}, WATCH_EVERY_MS);
