// The bar of an operation: live progress, pause, resume, cancel, and what it came to.

import { call } from "./api.js";
import { ask, element } from "./dialog.js";
import { toast } from "./toast.js";

const POLL_MS = 1000;
// One stream for a tab, and none while it is hidden: a browser has six connections to a server for all its tabs.
let streaming = false;

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
  const what = element("span", { class: "hint" }, `${operation.action[0].toUpperCase()}${operation.action.slice(1)}`);
  const said = element("strong");
  const bar = element("progress", { max: Math.max(operation.total, 1), value: operation.done, "aria-label": "Progress" });
  const pause = element("button", { type: "button", class: "small" }, "Pause");
  const cancel = element("button", { type: "button", class: "small" }, "Cancel");
  const close = element("button", { type: "button", class: "small" }, "Close");
  const link = element("a");
  const box = element("div", { class: "bar", "data-operation": operation.id }, what, said, bar, link, pause, cancel, close);
  let hasEnded = false;
  let stream = null;
  let timer = null;
  const maySteer = document.body.dataset.may.split(",").includes("retry");

  function show(now) {
    operation = now;
    const isEnded = now.finished_at !== null;
    said.textContent = apart(isEnded ? now.message : underWay(now));
    bar.max = Math.max(now.total, 1);
    bar.value = now.done;
    bar.hidden = isEnded;
    pause.hidden = cancel.hidden = isEnded || now.state === "cancelled" || !maySteer;
    pause.textContent = now.state === "paused" ? "Resume" : "Pause";
    close.hidden = !isEnded;
    link.href = `/operations/${now.id}${isEnded && now.failed ? "?state=failed" : ""}`;
    link.textContent = isEnded && now.failed ? "Why they failed" : "Details";
    if (isEnded && !hasEnded) {
      hasEnded = true;
      rest();
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
  cancel.addEventListener("click", async () => {
    const answer = await ask({
      title: "Cancel this operation?",
      text: "Nothing more is acted on, ever. What is under way ends and is counted; what was done stays done.",
      confirm: "Cancel operation",
      no: "Keep it going",
      danger: true,
    });
    if (answer !== null) tell("cancel");
  });
  close.addEventListener("click", () => {
    rest();
    box.remove();
    closed();
  });
  place.append(box);

  if (!show(operation)) follow();
  else if (isNew) finish();

  function follow() {
    if (hasEnded || !box.isConnected || document.hidden) return; // it goes on when somebody looks
    if (streaming) return void poll();
    streaming = true;
    stream = new EventSource(`/v1/operations/${operation.id}/stream`);
    for (const name of ["progress", "end"]) {
      stream.addEventListener(name, (event) => {
        if (show(JSON.parse(event.data))) finish();
      });
    }
    stream.addEventListener("error", () => {
      if (stream?.readyState !== EventSource.CLOSED) return;
      rest();
      timer = setTimeout(poll, POLL_MS);
    });
  }

  async function poll() {
    if (hasEnded || !box.isConnected || document.hidden) return;
    try {
      if (show(await call("GET", `/v1/operations/${operation.id}`))) return finish();
    } catch {
      // Asked again, until it is known.
    }
    timer = setTimeout(poll, POLL_MS);
  }

  function rest() {
    clearTimeout(timer);
    if (stream) streaming = false;
    stream?.close();
    stream = null;
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
  addEventListener("pagehide", rest);
  return box;
}
