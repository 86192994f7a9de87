// The editor of a policy: fields that belong to its kind, the schedule drawn anew as one types, and saving.

import { call } from "./api.js";
import { BadField, bodyOf, show } from "./forms.js";
import { toastAfterwards } from "./toast.js";

const WAIT_MS = 250; // after the last key
const SCHEDULE = ["kind", "delays_s", "base_s", "factor", "cap_s", "jitter", "max_retries", "max_age_s"];
const form = document.querySelector("[data-policy]");
const place = document.querySelector("[data-schedule]");

/** Fields of another kind are out of the way, and out of the body. */
function showKind() {
  const kind = form.elements.kind.value;
  for (const part of form.querySelectorAll("[data-kinds]")) {
    part.hidden = !part.dataset.kinds.split(" ").includes(kind);
    for (const field of part.querySelectorAll("input")) field.disabled = part.hidden;
  }
}

/** The policy as PUT takes it: the classes that are ticked are retried, the others are not. */
function policy() {
  const { category, classify = {}, ...body } = bodyOf(form);
  const named = (isRetried) => Object.keys(category).filter((name) => category[name] === isRetried);
  body.classify = { retry: [...named(true), ...(classify.retry || [])], fail: [...named(false), ...(classify.fail || [])] };
  return body;
}

let asked = 0;
async function draw() {
  const mine = ++asked;
  let given;
  try {
    const body = bodyOf(form);
    given = Object.fromEntries(SCHEDULE.filter((name) => name in body).map((name) => [name, body[name]]));
  } catch (problem) {
    return say(problem.field ? `${problem.field}: ${problem.message}` : problem.message);
  }
  try {
    const answer = await fetch(`/policies/plot?${new URLSearchParams({ policy: JSON.stringify(given) })}`);
    const text = await answer.text();
    if (mine !== asked) return; // somebody typed on
    if (answer.redirected) return say("Your session has ended. Sign in again in another tab; nothing here is lost.");
    if (!answer.ok) return say("This schedule cannot be drawn.");
    const read = new DOMParser().parseFromString(text, "text/html");
    place.replaceChildren(...[...read.body.childNodes].map((node) => document.importNode(node, true)));
  } catch {
    say("The server cannot be reached; the schedule is drawn when it can.");
  }
}

function say(text) {
  const said = document.createElement("p");
  said.className = "form-error";
  said.textContent = text;
  place.replaceChildren(said);
}

/** PUT would replace another policy without a word. */
async function refuseTaken(name) {
  if (!name) throw new BadField("name", "is needed");
  try {
    await call("GET", `/v1/policies/${encodeURIComponent(name)}`);
  } catch (problem) {
    if (problem.status === 404) return;
    throw problem;
  }
  throw new BadField("name", "There is a policy of this name. Edit that one, or choose another name.");
}

let waiting = 0;
form.addEventListener("input", (event) => {
  if (event.target.name === "kind") showKind();
  clearTimeout(waiting);
  waiting = setTimeout(draw, WAIT_MS);
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button.primary");
  button.disabled = true;
  try {
    const { name = form.dataset.policy, ...body } = policy();
    if (!form.dataset.policy) await refuseTaken(name);
    const saved = await call("PUT", `/v1/policies/${encodeURIComponent(name)}`, body);
    toastAfterwards("Saved. It counts for what is accepted from now on.");
    location.assign(`/policies/${saved.name}${["new", "plot"].includes(saved.name) ? "/edit" : ""}`);
  } catch (problem) {
    show(form, problem);
  } finally {
    button.disabled = false;
  }
});

showKind();
