// The retry queue: a retry by hand is followed to its end; what is new or has left is told, nothing moves by itself.

import { call } from "./api.js";
import { removeRow } from "./acts.js";
import { element } from "./dialog.js";
import { list } from "./list.js";
import { relative } from "./times.js";
import { toast } from "./toast.js";

const ASK_EVERY_MS = 300;
const ASK_FOR_MS = 60_000;
const queue = list();
const followed = new Set();

function badge(text, kind) {
  return element("span", { class: `badge ${kind}` }, text);
}

document.addEventListener("acted", (event) => {
  if (!event.target.matches("[data-retry-now]")) return;
  event.preventDefault();
  follow(event.target.closest("tr"), event.target);
});

async function follow(row, button) {
  const before = row.dataset.failedAt;
  followed.add(row.dataset.id);
  row.querySelector('[data-cell="next"]').replaceChildren(badge("in progress", "info"));
  const deadline = performance.now() + ASK_FOR_MS;
  try {
    while (performance.now() < deadline && row.isConnected) {
      button.disabled = true;
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
    button.disabled = false;
  }
}

function sameMoment(one, other) {
  return Math.abs(Date.parse(one) - Date.parse(other)) < 1;
}

function tell(row, entry) {
  if (entry.status === "succeeded") {
    toast("Retry successful. Event removed from queue.");
    return removeRow(row);
  }
  if (entry.in_dlq) {
    toast(`Retry failed: ${entry.error_message} It was the last one: it is among the dead letters now.`, "bad");
    return removeRow(row);
  }
  row.dataset.failedAt = entry.last_retry_at;
  row.querySelector('[data-cell="count"]').textContent = `${entry.retry_count} / ${entry.max_retries ?? "∞"}`;
  const next = row.querySelector('[data-cell="next"]');
  if (entry.next_retry_at) {
    const at = Date.parse(entry.next_retry_at);
    next.replaceChildren(element("time", { datetime: entry.next_retry_at, title: entry.next_retry_at, "data-relative": true }, relative(at)));
    toast(`Retry failed: ${entry.error_message} Next retry ${relative(at)}.`, "warn");
  } else {
    next.textContent = "by hand";
    toast(`Retry failed: ${entry.error_message}`, "warn");
  }
}

let asking = false;
document.addEventListener("counts", async () => {
  if (asking || !queue.table) return;
  asking = true;
  try {
    const filter = JSON.parse(queue.bulk?.dataset.filter || "{}");
    if (!new URL(location.href).searchParams.has("status")) delete filter.status;
    const isFirst = !new URL(location.href).searchParams.has("cursor");
    const { data } = await call("GET", `/v1/retry-queue?${new URLSearchParams({ ...filter, limit: 50 })}`);
    const rows = queue.rows;
    const there = new Set(data.map((entry) => entry.id));
    const known = new Set(rows.map((row) => row.dataset.id));
    // What lies behind the last one asked for may still be there: only a list that is whole tells what has left.
    const isWhole = data.length < 50;
    for (const row of rows) {
      if (isFirst && isWhole && !there.has(row.dataset.id) && !followed.has(row.dataset.id)) leave(row);
    }
    const fresh = isFirst ? data.filter((entry) => !known.has(entry.id)).length : 0;
    announce(fresh);
  } catch {
    // The numbers come again; the list itself is as true as it was.
  } finally {
    asking = false;
  }
});

function leave(row) {
  if (row.dataset.left) return;
  row.dataset.left = "true";
  row.querySelector('[data-cell="next"]').replaceChildren(badge("has left the queue", "quiet"));
  for (const button of row.querySelectorAll("button")) button.disabled = true;
}

function announce(count) {
  const place = document.querySelector("[data-new]");
  if (!count) return place.replaceChildren();
  const button = element("button", { type: "button", class: "new-rows" }, `${count === 50 ? "50 or more" : count} new`);
  button.addEventListener("click", () => queue.refresh());
  place.replaceChildren(button);
}
