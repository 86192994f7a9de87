// The list of dead letters: what is new is announced on top, and shown when asked for.

import { call } from "./api.js";
import { announce, list, watchForNew } from "./list.js";

const letters = list();

watchForNew(async (filter) => {
  const { pagination } = await call("GET", `/v1/dead-letters?${new URLSearchParams({ ...filter, limit: 1 })}`);
  const count = pagination.total_count;
  announce(letters, count === 0 ? "" : `${count === null ? "Many" : count.toLocaleString("en-US")} new`);
});
