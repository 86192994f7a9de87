// The list of runs: what is new is announced, not inserted.

import { call } from "./api.js";
import { announce, list, watchForNew } from "./list.js";

const runs = list();

watchForNew(async (filter) => {
  const { data } = await call("GET", `/v1/runs?${new URLSearchParams({ ...filter, limit: 1 })}`);
  const known = runs.rows.map((row) => row.dataset.id);
  announce(runs, !data.length || known.includes(data[0].run_id) ? "" : "New runs: show them");
});
