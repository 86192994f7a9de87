// The form that signs in. The page it leads to is one of ours: the server saw to that.

import { call } from "./api.js";

const form = document.querySelector("[data-sign-in]");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const error = form.querySelector("[data-error]");
  const button = form.querySelector("button");
  error.hidden = true;
  button.disabled = true;
  try {
    await call("POST", "/v1/session", { email: form.elements.email.value, password: form.elements.password.value });
    location.assign(form.dataset.next);
  } catch (problem) {
    error.textContent = problem.whole;
    error.hidden = false;
    form.elements.password.value = "";
    form.elements.password.focus();
  } finally {
    button.disabled = false;
  }
});
