// One operation, live: its numbers as they come, the rest of the page at most once a second.

import { freshen } from "./fresh.js";
import { toast } from "./toast.js";

const FRESH_EVERY_MS = 1000;
const ASK_EVERY_MS = 3000;
const course = () => document.getElementById("operation-course");
let stream = null;
let waiting = null;

function freshSoon(after = FRESH_EVERY_MS) {
  waiting ??= setTimeout(async () => {
    try {
      await freshen();
    } catch {
      // The next news brings another try.
    } finally {
      waiting = null;
    }
    if (!("active" in course().dataset)) close();
  }, after);
}

function show(operation) {
  const bar = course().querySelector("progress");
  bar.max = Math.max(operation.total, 1);
  bar.value = operation.done;
  if (operation.state !== "preparing") course().querySelector("[data-progress]").textContent = operation.message || operation.progress;
}

function open() {
  if (stream || document.hidden || !("active" in course().dataset)) return;
  stream = new EventSource(`/v1/operations/${course().dataset.operationId}/stream`);
  stream.addEventListener("progress", (event) => {
    show(JSON.parse(event.data));
    freshSoon();
  });
  stream.addEventListener("end", (event) => {
    const operation = JSON.parse(event.data);
    close();
    show(operation);
    toast(operation.message, operation.failed ? "warn" : "ok");
    freshSoon(0);
  });
  stream.addEventListener("error", () => {
    // Refused, as where too many watch: then the page itself is asked for again.
    if (stream?.readyState !== EventSource.CLOSED) return;
    stream = null;
    setTimeout(() => {
      freshSoon(0);
      open();
    }, ASK_EVERY_MS);
  });
}

function close() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
document.addEventListener("acted", (event) => {
  event.preventDefault();
  freshSoon(0);
});
open();
