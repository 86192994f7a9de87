// The list of events: what is new is announced, not inserted. And the form that sends one.

import { call } from "./api.js";
import { BadField, show } from "./forms.js";
import { announce, list, watchForNew } from "./list.js";
import { toastAfterwards } from "./toast.js";

const events = list();

watchForNew(async (filter) => {
  const { data } = await call("GET", `/v1/events?${new URLSearchParams({ ...filter, limit: 1 })}`);
  const known = events.rows.map((row) => row.dataset.id);
  announce(events, !data.length || known.includes(data[0].event_id) ? "" : "New events: show them");
});

const form = document.querySelector("[data-send-event]");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { event_type: type, payload } = form.elements;
  const button = form.querySelector("button.primary");
  button.disabled = true;
  try {
    try {
      JSON.parse(payload.value);
    } catch (error) {
      throw new BadField("payload", `is no JSON: ${error.message}`);
    }
    // The text itself is sent: read and written anew, a number of twenty digits would be another one.
    const sent = await call("POST", "/v1/events", `{"event_type":${JSON.stringify(type.value)},"payload":${payload.value}}`);
    toastAfterwards("Sent.");
    location.assign(`/events/${sent.event_id}`);
  } catch (problem) {
    show(form, problem);
  } finally {
    button.disabled = false;
  }
});
