// The bar of an operation: live progress, pause, resume, cancel, and what it came to.

import { call } from "./api.js";
import { element } from "./dialog.js";
import { toast } from "./toast.js";

/** The API's words, with thousands apart. */
const apart = (text) => text.replace(/\d{4,}/g, (digits) => Number(digits).toLocaleString("en-US"));

function underWay({ state, progress }) {
  switch (state) {
    case "preparing":
      return "Preparing…";
    case "paused":
      return `Paused. ${progress}`;
    case "cancelled": // what was sent before is still to end
      return `Cancelling. ${progress}`;
    default:
      return progress;
  }
}

/** Show an operation in `place` until it is dismissed. `ended` is called when it ends while it is watched; `isNew`: it was
 *  begun just now, so that its end is news even where it has come already. */
export function watch(place, operation, { isNew = false, ended = () => {}, closed = () => {} } = {}) {
  const said = element("strong", { role: "status" });
  const bar = element("progress", { max: Math.max(operation.total, 1), value: operation.done, "aria-label": "Progress" });
  const pause = element("button", { type: "button", class: "small" }, "Pause");
  const cancel = element("button", { type: "button", class: "small" }, "Cancel");
  const close = element("button", { type: "button", class: "small" }, "Close");
  const link = element("a", { href: `/operations/${operation.id}` }, "Details");
  const box = element("div", { class: "bar", "data-operation": operation.id }, said, bar, link, pause, cancel, close);
  let hasEnded = false;
  let stream = null;

  function show(now) {
    operation = now;
    const isEnded = now.finished_at !== null;
    said.textContent = apart(isEnded ? now.message : underWay(now));
    bar.max = Math.max(now.total, 1);
    bar.value = now.done;
    bar.hidden = isEnded;
    pause.hidden = cancel.hidden = isEnded || now.state === "cancelled";
    pause.textContent = now.state === "paused" ? "Resume" : "Pause";
    close.hidden = !isEnded;
    if (isEnded && !hasEnded) {
      hasEnded = true;
      stream?.close();
      return true;
    }
    return false;
  }

  async function tell(what) {
    try {
      if (show(await call("POST", `/v1/operations/${operation.id}/${what}`))) finish();
    } catch (problem) {
      toast(problem.message, "bad");
    }
  }

  function finish() {
    toast(apart(operation.message), operation.failed ? "warn" : "ok");
    ended(operation);
  }

  pause.addEventListener("click", () => tell(operation.state === "paused" ? "resume" : "pause"));
  cancel.addEventListener("click", () => tell("cancel"));
  close.addEventListener("click", () => {
    stream?.close();
    box.remove();
    closed();
  });
  place.append(box);

  if (!show(operation)) follow();
  else if (isNew) finish();

  function follow() {
    stream = new EventSource(`/v1/operations/${operation.id}/stream`);
    for (const name of ["progress", "end"]) {
      stream.addEventListener(name, (event) => {
        if (show(JSON.parse(event.data))) finish();
      });
    }
    stream.addEventListener("error", () => {
      if (stream.readyState === EventSource.CLOSED && !hasEnded) setTimeout(poll, 2000);
    });
  }

  async function poll() {
    if (hasEnded || !box.isConnected) return;
    try {
      if (show(await call("GET", `/v1/operations/${operation.id}`))) finish();
      else setTimeout(poll, 2000);
    } catch {
      setTimeout(poll, 5000);
    }
  }
  return box;
}
