// A question as a <dialog>. The confirming button is named after the action; the answer is null for no.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Resolves to null, or to {because, choice} when confirmed. `choices`: a label, and options as [value, words]. */
export function ask({ title, text, confirm, no = "Cancel", danger = false, because = false, choices = null }) {
  const reason = because ? element("input", { id: "because", name: "because", maxlength: 1000, autocomplete: "off" }) : null;
  const choice = choices
    ? element("select", { id: "choice" }, ...choices.options.map(([value, label]) => element("option", { value }, label)))
    : null;
  const yes = element("button", { value: "yes", class: danger ? "primary danger" : "primary" }, confirm);
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", { id: "question" }, title),
    ...(text ? [element("p", {}, text)] : []),
    ...(choice ? [element("p", { class: "field" }, element("label", { for: "choice" }, choices.label), choice)] : []),
    ...(reason ? [element("p", { class: "field" }, element("label", { for: "because" }, "Why? (kept in the audit log, optional)"), reason)] : []),
    element("p", { class: "dialog-actions" }, element("button", { value: "no", type: "submit", formnovalidate: true }, no), yes),
  );
  const dialog = element("dialog", { "aria-labelledby": "question" }, form);
  document.body.append(dialog);
  dialog.showModal();
  (reason || yes).focus();
  form.addEventListener("keydown", (event) => {
    // Enter in the text field confirms: the first button of a form would be Cancel.
    if (event.key === "Enter" && event.target === reason) {
      event.preventDefault();
      yes.click();
    }
  });
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      const said = { because: reason?.value.trim() || undefined, choice: choice?.value };
      resolve(dialog.returnValue === "yes" ? said : null);
    });
  });
}
