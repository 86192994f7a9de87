// Buttons that call the API, as their data attributes say:
//   data-path, data-method   the call                    data-body      JSON to send
//   data-ask, data-confirm   a question first            data-because   with a field for the reason
//   data-paces               and one of how fast, for bulk retries
//   data-choices             and one of these, as JSON: see ask() in dialog.js; a value is JSON that goes into the body
//   data-no                  the other answer, where "Cancel" would be ambiguous
//   data-done                what a toast says           data-then      reload | remove | stay | a path to go to
//   data-undo                the call that takes it back, offered in that toast
// The event "acted" bubbles from the button with the answer, for scripts that want to do more; who calls its
// preventDefault does the rest alone.

import { call } from "./api.js";
import { ask } from "./dialog.js";
import { toast, toastAfterwards } from "./toast.js";

// How fast a bulk retry goes, as the API takes it.
export const PACES = {
  label: "How fast?",
  options: [
    ["{}", "All at once"],
    ['{"canary":{"stages":[1,5,25],"max_failure_rate":0.1}}', "In stages of 1, 5 and 25 %; stop where more than 10 % fail"],
    ['{"rate_per_s":100}', "At most 100 per second"],
    ['{"rate_per_s":10}', "At most 10 per second"],
  ],
};

export async function act(button) {
  if (isBusy(button)) return;
  const given = button.dataset;
  let because, choice;
  if (given.ask) {
    const answer = await ask({
      title: given.ask,
      text: given.askText,
      confirm: given.confirm,
      no: given.no,
      danger: button.classList.contains("danger"),
      because: "because" in given,
      choices: "paces" in given ? PACES : given.choices ? JSON.parse(given.choices) : null,
    });
    if (answer === null) return;
    ({ because, choice } = answer);
  }
  let body = given.body ? JSON.parse(given.body) : undefined;
  if (choice) body = { ...(body || {}), ...JSON.parse(choice) };
  if (because) body = { ...(body || {}), because };
  busy(button, true);
  try {
    const answer = await call(given.method || "POST", given.path, body);
    const acted = new CustomEvent("acted", { bubbles: true, cancelable: true, detail: { answer } });
    if (button.dispatchEvent(acted)) follow(button, given);
  } catch (problem) {
    toast(problem.whole || problem.message, "bad");
  } finally {
    busy(button, false);
  }
}

/** Not `disabled`: that would take the keyboard's focus away from it. */
export function busy(button, isBusyNow) {
  if (isBusyNow) button.setAttribute("aria-disabled", "true");
  else button.removeAttribute("aria-disabled");
}

export const isBusy = (button) => button.getAttribute("aria-disabled") === "true";

function follow(button, { then = "reload", done, undo }) {
  if (then === "stay" || then === "remove") {
    if (done) toast(done, "ok", undo && { label: "Undo", run: () => takeBack(undo) });
    if (then === "remove") removeRow(button.closest("tr, li, article"));
    return;
  }
  if (done) toastAfterwards(done);
  if (then === "reload") location.reload();
  else location.assign(then);
}

async function takeBack(path) {
  try {
    await call("POST", path);
    toastAfterwards("Taken back.");
    location.reload();
  } catch (problem) {
    toast(problem.whole || problem.message, "bad");
  }
}

/** Take a row out of a list, with the keyboard's place kept. */
export function removeRow(row) {
  if (!row) return;
  row.dispatchEvent(new CustomEvent("leaving", { bubbles: true }));
  row.remove();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-path]");
  if (button && !event.defaultPrevented) act(button);
});
