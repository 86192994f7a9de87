// One endpoint: a test followed to its end, a new secret, and the recovery of what died for it.

import { call } from "./api.js";
import { ask, element } from "./dialog.js";
import { list } from "./list.js";
import { showSecret } from "./secret.js";
import { now } from "./times.js";
import { sentence, toast } from "./toast.js";

const ASK_EVERY_MS = 300;
const ASK_FOR_MS = 60_000;
const deliveries = list();
const result = document.querySelector("[data-test-result]");

document.addEventListener("acted", async (event) => {
  const { answer } = event.detail;
  if (event.target.matches("[data-test]")) {
    event.preventDefault();
    follow(answer.event_id);
  } else if (event.target.matches("[data-rotate]")) {
    event.preventDefault();
    document.querySelector("[data-more]").open = false;
    await showSecret({
      title: "The new secret",
      text: answer.previous_valid_until
        ? "Deliveries carry its signature and that of the one before for 24 hours. Give it to the receiver until then."
        : "Deliveries carry its signature from now on. Give it to the receiver.",
      secret: answer.secret,
    });
    toast("The new secret is in force.");
  }
});

function tell(kind, text, task) {
  const link = task ? [" ", element("a", { href: `/integrations/logs/${task}` }, "View log")] : [];
  result.replaceChildren(element("p", { class: `notice ${kind}` }, text, ...link));
}

/** What became of a test: each try as it ends, until it is delivered or dead, or nobody seems to try it. */
async function follow(event) {
  tell("info", "The test delivery is on its way …");
  const deadline = performance.now() + ASK_FOR_MS;
  let told = 0;
  try {
    while (performance.now() < deadline) {
      await new Promise((done) => setTimeout(done, ASK_EVERY_MS));
      const { data } = await call("GET", `/v1/events/${event}/attempts`);
      const ended = data.filter((each) => each.ended_at);
      if (ended.length === told) continue;
      told = ended.length;
      const { status } = await call("GET", `/v1/events/${event}/status`);
      say(ended.at(-1), status);
      if (status === "delivered" || status === "failed") return deliveries.refresh();
    }
    if (!told) tell("warn", "Nothing has tried it within a minute. Is the endpoint paused or disabled, or no worker at work? It is delivered when that ends.");
  } catch (problem) {
    tell("bad", problem.message);
  }
}

function say(attempt, status) {
  const took = attempt.duration_ms === null ? "" : ` in ${Math.round(attempt.duration_ms).toLocaleString("en-US")} ms`;
  const taken = { PUBLISH: "confirmed by RabbitMQ", MAIL: "the mail server has taken it", NOTIFY: "the service has taken it" };
  const how = taken[attempt.request?.method] ?? `HTTP ${attempt.status_code}`;
  if (status === "delivered") return tell("ok", `Delivered: ${how}${took}.`, attempt.task_id);
  tell("bad", `Failed${took}: ${sentence(attempt.error_message)}`, attempt.task_id);
}

const form = document.querySelector("[data-recover]");

/** The moment chosen, as the API takes it; null while none is. */
function since() {
  const ago = form.elements.ago.value;
  if (ago) return new Date(now() - Number(ago) * 1000).toISOString();
  const given = form.elements.since.value;
  return given ? new Date(`${given}Z`).toISOString() : null;
}

let counted = null;
async function count() {
  const said = form.querySelector("[data-would]");
  const button = form.querySelector("button");
  const from = since();
  button.disabled = true;
  if (!from) return (said.textContent = "Choose a time.");
  try {
    const { pagination } = await call("GET", `${form.dataset.count}&failed_since=${encodeURIComponent(from)}`);
    counted = pagination.total_count;
    const text = counted === null ? "More than 10,000 dead letters" : `${counted.toLocaleString("en-US")} dead letter${counted === 1 ? "" : "s"}`;
    said.textContent = counted === 0 ? "No open dead letter of it died since then." : `${text} would be redriven.`;
    button.disabled = counted === 0;
  } catch (problem) {
    said.textContent = problem.message;
  }
}

form?.addEventListener("change", () => {
  const isTime = form.elements.ago.value === "";
  form.querySelector("[data-since]").hidden = !isTime;
  form.elements.since.disabled = !isTime;
  count();
});
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const from = since();
  const many = counted === null ? "all dead letters" : `${counted.toLocaleString("en-US")} dead letter${counted === 1 ? "" : "s"}`;
  const answer = await ask({
    title: `Redrive ${many} of ${form.dataset.name}?`,
    text: `Those that died since ${from.slice(0, 16).replace("T", " ")} UTC go back to the retry queue, with a fresh budget of retries.`,
    confirm: "Recover",
    because: true,
  });
  if (answer === null) return;
  try {
    const operation = await call("POST", form.dataset.recover, { since: from, ...(answer.because ? { because: answer.because } : {}) });
    deliveries.follow(operation);
  } catch (problem) {
    toast(problem.whole, "bad");
  }
});
if (form) count();
