// A secret that is shown once: a dialog that says so, with a button that copies it.

import { element } from "./dialog.js";

/** Resolves when it is closed: the secret is gone then. */
export function showSecret({ title, text, secret }) {
  const dialog = element("dialog", { "aria-labelledby": "secret-title" },
    element("form", { method: "dialog" },
      element("h2", { id: "secret-title" }, title),
      element("p", {}, text),
      element("p", { class: "secret" }, element("code", { id: "secret" }, secret),
        element("button", { type: "button", class: "small", "data-copy-from": "#secret" }, "Copy")),
      element("p", {}, "It is shown this once, and never again."),
      element("p", { class: "dialog-actions" }, element("button", { class: "primary" }, "I have kept it"))));
  document.body.append(dialog);
  dialog.showModal();
  // Escape would lose it by accident.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
  });
}
