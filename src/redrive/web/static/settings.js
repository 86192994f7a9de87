// Settings: dialogs filled from a row, a new key shown once, a new password typed twice.

import { BadField, show } from "./forms.js";
import { showSecret } from "./secret.js";

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
document.addEventListener("sent", async (event) => {
  const { key } = event.detail.answer;
  if (!event.target.matches("[data-shows-key]") || !key) return;
  event.preventDefault();
  event.target.closest("dialog")?.close();
  await showSecret({ title: event.target.dataset.showsKey, text: "Copy it now: only its hash is stored.", secret: key });
  location.reload();
});

// Fields of a new key that belong to one scope are offered with that scope only.
const scope = document.querySelector("#k-scope");
for (const field of document.querySelectorAll("[data-of-scope]")) {
  scope.addEventListener("change", () => {
    field.hidden = scope.value !== field.dataset.ofScope;
    field.querySelector("select").disabled = field.hidden;
  });
}

const password = document.querySelector("form[data-new-password]");
password?.addEventListener("submit", (event) => {
  if (password.elements.password.value === password.elements.repeated.value) return;
  // Before forms.js, which listens further out.
  event.preventDefault();
  event.stopPropagation();
  show(password, new BadField("repeated", "is not the same as above"));
});
