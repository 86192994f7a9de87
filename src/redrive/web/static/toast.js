// Short messages at the edge of the page. A toast may wait for the next page: after a reload it is shown there.

const LASTS_MS = 6000;
const WAITING = "redrive-toast";

/** A text that another can follow. */
export const sentence = (text) => (/[.!?…]$/.test(text || "") ? text : `${text || "no reason is known"}.`);

/** `action`: { label, run } of a button in it. */
export function toast(text, kind = "ok", action = null) {
  const box = document.querySelector("[data-toasts]");
  const made = document.createElement("div");
  made.className = `toast ${kind}`;
  const said = document.createElement("span");
  said.textContent = text;
  made.append(said);
  if (action) made.append(button(made, action.label, action.run));
  const close = button(made, "×");
  close.setAttribute("aria-label", "Dismiss");
  made.append(close);
  box.append(made);
  while (box.children.length > 4) box.firstElementChild.remove();
  if (kind === "bad") made.setAttribute("role", "alert");
  else leaveLater(made);
}

/** It closes the toast, whatever else it does. */
function button(made, label, run) {
  const pressed = document.createElement("button");
  pressed.type = "button";
  pressed.className = "plain";
  pressed.textContent = label;
  pressed.addEventListener("click", () => {
    made.remove();
    run?.();
  });
  return pressed;
}

/** Not while somebody reads it with the pointer or the keyboard on it. */
function leaveLater(made) {
  setTimeout(() => (made.matches(":hover, :focus-within") ? leaveLater(made) : made.remove()), LASTS_MS);
}

export function toastAfterwards(text, kind = "ok") {
  sessionStorage.setItem(WAITING, JSON.stringify({ text, kind }));
}

export function showWaiting() {
  const waiting = sessionStorage.getItem(WAITING);
  if (!waiting) return;
  sessionStorage.removeItem(WAITING);
  const { text, kind } = JSON.parse(waiting);
  toast(text, kind);
}
