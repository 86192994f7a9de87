// <button data-copy="text"> or data-copy-from="#id": into the clipboard.

import { toast } from "./toast.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy], button[data-copy-from]");
  if (!button) return;
  const from = button.dataset.copyFrom;
  const text = from ? document.querySelector(from).textContent : button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    // Without https a browser has no clipboard for us: select it, so that the person can.
    const place = from ? document.querySelector(from) : button;
    getSelection().selectAllChildren(place);
    toast("Your browser lets pages copy only over https. It is selected: press Ctrl+C.", "warn");
  }
});
