// Forms that send JSON to the API: <form data-api data-method="POST" data-path="/v1/…">. Each named field is a member of
// the body; data-type says what it becomes (number, list: one entry per line or comma, json, bool for check boxes); an
// empty field is left out, or sent as null with data-empty="null". What the API refuses is shown at its field.
//   data-done, data-then     as for buttons, see acts.js; the event "sent" bubbles with the answer.

import { call } from "./api.js";
import { element } from "./dialog.js";
import { toast, toastAfterwards } from "./toast.js";

export class BadField extends Error {
  constructor(name, message) {
    super(message);
    this.field = name;
  }
}

function valueOf(field) {
  const text = field.value;
  switch (field.dataset.type) {
    case "bool":
      return field.checked;
    case "number":
      if (Number.isNaN(Number(text))) throw new BadField(field.name, "must be a number");
      return Number(text);
    case "list":
      return text.split(/[\n,]/).map((part) => part.trim()).filter(Boolean);
    case "json":
      try {
        return JSON.parse(text);
      } catch (error) {
        throw new BadField(field.name, `is no JSON: ${error.message}`);
      }
    default:
      return text;
  }
}

/** The form's fields as a body. A name with dots ("retention.delivered_s") is a member of a member. */
export function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "radio" && !field.checked) || "skip" in field.dataset) continue;
    let value;
    if (field.dataset.type !== "bool" && field.value.trim() === "") {
      if (field.dataset.empty !== "null") continue;
      value = null;
    } else {
      value = valueOf(field);
    }
    const path = field.name.split(".");
    let place = body;
    for (const part of path.slice(0, -1)) place = place[part] ??= {};
    place[path.at(-1)] = value;
  }
  return body;
}

function clear(form) {
  form.querySelectorAll(".field-error").forEach((said) => said.remove());
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
}

function say(form, name, message) {
  const field = name && form.elements[name];
  const said = element("span", { class: "field-error", role: "alert" }, message);
  if (field && field.closest) {
    field.setAttribute("aria-invalid", "true");
    (field.closest(".field") || field.parentElement).append(said);
    field.focus();
  } else {
    form.append(element("p", { class: "field-error", role: "alert" }, name ? `${name}: ${message}` : message));
  }
}

/** Show a problem at the fields it speaks of. */
export function show(form, problem) {
  clear(form);
  if (problem instanceof BadField) return say(form, problem.field, problem.message);
  const errors = problem.errors || [];
  for (const error of errors) {
    const parts = error.loc.filter((part) => part !== "body");
    const name = [parts.join("."), String(parts[0] ?? "")].find((each) => form.elements[each]);
    say(form, name || parts.join("."), error.msg);
  }
  if (!errors.length) say(form, null, problem.message);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-api]")) return;
  event.preventDefault();
  clear(form);
  const button = form.querySelector("button:not([type=button])");
  if (button) button.disabled = true;
  try {
    const answer = await call(form.dataset.method || "POST", form.dataset.path, bodyOf(form));
    const sent = new CustomEvent("sent", { bubbles: true, cancelable: true, detail: { answer } });
    if (!form.dispatchEvent(sent)) return;
    const { then = "reload", done } = form.dataset;
    if (then === "stay") {
      if (done) toast(done);
      return;
    }
    if (done) toastAfterwards(done);
    if (then === "reload") location.reload();
    else location.assign(then);
  } catch (problem) {
    show(form, problem);
  } finally {
    if (button) button.disabled = false;
  }
});

// Filters of lists: a choice takes effect at once.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-filters]");
  if (form && !event.target.matches("[data-skip]")) form.requestSubmit();
});
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-filters]");
  if (!form) return;
  // An address says only what was chosen.
  for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
});
addEventListener("pageshow", () => {
  document.querySelectorAll("form[data-filters] :disabled").forEach((field) => (field.disabled = false));
});
