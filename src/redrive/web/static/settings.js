// Settings: dialogs filled from a row, a new key shown once, a new password typed twice.

import { element } from "./dialog.js";
import { BadField, show } from "./forms.js";

// One dialog for all rows: <button data-fill="#dialog" data-path-of data-values='{"name": …}' data-title>.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-fill]");
  if (!button) return;
  const dialog = document.querySelector(button.dataset.fill);
  const form = dialog.querySelector("form");
  form.reset();
  form.dataset.path = button.dataset.pathOf;
  dialog.querySelector("[data-dialog-title]").textContent = button.dataset.title;
  for (const [name, value] of Object.entries(JSON.parse(button.dataset.values))) {
    const field = form.elements[name] || form.elements[`limits.${name}`];
    if (field) field.value = value;
  }
  dialog.showModal();
});

// Nobody sees it again: the page goes on only when the person says so.
document.addEventListener("sent", (event) => {
  const { key } = event.detail.answer;
  if (!event.target.matches("[data-shows-key]") || !key) return;
  event.preventDefault();
  event.target.closest("dialog")?.close();
  const dialog = element("dialog", { "aria-labelledby": "key-title" },
    element("form", { method: "dialog" },
      element("h2", { id: "key-title" }, event.target.dataset.showsKey),
      element("p", {}, "Copy it now: it is shown this once, and only its hash is stored."),
      element("code", { id: "new-key", class: "new-key code", tabindex: "0" }, key),
      element("p", { class: "dialog-actions" },
        element("button", { type: "button", "data-copy-from": "#new-key" }, "Copy"),
        element("button", { class: "primary" }, "I have it"))));
  // Escape is pressed too easily for something that cannot be had again.
  dialog.addEventListener("cancel", (cancel) => cancel.preventDefault());
  dialog.addEventListener("close", () => location.reload());
  document.body.append(dialog);
  dialog.showModal();
});

const password = document.querySelector("form[data-new-password]");
password?.addEventListener("submit", (event) => {
  if (password.elements.password.value === password.elements.repeated.value) return;
  // Before forms.js, which listens further out.
  event.preventDefault();
  event.stopPropagation();
  show(password, new BadField("repeated", "is not the same as above"));
});
