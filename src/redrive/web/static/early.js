// Not a module: it runs before anything is shown. Modules come later, and what a person does until then would be lost, or
// a form would be sent as if there were no scripts. It is held here, each thing once, and done when they are there
// (DOMContentLoaded waits for them). Where they could not be loaded, no form is sent.

(() => {
  const held = new Map();

  function hold(event, key, again) {
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!held.has(key)) held.set(key, again);
  }

  function onClick(event) {
    const button = event.target.closest("button[type=button]");
    if (button) hold(event, button, () => button.click());
  }

  // One key after another may be the same twice.
  function onKey(event) {
    const { key, ctrlKey, metaKey, altKey, repeat } = event;
    const isTyping = event.target.matches("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    if (isTyping || !key || key.length > 1 || key === " " || ctrlKey || metaKey || altKey || repeat) return;
    hold(event, Symbol(key), () => (document.activeElement || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })));
  }

  function onSubmit(event) {
    const { target: form, submitter } = event;
    if (form.method === "post") hold(event, form, () => form.requestSubmit(submitter));
  }

  function onUnsent(event) {
    if (event.defaultPrevented || event.target.method !== "post") return;
    event.preventDefault();
    const said = document.createElement("p");
    said.className = "notice bad";
    said.setAttribute("role", "alert");
    said.textContent = "Nothing was sent: the scripts of this page could not be loaded. Reload it, then try again.";
    event.target.prepend(said);
  }

  const listeners = { click: onClick, keydown: onKey, submit: onSubmit };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
  addEventListener("submit", onUnsent); // after all others: our forms are sent by scripts, which say so
  document.addEventListener("DOMContentLoaded", () => {
    for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
    for (const again of held.values()) again();
  });
})();
