// Not a module: it runs before anything is shown. Modules come later, and what a person does until then would be lost, or
// a form would be sent as if there were no scripts. It is held here and done when they are there (DOMContentLoaded waits
// for them).

(() => {
  const held = [];

  function hold(event, again) {
    event.preventDefault();
    event.stopImmediatePropagation();
    held.push(again);
  }

  function onClick(event) {
    const button = event.target.closest("button[type=button]");
    if (button) hold(event, () => button.click());
  }

  function onKey(event) {
    const { key, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey || key.length > 1 || event.target.matches("input, textarea, select")) return;
    if (key === " ") return; // presses what has the focus, and the click comes by itself
    hold(event, () => (document.activeElement || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })));
  }

  function onSubmit(event) {
    const { target: form, submitter } = event;
    if (form.method === "post") hold(event, () => form.requestSubmit(submitter));
  }

  const listeners = { click: onClick, keydown: onKey, submit: onSubmit };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
  document.addEventListener("DOMContentLoaded", () => {
    for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
    for (const again of held) again();
  });
})();
