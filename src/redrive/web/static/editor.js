// Edit the payload of a dead letter, see what changes, replay it. The text goes to the server as it stands in the editor:
// it is never parsed and written again, which would harm long numbers.

import { call } from "./api.js";
import { follow } from "./detail.js";
import { element } from "./dialog.js";
import { fault } from "./json_text.js";
import { lineDiff } from "./line_diff.js";
import { toastAfterwards } from "./toast.js";

const dialog = document.querySelector("[data-editor]");
const find = (selector) => dialog.querySelector(selector);
const box = find("textarea");
const said = find("[data-said]");
const error = find("[data-error]");
let base = null; // as it would be sent without an edit
let original = null; // the event's own, once it was asked for

document.querySelector("button[data-edit]")?.addEventListener("click", async () => {
  if (base === null) await load();
  step("edit");
  dialog.showModal();
  box.focus();
});

async function load(query = "") {
  error.textContent = "";
  try {
    const answer = await fetch(dialog.dataset.text + query);
    // Whoever is not signed in any more is sent to the sign-in page, which fetch follows.
    if (answer.redirected) throw new Error("Your session has ended: sign in again in another tab.");
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    box.value = await answer.text();
    // As the box has it, with its own ends of lines: else nothing would ever be unchanged.
    if (query) original = box.value;
    else base = box.value;
    check();
  } catch (problem) {
    find("[data-review]").disabled = base === null;
    error.textContent = `The payload could not be loaded. ${problem.message} Close this and try again.`;
  }
}

function check() {
  const wrong = fault(box.value);
  said.textContent = wrong ? `Line ${wrong.line}, column ${wrong.column}: ${wrong.message}.` : box.value === base ? "Valid JSON, nothing changed." : "Valid JSON.";
  said.classList.toggle("bad", Boolean(wrong));
  box.setAttribute("aria-invalid", String(Boolean(wrong)));
  find("[data-review]").disabled = Boolean(wrong) || base === null;
  return wrong;
}

function step(name) {
  for (const part of dialog.querySelectorAll("[data-step]")) part.hidden = part.dataset.step !== name;
  const isReview = name === "review";
  find("[data-review]").hidden = isReview;
  find("[data-replay]").hidden = find("[data-back-to-edit]").hidden = !isReview;
}

function review() {
  if (check()) return;
  error.textContent = "";
  const lines = lineDiff(base, box.value);
  const classes = { "+": "added", "-": "removed", "…": "skipped" };
  find("[data-diff]").replaceChildren(
    ...(lines.length ? lines.map(([mark, line]) => element("span", { class: classes[mark] }, `${mark} ${line}`)) : ["Nothing: it is sent as it stands."]),
  );
  step("review");
  find("[data-replay]").focus();
}

async function replay() {
  const now = find("#editor-now").checked;
  const because = find("#editor-because").value.trim();
  const isOriginal = box.value === original && box.value !== base;
  const order = dialog.querySelector("input[name=order]:checked")?.value;
  const rest = JSON.stringify({ now, ...("again" in dialog.dataset ? { again: true } : {}), ...(order ? { order } : {}), ...(because ? { because } : {}), ...(isOriginal ? { discard_edit: true } : {}) });
  const body = isOriginal || box.value === base ? rest : `{"payload": ${box.value}, ${rest.slice(1)}`;
  const button = find("[data-replay]");
  button.disabled = true;
  try {
    const entry = await call("POST", dialog.dataset.path, body);
    dialog.close();
    if (now && !order) return follow(entry); // in a lane it is tried when its turn comes
    toastAfterwards("Replay scheduled. The event is back in the retry queue.");
    location.reload();
  } catch (problem) {
    error.textContent = problem.whole || problem.message;
  } finally {
    button.disabled = false;
  }
}

box.addEventListener("input", check);
find("[data-review]").addEventListener("click", review);
find("[data-replay]").addEventListener("click", replay);
find("[data-back-to-edit]").addEventListener("click", () => {
  step("edit");
  box.focus();
});
find("[data-cancel]").addEventListener("click", () => dialog.close());
find("[data-original]")?.addEventListener("click", () => load("?original"));
find("[data-undo]").addEventListener("click", () => {
  box.value = base ?? "";
  check();
  box.focus();
});
// Enter in the reason must not close the dialog as a form would.
find("form").addEventListener("submit", (event) => event.preventDefault());
