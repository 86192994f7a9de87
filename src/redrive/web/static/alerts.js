// Alerts: what fires is shown as it is now, and a test says who gets it.

import { freshen } from "./fresh.js";
import { toast } from "./toast.js";

let firing = null;
document.addEventListener("counts", ({ detail }) => {
  // What is being written into a rule is no live part: it stays.
  if (firing !== null && firing !== detail.alerts) freshen().catch(() => {});
  firing = detail.alerts;
});

document.addEventListener("acted", (event) => {
  const { endpoints } = event.detail.answer;
  if (!endpoints || !event.target.matches("[data-path='/v1/alerts/test']")) return;
  event.preventDefault();
  const names = endpoints.map((endpoint) => endpoint.name).join(", ");
  if (names) toast(`A test is on its way to ${names}.`);
  else toast("No endpoint gets alerts: it stands in the log only. Make one with the event type redrive.alert.*", "warn");
});
