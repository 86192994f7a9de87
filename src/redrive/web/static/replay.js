// The dialog that replays steps of a run. It says what will run again, and what stays, before anything does. On the pages of a run and
// of a step's dead letter; web/workflow_words.py has what it is told of the steps.

import { call } from "./api.js";
import { fault } from "./json_text.js";
import { toastAfterwards } from "./toast.js";

const MAX_NAMED = 6; // of a list of steps in a sentence
const dialog = document.querySelector("[data-replay-dialog]");
const find = (selector) => dialog.querySelector(selector);
let steps = [];
let base = null; // the input as it would be without an edit; null while it was not asked for

function named(list, words) {
  const told = list.map(words);
  return told.length <= MAX_NAMED ? told.join(", ") : `${told.slice(0, MAX_NAMED - 2).join(", ")} … ${told.at(-1)} (${told.length} in all)`;
}

/** What a replay does to the steps, in words. */
export function sentence(all, from, mode) {
  const isRun = (step) => (mode === "STEP_ONLY" ? step.index === from : step.index >= from);
  const plain = (step) => `${step.index} ${step.name}`;
  const again = all.filter(isRun);
  const fresh = again.filter((step) => step.is_new);
  const stays = all.filter((step) => !isRun(step));
  const said = [`Runs ${fresh.length === again.length ? "for the first time" : "again"}: ${named(again, plain)}.`];
  if (stays.length) said.push(`Stays as it is: ${named(stays, (step) => `${plain(step)} (${step.stands})`)}.`);
  if (fresh.length && fresh.length < again.length) said.push(`Has not run before: ${named(fresh, plain)}.`);
  if (stays.some((step) => !step.is_done)) said.push("The run ends as PARTIAL: not all of its steps will have succeeded.");
  return said.join(" ");
}

const chosen = () => Number(find("#replay-step").value);
const mode = () => find("input[name=mode]:checked").value;

function show() {
  const step = steps[chosen()];
  const alone = find("input[value=STEP_ONLY]");
  // A dead letter is of one step: to run another one alone is the run's own business.
  alone.disabled = dialog.dataset.own !== undefined && Number(dialog.dataset.own) !== step.index;
  if (alone.disabled && alone.checked) find("input[value=FROM_STEP]").checked = true;
  find("#replay-title").textContent = mode() === "STEP_ONLY" ? `Replay ${step.index} ${step.name} alone` : `Replay from ${step.index} ${step.name} on`;
  find("[data-says]").textContent = sentence(steps, step.index, mode());
  find("[data-input-says]").textContent = step.keeps_input
    ? "Its input is what it was, unless you edit it here."
    : "Its input is made anew from the workflow's template, unless you give it here.";
}

async function load() {
  const editor = find("[data-edit-input]");
  if (!editor?.open) return;
  const index = chosen();
  const box = find("#replay-input");
  base = null;
  try {
    const answer = await fetch(`${dialog.dataset.run}/steps/${index}/input`);
    // Whoever is not signed in any more is sent to the sign-in page, which fetch follows.
    if (answer.redirected) throw new Error("Your session has ended: sign in again in another tab.");
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    const text = await answer.text();
    if (index !== chosen()) return; // another step was chosen meanwhile
    box.value = text;
    base = box.value; // as the box has it, with its own ends of lines
    check();
  } catch (problem) {
    find("[data-error]").textContent = `The input could not be loaded. ${problem.message}`;
  }
}

/** What the editor says, if it is to be sent, and what is wrong with it. Where the template would be asked again, what stands in the
 *  editor counts as it stands: somebody has read it there. */
function check() {
  const box = find("#replay-input");
  const isOpen = find("[data-edit-input]")?.open && base !== null;
  const isOurs = isOpen && box.value.trim() !== "" && (box.value !== base || !steps[chosen()].keeps_input);
  const wrong = isOurs ? fault(box.value) : null;
  if (box) {
    find("[data-said]").textContent = wrong
      ? `Line ${wrong.line}, column ${wrong.column}: ${wrong.message}.`
      : isOurs ? "Valid JSON. It is sent as it stands here." : isOpen && !steps[chosen()].keeps_input ? "Left empty, the template says it." : "Nothing changed.";
    find("[data-said]").classList.toggle("bad", Boolean(wrong));
    box.setAttribute("aria-invalid", String(Boolean(wrong)));
  }
  return { wrong, edited: isOurs ? box.value : null };
}

async function replay() {
  const { wrong, edited } = check();
  if (wrong) return find("#replay-input").focus();
  const policy = find("#replay-policy").value;
  const because = find("#replay-because").value.trim();
  const rest = JSON.stringify({
    mode: mode(),
    from_step_index: chosen(),
    now: find("#replay-now").checked,
    ...("again" in dialog.dataset ? { again: true } : {}),
    ...(policy ? { override_retry_policy: policy } : {}),
    ...(find("#replay-key").checked ? { new_idempotency_key: true } : {}),
    ...(because ? { because } : {}),
  });
  const button = find("button[type=submit]");
  button.disabled = true;
  find("[data-error]").textContent = "";
  try {
    // The text itself is sent: read and written anew, a number of twenty digits would be another one.
    await call("POST", dialog.dataset.path, edited === null ? rest : `{"payload": ${edited}, ${rest.slice(1)}`);
    dialog.close();
    toastAfterwards("The replay has begun.");
    if (location.pathname === dialog.dataset.run) location.reload();
    else location.assign(dialog.dataset.run);
  } catch (problem) {
    find("[data-error]").textContent = problem.whole || problem.message;
  } finally {
    button.disabled = false;
  }
}

function open(index) {
  steps = JSON.parse(document.querySelector("[data-steps]").dataset.steps);
  find("form").reset();
  find("[data-error]").textContent = "";
  if (find("[data-edit-input]")) find("[data-edit-input]").open = false;
  base = null;
  find("#replay-step").value = String(index);
  show();
  dialog.showModal();
  find("button[type=submit]").focus();
}

if (dialog) {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-replay]");
    if (button) open(Number(button.dataset.replay));
  });
  find("form").addEventListener("change", (event) => {
    show();
    if (event.target.id === "replay-step") load();
  });
  find("[data-edit-input]")?.addEventListener("toggle", () => (base === null ? load() : check()));
  find("#replay-input")?.addEventListener("input", check);
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    replay();
  });
}
