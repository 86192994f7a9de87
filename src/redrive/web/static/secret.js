// A secret that is shown once: a dialog that says so, with a button that copies it.

import { element } from "./dialog.js";

const KEPT = "kept";

// Before the browser closes the dialog by it, which it lets nobody refuse twice.
function refuseEscape(event) {
  if (event.key === "Escape") event.preventDefault();
}

/** Resolves when the person says that they have it: it is gone then. */
export function showSecret({ title, text, secret }) {
  const dialog = element("dialog", { "aria-labelledby": "secret-title" },
    element("form", { method: "dialog" },
      element("h2", { id: "secret-title" }, title),
      element("p", {}, text),
      element("p", { class: "secret" }, element("code", { id: "secret" }, secret),
        element("button", { type: "button", class: "small", "data-copy-from": "#secret" }, "Copy")),
      element("p", {}, "It is shown this once, and never again."),
      element("p", { class: "dialog-actions" }, element("button", { class: "primary", value: KEPT }, "I have kept it"))));
  document.body.append(dialog);
  dialog.showModal();
  addEventListener("keydown", refuseEscape, true);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      // A phone's gesture of going back closes it, too.
      if (dialog.returnValue !== KEPT) return dialog.showModal();
      removeEventListener("keydown", refuseEscape, true);
      dialog.remove();
      resolve();
    });
  });
}
