// One workflow: the keyboard's place among its latest runs, and the form that starts one.

import { call } from "./api.js";
import { BadField, show } from "./forms.js";
import { fault } from "./json_text.js";
import { list } from "./list.js";
import { toastAfterwards } from "./toast.js";

list();

const form = document.querySelector("[data-start-run]");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { input, correlation_id: correlation } = form.elements;
  const button = form.querySelector("button.primary");
  button.disabled = true;
  try {
    const wrong = fault(input.value);
    if (wrong) throw new BadField("input", `Line ${wrong.line}, column ${wrong.column}: ${wrong.message}.`);
    const rest = correlation.value.trim() ? `, "correlation_id": ${JSON.stringify(correlation.value.trim())}` : "";
    // The text itself is sent: read and written anew, a number of twenty digits would be another one.
    const begun = await call("POST", form.dataset.startRun, `{"input": ${input.value}${rest}}`);
    toastAfterwards("The run has begun.");
    location.assign(`/runs/${begun.run_id}`);
  } catch (problem) {
    show(form, problem);
  } finally {
    button.disabled = false;
  }
});
