// The list of dead letters: what is new is announced on top, and shown when asked for.

import { call } from "./api.js";
import { element } from "./dialog.js";
import { list } from "./list.js";

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
    if (count === 0) return place.replaceChildren();
    const text = `${count === null ? "Many" : count.toLocaleString("en-US")} new`;
    const button = element("button", { type: "button", class: "new-rows" }, text);
    button.addEventListener("click", () => letters.refresh());
    place.replaceChildren(button);
  } catch {
    // The numbers come again; the list itself is as true as it was.
  } finally {
    asking = false;
  }
});
