// The retry queue: a retry by hand is followed to its end; what is new or has left is told, nothing moves by itself.

import { call } from "./api.js";
import { busy, removeRow } from "./acts.js";
import { element } from "./dialog.js";
import { announce, list, watchForNew } from "./list.js";
import { absolute, relative, sameMoment } from "./times.js";
import { sentence, toast } from "./toast.js";

const ASK_EVERY_MS = 300;
const ASK_FOR_MS = 60_000;
const queue = list();
const followed = new Set();
const LOOKED_AT = 50;

const HELD = "Due but held: the breaker of its endpoint lets a few tries through per second.";
const NO_WORKER = "No worker serves its queue. It is tried when one is started.";

/** Told of by what the person began: single retries, and those of a bulk action. */
const isFollowed = (id) => followed.has(id) || queue.inProgress.has(id);

function badge(text, kind, title = null) {
  return element("span", { class: `badge ${kind}`, title }, text);
}

document.addEventListener("acted", (event) => {
  if (!event.target.matches("[data-retry-now]")) return;
  event.preventDefault();
  follow(event.target.closest("tr"), event.target, event.detail.answer);
});

async function follow(row, button, answer) {
  if (answer.warning === "no_worker") {
    renew(row, answer);
    return toast(NO_WORKER, "warn");
  }
  const before = row.dataset.failedAt;
  followed.add(row.dataset.id);
  row.querySelector('[data-cell="next"]').replaceChildren(badge("in progress", "waiting"));
  const deadline = performance.now() + ASK_FOR_MS;
  try {
    while (performance.now() < deadline && row.isConnected) {
      busy(button, true);
      await new Promise((done) => setTimeout(done, ASK_EVERY_MS));
      const entry = await call("GET", `/v1/retry-queue/${row.dataset.id}`);
      if (entry.status === "in_progress" || (entry.status === "pending" && sameMoment(entry.last_retry_at, before))) continue;
      return tell(row, entry);
    }
    toast("It is still in progress. The list shows how it ends.", "warn");
  } catch (problem) {
    toast(problem.message, "bad");
  } finally {
    followed.delete(row.dataset.id);
    busy(button, false);
  }
}

function tell(row, entry) {
  if (entry.status === "succeeded") {
    toast("Retry successful. Event removed from queue.");
    return removeRow(row);
  }
  if (entry.in_dlq) {
    toast(`Retry failed: ${sentence(entry.error_message)} It was the last one: it is among the dead letters now.`, "bad");
    return removeRow(row);
  }
  renew(row, entry);
  const next = entry.next_retry_at ? ` Next retry ${relative(Date.parse(entry.next_retry_at))}.` : "";
  toast(`Retry failed: ${sentence(entry.error_message)}${next}`, "warn");
}

/** A row says how its entry stands now. */
function renew(row, entry) {
  row.dataset.failedAt = entry.last_retry_at;
  tellError(row.querySelector("td.error > span"), entry.error_message || "");
  row.querySelector('[data-cell="count"]').textContent = `${entry.retry_count} / ${entry.max_retries ?? "∞"}`;
  const button = row.querySelector("[data-retry-now]");
  if (button) {
    button.disabled = entry.status === "in_progress" || Boolean(entry.blocked_by);
    button.title = entry.blocked_by ?? "";
  }
  const next = row.querySelector('[data-cell="next"]');
  if (entry.status === "in_progress") {
    next.replaceChildren(badge("in progress", "waiting"));
  } else if (entry.held || entry.blocked_by) {
    next.replaceChildren(badge(entry.held ? "held" : "held when due", "held", entry.blocked_by ?? HELD));
  } else if (entry.next_retry_at) {
    const at = Date.parse(entry.next_retry_at);
    next.replaceChildren(element("time", { datetime: entry.next_retry_at, title: absolute(at), "data-relative": true }, relative(at)));
  } else {
    next.textContent = "by hand";
  }
}

/** As templates/parts.html says it: the status that was answered, and the rest. */
function tellError(cell, message) {
  const status = /^HTTP (\d{3})\b\s*(.*)$/s.exec(message);
  cell.title = message;
  if (status) cell.querySelector(".badge").textContent = `HTTP ${status[1]}`;
  cell.querySelector(".error-text").textContent = status ? status[2] : message;
}

watchForNew(async ({ since, ...filter }) => {
  const { data } = await call("GET", `/v1/retry-queue?${new URLSearchParams({ ...filter, limit: LOOKED_AT })}`);
  const there = new Set(data.map((entry) => entry.id));
  const known = new Set(queue.rows.map((row) => row.dataset.id));
  // What lies behind the last one asked for may still be there: only a list that is whole tells what has left.
  if (data.length < LOOKED_AT) {
    for (const row of queue.rows) if (!there.has(row.dataset.id) && !isFollowed(row.dataset.id)) leave(row);
  }
  for (const entry of data) {
    const row = queue.rows.find((each) => each.dataset.id === entry.id);
    if (row && !isFollowed(entry.id)) renew(row, entry);
  }
  // What moves up from the next page is not new: what is, failed for the first time since this page was made.
  const isNew = (entry) => !known.has(entry.id) && entry.retry_count === 0 && Date.parse(entry.last_retry_at) >= Date.parse(since);
  const count = data.filter(isNew).length;
  announce(queue, count ? `${count === LOOKED_AT ? `${count} or more` : count} new` : "");
});

function leave(row) {
  if (row.dataset.left) return;
  row.dataset.left = "true";
  row.querySelector('[data-cell="next"]').replaceChildren(badge("has left the queue", "quiet"));
  for (const button of row.querySelectorAll("button")) button.disabled = true;
}
