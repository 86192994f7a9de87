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

function descriptions({ label, options, chosen }) {
  const rows = options.map(([value, words, sentence], place) => {
    const input = element("input", { type: "radio", name: "choice", value, checked: chosen ? value === chosen : place === 0 });
    return element("label", {}, input, element("span", {}, element("strong", {}, words), " ", element("span", { class: "hint" }, sentence)));
  });
  return element("fieldset", { class: "described" }, element("legend", { class: "label" }, label), ...rows);
}

/**
 * Resolves to null, or to {because, choice} when confirmed. `choices`: a label, and options as [value, words]; with a
 * sentence to each, [value, words, sentence], they stand there one below the other, and `chosen` is the one that is on.
 */
export function ask({ title, text, confirm, no = "Cancel", danger = false, because = false, choices = null }) {
  const reason = because ? element("input", { id: "because", name: "because", maxlength: 1000, autocomplete: "off" }) : null;
  const isDescribed = choices?.options.some((option) => option.length > 2);
  const choice = choices && !isDescribed
    ? element("select", { id: "choice" }, ...choices.options.map(([value, label]) => element("option", { value }, label)))
    : null;
  const described = isDescribed ? descriptions(choices) : null;
  const yes = element("button", { value: "yes", class: danger ? "primary danger" : "primary" }, confirm);
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", { id: "question" }, title),
    ...(text ? [element("p", {}, text)] : []),
    ...(choice ? [element("p", { class: "field" }, element("label", { for: "choice" }, choices.label), choice)] : []),
    ...(described ? [described] : []),
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
      const said = { because: reason?.value.trim() || undefined, choice: (choice || described?.querySelector(":checked"))?.value };
      resolve(dialog.returnValue === "yes" ? said : null);
    });
  });
}
