// The list of dead letters: what is new is announced on top, and shown when asked for.

import { call } from "./api.js";
import { announce, list } from "./list.js";

const letters = list();
let asking = false;

document.addEventListener("counts", async () => {
  const place = document.querySelector("[data-new][data-watch]");
  if (!place || asking) return;
  asking = true;
  try {
    const query = new URLSearchParams({ ...JSON.parse(place.dataset.watch), limit: 1 });
    const { pagination } = await call("GET", `/v1/dead-letters?${query}`);
    const count = pagination.total_count;
    announce(letters, count === 0 ? "" : `${count === null ? "Many" : count.toLocaleString("en-US")} new`);
  } catch {
    // The numbers come again; the list itself is as true as it was.
  } finally {
    asking = false;
  }
});
