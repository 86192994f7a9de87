// Forms that send JSON to the API: <form data-api data-method="POST" data-path="/v1/…">. Each named field is a member of
// the body; data-type says what it becomes: number, percent, seconds ("5 min"), list (one entry per line or comma), spans
// (a list of seconds), rules (a list of words and numbers), headers (a line "name: value" each), json, bool (of a check
// box). An empty field is left out, or sent as the JSON of its data-empty. With data-changes on the form, fields that were
// not changed are left out, too. What the API refuses is shown at its field.
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

const SECONDS = { ms: 0.001, s: 1, "": 1, m: 60, min: 60, h: 3600, d: 86400 };

/** "5 min" as seconds. web/policy_words.py writes them so. */
function seconds(name, text) {
  const [, count, unit] = text.trim().match(/^(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(ms|s|m|min|h|d|)$/i) || [];
  if (count === undefined) throw new BadField(name, `“${text.trim()}” is no time: write 30 s, 5 min, 2 h or 7 d`);
  return Number(count) * SECONDS[unit.toLowerCase()];
}

function entries(text) {
  return text.split(/[\n,]/).map((part) => part.trim()).filter(Boolean);
}

function number(name, text) {
  if (Number.isNaN(Number(text))) throw new BadField(name, "must be a number");
  return Number(text);
}

function headers(name, text) {
  const found = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const colon = line.indexOf(":");
    if (colon < 1) throw new BadField(name, `“${line.trim()}” is no header: write Name: value`);
    found[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return found;
}

function isChanged(field) {
  const isTicked = field.type === "checkbox" || field.type === "radio";
  return isTicked ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
}

function valueOf(field) {
  const text = field.value;
  switch (field.dataset.type) {
    case "bool":
      return field.checked;
    case "number":
      return number(field.name, text);
    case "percent":
      return number(field.name, text) / 100;
    case "seconds":
      return seconds(field.name, text);
    case "spans":
      return entries(text).map((part) => seconds(field.name, part));
    case "list":
      return entries(text);
    case "rules":
      return entries(text).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
    case "headers":
      return headers(field.name, text);
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
    if ("changes" in form.dataset && !isChanged(field)) continue;
    let value;
    if (field.dataset.type !== "bool" && field.value.trim() === "") {
      if (!field.dataset.empty) continue;
      value = JSON.parse(field.dataset.empty);
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
  const found = name && form.elements[name];
  const field = found instanceof RadioNodeList ? [...found].find((each) => !each.disabled) : found;
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
    const parts = error.loc.filter((part, at) => at > 0 || (part !== "body" && part !== "path"));
    // The field, or the nearest one around it: of a list's entry, the list.
    const names = parts.map((_, left) => parts.slice(0, parts.length - left).join("."));
    say(form, names.find((each) => form.elements[each]) || parts.join("."), error.msg);
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
